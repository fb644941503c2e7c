// Goal: everyone spends the relayer's gas only from their own budget: not by dust payments, fresh wallets, or a
// seller that never settles.
import { randomBytes } from "node:crypto";
import t, { type Test } from "tap";
import { makePayers, signedBodies } from "../bench/signed.ts";
import { post, signedPayment, type Body } from "../facilitator/payments.ts";
import { spendAs } from "../helpers/call.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { expectGasIsAccounted, expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import { payers, randomAddress } from "../helpers/engine.ts";
import { createAgent, signIn, type NewTestAgent, type SignedInOwner } from "../helpers/owner.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";
import { market } from "../x402-client/market.ts";

const KEY = `key_${randomBytes(16).toString("hex")}`;
const METRICS_TOKEN = randomBytes(16).toString("hex");
const usdc = 1_000_000n;
/** Many more than the budget has room for. */
const THIRD_PARTIES = isFullTier ? 1_000 : 200;
const ROUNDS = isFullTier ? 10 : 3;
/** The cost of a payment depends on the chain: budgets are multiples of it. */
const PRICE_GWEI = 2;
const flags = ["--block-base-fee-per-gas=1000000000"];

/** A budget for about this many payments at the test chain's gas price. */
const roomFor = (payments: number): string => ((payments * 90_000 * PRICE_GWEI) / 1e9).toFixed(6);

async function world(t: Test, budget: string, env: Record<string, string> = {}) {
  return testApp(t, {
    chainOptions: { blockTimeSeconds: 0.5, flags },
    env: {
      FACILITATOR_OPEN: "true",
      FACILITATOR_API_KEYS: KEY,
      METRICS_TOKEN,
      GAS_BUDGET_5042002: budget,
      ...env,
    },
  });
}

const spend = async (
  { app }: TestApp,
  agent: NewTestAgent,
  recipient: string,
  amount: string,
  memo?: string,
) => {
  const answer = await spendAs(app, agent, { recipient, amount, memo });
  return { status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
};

async function withdraw({ app }: TestApp, owner: SignedInOwner, agent: NewTestAgent) {
  const call = async (path: string, payload: unknown) => {
    const url = `/api/agents/${agent.id}/withdrawals${path}`;
    const { headers } = owner;
    return app.inject({ method: "POST", url, headers, payload: JSON.stringify(payload) });
  };
  const { order, typedData } = (await call("/prepare", { amount: "0.01" })).json();
  const signature = await owner.account.signTypedData({ ...typedData, primaryType: "Withdraw" });
  const answer = await call("", { order, signature });
  return { status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
}

/** The stored used and held gas of this account, in the units of core/gas.ts. */
async function accountOf({ database }: TestApp, account: string) {
  const { rows } = await database.pool.query<{ used: string; held: string }>(
    "SELECT used::text, held::text FROM gas_accounts WHERE account = $1",
    [account],
  );
  return { used: BigInt(rows[0]?.used ?? 0), held: BigInt(rows[0]?.held ?? 0) };
}

t.test("hundreds of fresh payers and payees stop no merchant, agent or withdrawal", async (t) => {
  const ctx = await world(t, `strangers=${roomFor(40)},agents=0.1,merchants=0.1,withdrawals=0.1`);
  const { app, chain, database } = ctx;
  const owner = await signIn(ctx);
  const payee = randomAddress();
  const agent = await createAgent(ctx, owner, { allowlist: [payee] });
  const fresh = makePayers(THIRD_PARTIES);
  await chain.mint([agent.walletAddress, ...fresh.map(({ address }) => address)], usdc);
  const bodies = fresh.flatMap((payer) =>
    signedBodies({ chain, payers: [payer], payTo: randomAddress(), count: 1 }).map(
      (body) => JSON.parse(body) as Body,
    ),
  );
  const answers: Record<string, unknown>[] = [];
  while (answers.length < bodies.length) {
    const next = bodies.slice(answers.length, answers.length + 100);
    answers.push(...(await Promise.all(next.map((body) => post(app, "settle", body)))));
  }
  const settled = answers.filter(({ success }) => success === true).length;
  const refused = answers.filter(({ errorReason }) => errorReason === "gas_budget_exhausted");
  t.ok(
    settled > 20,
    `a batch shrinks to the rest of the budget instead of failing as a whole: ${settled}`,
  );
  t.equal(refused.length, THIRD_PARTIES - settled, "the others are refused with their own code");
  t.match(
    refused[0]?.["errorMessage"],
    /gas budget of third parties' payments is used up.* again at 20/,
  );

  const [one] = payers(1);
  if (!one) throw new Error("no payer");
  await chain.mint(one.address, usdc);
  const body = await signedPayment({ chain, payer: one, payTo: randomAddress() });
  // Some cost less than was held for them: this retries until that difference is used up too.
  const isRefused = (answer: Record<string, unknown>): boolean =>
    answer["errorReason"] === "gas_budget_exhausted";
  let again = bodies.filter((_, index) => isRefused(answers[index] ?? {}));
  await until(async () => {
    const tried = again.slice(0, 40);
    const responses = await Promise.all(tried.map((each) => post(app, "settle", each)));
    again = again.filter(
      (each) => !tried.includes(each) || isRefused(responses[tried.indexOf(each)] ?? {}),
    );
    return responses.every(isRefused);
  }, 30_000);
  t.match(await post(app, "settle", body), { errorReason: "gas_budget_exhausted" });
  t.match(
    await post(app, "settle", body, { authorization: `Bearer ${KEY}` }),
    { success: true },
    "a merchant with a key can settle the payment that others cannot",
  );
  t.match(await spend(ctx, agent, payee, "0.01"), { status: 200 });
  t.match(await withdraw(ctx, owner, agent), { status: 200 });

  const { rows } = await database.pool.query<{ hash: `0x${string}` }>(
    "SELECT mined_hash AS hash FROM relayer_transactions WHERE mined_hash IS NOT NULL",
  );
  let paid = 0n;
  for (const { hash } of rows) {
    const receipt = await chain.publicClient.getTransactionReceipt({ hash });
    paid += receipt.gasUsed * receipt.effectiveGasPrice;
  }
  const accounts = ["strangers", "merchants", "agents", "withdrawals", "house"];
  const used = await Promise.all(accounts.map((account) => accountOf(ctx, account)));
  t.equal(
    used.reduce((sum, one) => sum + one.used, 0n),
    paid,
    "the shares add up to exactly the gas of the receipts",
  );
  await expectLedgerEqualsChain(t, chain, database.pool, { isAllFinal: false });
  const metrics = await app.inject({
    url: "/metrics",
    headers: { authorization: `Bearer ${METRICS_TOKEN}` },
  });
  t.match(metrics.body, /purser_gas_share_left\{network="eip155:5042002",share="strangers"\} 0/);
  t.match(
    metrics.body,
    /purser_gas_share_used_usdc\{network="eip155:5042002",share="agents"\} 0\.0/,
  );
  t.match(
    metrics.body,
    /purser_gas_usdc_total\{network="eip155:5042002",kind="facilitated"\} 0\.0/,
  );
  const overview = await app.inject({ url: "/api/overview", headers: owner.headers });
  t.match(overview.json<{ gas: unknown[] }>().gas, [
    { for: "payments", perDay: "20", used: /^0\.00/, held: "0" },
    { for: "withdrawals", perDay: "10", used: /^0\.00/, held: "0" },
  ]);
});

t.test("dust is refused with its own code; small payments stop at the budget", async (t) => {
  const ctx = await world(t, `owner=${roomFor(6)}`);
  const owner = await signIn(ctx);
  const payee = randomAddress();
  const agents = [
    await createAgent(ctx, owner, { allowlist: [payee] }),
    await createAgent(ctx, owner, { allowlist: [payee] }),
  ] as const;
  const other = await createAgent(ctx, await signIn(ctx), { allowlist: [payee] });
  await ctx.chain.mint(
    [...agents, other].map(({ walletAddress }) => walletAddress),
    usdc,
  );
  const dust = await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      spend(ctx, agents[index % 2 === 0 ? 0 : 1], payee, "0.000001"),
    ),
  );
  t.same(new Set(dust.map(({ body }) => body["code"])), new Set(["amount_below_floor"]));
  t.match(dust[0], { status: 403, body: { blocked: true, policy: { rule: "floor" } } });
  const bought = await ctx.database.pool.query("SELECT 1 FROM relayer_transactions");
  t.equal(bought.rowCount, 0, "no gas was bought");

  const small = await Promise.all(
    Array.from({ length: 60 }, (_, index) =>
      spend(ctx, agents[index % 2 === 0 ? 0 : 1], payee, "0.0001", `${index}`),
    ),
  );
  const paid = small.filter(({ status }) => status === 200).length;
  const refused = small.filter(({ body }) => body["code"] === "gas_budget_exhausted");
  t.ok(paid >= 4, `payments of 0.0001 USDC pass: ${paid}`);
  t.equal(refused.length, 60 - paid);
  t.match(refused[0], {
    status: 429,
    body: {
      blocked: true,
      retryable: true,
      availableAt: /^20/,
      suggestion: /Wait until/,
      policy: { rule: "gas", window: "24h", limit: roomFor(6).replace(/0+$/, "") },
    },
  });
  t.match(
    await spend(ctx, other, payee, "0.0001"),
    { status: 200 },
    "another owner has a separate budget",
  );
  t.match(
    await withdraw(ctx, owner, agents[0]),
    { status: 200 },
    "withdrawals have a separate budget",
  );
  const { rows } = await ctx.database.pool.query<{ over: boolean }>(
    `SELECT g.used + g.held > l.per_day * 1.01 AS over FROM gas_accounts g
       JOIN gas_limits l ON l.chain_id = g.chain_id AND l.name = split_part(g.account, ':', 1)
      WHERE g.account LIKE 'owner:%'`,
  );
  t.same(
    new Set(rows.map(({ over }) => over)),
    new Set([false]),
    "two agents share the owner's budget",
  );
  // Six hours later a part of the daily budget is available again, without waiting for midnight.
  await ctx.database.pool.query("UPDATE gas_accounts SET full_at = full_at - interval '6 hours'");
  t.match(await spend(ctx, agents[1], payee, "0.0001"), { status: 200 }, "it refills evenly");
  await expectGasIsAccounted(t, ctx.database.pool);
});

/** The following tests share an app, but each uses other shares of the budget. */
const own = world(t, `withdrawer=${roomFor(2)},payer=${roomFor(3)},payee=${roomFor(6)}`);

t.test("dust of third parties: refused below the floor, settled at it", async (t) => {
  const ctx = await own;
  const { app, chain } = ctx;
  const [payer] = payers(1);
  if (!payer) throw new Error("no payer");
  await chain.mint(payer.address, usdc);
  const pay = (amount: string): Promise<Body> =>
    signedPayment({ chain, payer, payTo: randomAddress(), amount });
  for (const body of await Promise.all(Array.from({ length: 10 }, () => pay("99")))) {
    t.match(await post(app, "verify", body), {
      isValid: false,
      invalidReason: "amount_below_floor",
    });
    t.match(await post(app, "settle", body), {
      success: false,
      errorReason: "amount_below_floor",
    });
  }
  t.same(await accountOf(ctx, "strangers"), { used: 0n, held: 0n });
  t.match(await post(app, "settle", await pay("100")), { success: true });
  t.ok((await accountOf(ctx, "strangers")).used > 0n);
  t.ok((await accountOf(ctx, `payer:${payer.address.toLowerCase()}`)).used > 0n);
});

t.test("a withdrawal without gas is refused unsigned, with the next time", async (t) => {
  const ctx = await own;
  const owner = await signIn(ctx);
  const agent = await createAgent(ctx, owner, {});
  await ctx.chain.mint(agent.walletAddress, usdc);
  const answers = [];
  for (let index = 0; index < 6; index += 1) answers.push(await withdraw(ctx, owner, agent));
  t.match(answers[0], { status: 200 });
  t.match(answers.at(-1), {
    status: 429,
    body: { code: "gas_budget_exhausted", availableAt: /^20/ },
  });
  await expectGasIsAccounted(t, ctx.database.pool);
});

t.test("one payer or payee cannot use up the budget of others", async (t) => {
  const ctx = await own;
  const { app, chain } = ctx;
  const [greedy, ...others] = payers(21);
  if (!greedy) throw new Error("no payer");
  await chain.mint(
    [greedy, ...others].map(({ address }) => address),
    usdc,
  );
  const shop = randomAddress();
  const bodies = await Promise.all([
    ...Array.from({ length: 10 }, () =>
      signedPayment({ chain, payer: greedy, payTo: randomAddress() }),
    ),
    ...others.map((payer) => signedPayment({ chain, payer, payTo: shop })),
  ]);
  const answers = await Promise.all(bodies.map((body) => post(app, "settle", body)));
  const bySameReason = (from: number, to: number) => {
    const part = answers.slice(from, to);
    const refused = part.filter(({ errorReason }) => errorReason === "gas_budget_exhausted");
    return {
      settled: part.length - refused.length,
      message: String(refused[0]?.["errorMessage"]),
    };
  };
  const payer = bySameReason(0, 10);
  t.ok(payer.settled >= 2 && payer.settled < 10, `the payer: ${payer.settled}`);
  t.match(payer.message, /this payer/);
  const payee = bySameReason(10, 30);
  t.ok(payee.settled >= 5 && payee.settled < 20, `the payee: ${payee.settled}`);
  t.match(payee.message, /this payee/);
  const [fresh] = others;
  if (!fresh) throw new Error("no payer");
  const elsewhere = await signedPayment({ chain, payer: fresh, payTo: randomAddress() });
  t.match(await post(app, "settle", elsewhere), { success: true });
});

t.test("a seller that never settles gets a limited number of cancellations", async (t) => {
  const made = await market(t, {
    configure: (config) => void (config.forcedCancelsPerDay = 3n),
    chainOptions: { blockTimeSeconds: 0.5 },
    script: { onProof: ({ response }) => void response.writeHead(500).end("no") },
    agent: { dailyLimit: "1" },
  });
  const { seller, database, agent } = made;
  const fetches = [];
  for (let round = 0; round < ROUNDS; round += 1)
    fetches.push(
      ...(await Promise.all(
        Array.from({ length: 10 }, (_, n) => made.fetch({ url: `${seller.url}&n=${round}.${n}` })),
      )),
    );
  const canceled = fetches.filter(({ body }) => body["code"] === "upstream_error");
  const lapsing = fetches.filter(({ body }) => body["budgetReturnsAt"] !== undefined);
  t.equal(canceled.length, 3, "the configured number of cancellations");
  t.equal(lapsing.length, ROUNDS * 10 - 3);
  t.match(lapsing[0], {
    status: 504,
    body: { code: "payment_status_unknown", budgetReturnsAt: /^20/ },
  });
  const { rows } = await database.pool.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM settlement_transactions WHERE action = 'cancel'",
  );
  t.same(rows, [{ count: 3 }], "no more than these, whatever the number of fetches");
  const owned = await database.pool.query<{ used: string }>(
    "SELECT used::text FROM gas_accounts g JOIN agents a ON g.account = 'owner:' || a.owner_id WHERE a.id = $1",
    [agent.id],
  );
  t.ok(BigInt(owned.rows[0]?.used ?? 0) > 0n, "they are charged to the owner's gas account");
  await expectGasIsAccounted(t, database.pool);
  // The authorizations expire: the held amounts of the others are released, in budget and gas.
  await database.pool.query("UPDATE payments SET updated_at = now() WHERE agent_id = $1", [
    agent.id,
  ]);
  await made.chain.testClient.increaseTime({ seconds: 180 });
  await until(async () => {
    const left = await database.pool.query("SELECT 1 FROM payments WHERE outstanding LIMIT 1");
    return left.rowCount === 0;
  }, 30_000);
  const { rows: held } = await database.pool.query(
    "SELECT account FROM gas_accounts WHERE held <> 0 AND account NOT LIKE 'cancels:%'",
  );
  t.same(held, []);
  await expectGasIsAccounted(t, database.pool);
});
