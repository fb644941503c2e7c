// Goal: no seller, third party or changed row makes the wallet sign for another contract, allow more than its limits, or lose track of what it signed.
import { DatabaseError } from "pg";
import t, { type Test } from "tap";
import { encodeFunctionData, parseAbi, zeroAddress, type Address, type Hex } from "viem";
import type { SignedAuthorization } from "../../server/core/authorization.ts";
import { MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import { Allowances, type AllowancesDeps } from "../../server/plugins/allowances/allowances.ts";
import { isUnderWay } from "../../server/plugins/allowances/store.ts";
import { callApi } from "../helpers/call.ts";
import { createAgent } from "../helpers/owner.ts";
import { ERC20_ABI, EXACT_PROXY, PERMIT2, UPTO_PROXY } from "../helpers/permit2.ts";
import { until } from "../helpers/until.ts";
import { market, PAYEE, type Market } from "./market.ts";
import { allowanceOf, settlePermit2, type Permit2Proof } from "./permit2-sellers.ts";

const PERMIT_ABI = parseAbi([
  "function permit(address owner, address spender, uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s)",
]);

async function world(t: Test) {
  const made = await market(t, {
    env: { SETTLE_WAIT_MS: "6000", CONFIRMATIONS_5042002: "1" },
    agent: { dailyLimit: "1", perPaymentLimit: "0.1" },
  });
  const { chain, seller, database } = made;
  const [thirdParty] = chain.accounts;
  if (!thirdParty) throw new Error("no account");
  const upto = (extra: object = {}, over: object = {}) =>
    seller.entry({
      scheme: "upto",
      amount: "50000",
      extra: { name: "USDC", version: "2", facilitatorAddress: thirdParty.address, ...extra },
      ...over,
    });
  const exact = (extra: object = {}, over: object = {}) =>
    seller.entry({
      extra: { name: "USDC", version: "2", assetTransferMethod: "permit2", ...extra },
      ...over,
    });
  /** Settles each proof, upto payments with 5000 of the maximum. One account settles them one after the other. */
  let last: Promise<unknown> = Promise.resolve();
  const honest: NonNullable<typeof seller.script.onProof> = async ({ response, proof }) => {
    const shown = proof as unknown as Permit2Proof;
    const settled = last.then(() => settlePermit2(chain, thirdParty, shown, 5_000n));
    last = settled.catch(() => undefined);
    const transaction = await settled;
    response.writeHead(200, seller.receipt({ transaction })).end("data");
  };
  const offer = (entry: Record<string, unknown>) => {
    seller.script = { terms: () => entry, onProof: honest };
  };
  const allowances = async () =>
    (
      await database.pool.query<{ status: string; value: string; by_other: boolean }>(
        "SELECT status, value::text, by_other FROM settlements WHERE kind = 'allowance' ORDER BY created_at",
      )
    ).rows;
  return { made, thirdParty, upto, exact, offer, allowances };
}

/** A third party saw our permit and relays it first. */
async function relayPermit({ chain }: Market, permit: SignedAuthorization): Promise<void> {
  const [thirdParty] = chain.accounts;
  if (!thirdParty) throw new Error("no account");
  const { from, to, value, validBefore, signature } = permit;
  const word = (at: number): Hex => `0x${signature.slice(at, at + 64)}`;
  const hash = await chain.walletClient(thirdParty).writeContract({
    address: chain.usdc,
    abi: PERMIT_ABI,
    functionName: "permit",
    args: [
      from,
      to,
      value,
      validBefore - 1n,
      Number.parseInt(signature.slice(130), 16),
      word(2),
      word(66),
    ],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
}

/** Sends a transaction of the wallet itself, bypassing the service. */
async function asWallet({ chain }: Market, wallet: Address, data: Hex): Promise<void> {
  await chain.testClient.impersonateAccount({ address: wallet });
  await chain.testClient.setBalance({ address: wallet, value: 10n ** 18n });
  const params = [{ from: wallet, to: chain.usdc, data }];
  const hash = await chain.testClient.request({ method: "eth_sendTransaction", params } as never);
  await chain.publicClient.waitForTransactionReceipt({ hash });
}

const lose = (made: Market, wallet: Address, value: bigint): Promise<void> =>
  asWallet(
    made,
    wallet,
    encodeFunctionData({ abi: ERC20_ABI, functionName: "approve", args: [PERMIT2, value] }),
  );

t.test("hostile terms of a seller", async (t) => {
  const { made, thirdParty, upto, exact, offer, allowances } = await world(t);
  const { seller } = made;

  await t.test("another contract or an invalid facilitator is refused by name", async (t) => {
    const cases: [Record<string, unknown>, RegExp][] = [
      [exact({ spender: thirdParty.address }), /extra\.spender .* is not the contract/],
      [exact({ proxy: UPTO_PROXY }), /extra\.proxy .* is not the contract/],
      [upto({ proxyAddress: EXACT_PROXY }), /extra\.proxyAddress .* is not the contract/],
      [upto({ verifyingContract: thirdParty.address }), /extra\.verifyingContract/],
      [upto({ assetTransferMethod: "eip3009" }), /transfer method "eip3009"/],
      [upto({ facilitatorAddress: zeroAddress }), /facilitatorAddress .* zero address/],
      [upto({ facilitatorAddress: MULTICALL3_ADDRESS }), /anyone can use/],
      [upto({ facilitatorAddress: undefined }), /facilitatorAddress .* must be 0x/],
    ];
    for (const [entry, why] of cases) {
      offer(entry);
      const answer = await made.fetch({ url: seller.url });
      t.match(answer.body, { code: "unsupported_payment_requirements" }, String(why));
      const { reasons } = answer.body["thirdParty"] as { reasons: string[] };
      t.match(reasons.join(), why);
    }
    t.equal(seller.proofs.length, 0, "nothing was signed");
  });

  await t.test("a maximum is checked as if it were charged", async (t) => {
    offer(upto({}, { amount: "100001" }));
    t.match(await made.fetch({ url: seller.url }), {
      status: 403,
      body: { code: "per_payment_limit_exceeded" },
    });
    offer(upto());
    t.match((await made.fetch({ url: seller.url, maxAmount: "0.049999" })).body["code"], /max/);
    t.same(await allowances(), [], "no allowance was granted for a refused payment");
  });

  await t.test("the seller's token name and timeout are not used for signing", async (t) => {
    offer(upto({ name: "Evil", version: "9" }, { maxTimeoutSeconds: 10_000_000 }));
    const answer = await made.fetch({ url: seller.url });
    t.match(answer, { status: 200, body: { receipt: { amount: "0.005", maximum: "0.05" } } });
    const { permit2Authorization: signed } = (seller.proofs.at(-1) as unknown as Permit2Proof)
      .payload;
    t.equal(signed.spender, UPTO_PROXY);
    t.ok(Number(signed.deadline) <= Date.now() / 1_000 + 121, "two minutes at most");
    t.match(await allowances(), [{ status: "settled", value: "1000000" }], "a day's limit");
    t.equal(await allowanceOf(made), 995_000n);
  });

  await t.test("a seller that collects and fails is reported with its amount", async (t) => {
    offer(upto());
    seller.script.onProof = async ({ response, proof }) => {
      const shown = proof as unknown as Permit2Proof;
      await settlePermit2(made.chain, thirdParty, shown, 6_000n).catch(() => undefined);
      response.writeHead(500).end("no");
    };
    t.match(await made.fetch({ url: seller.url }), {
      status: 502,
      body: { code: "paid_upstream_failed", amountPaid: "0.006", txHash: /^0x/ },
    });
  });

  await t.test("a seller that fails: the budget is reserved until the deadline", async (t) => {
    const before = await made.reserved();
    offer(upto({}, { maxTimeoutSeconds: 100 }));
    seller.script.onProof = ({ response }) => void response.writeHead(500).end("no");
    const key = { "idempotency-key": "fails" };
    const failed = await made.fetch({ url: seller.url }, key);
    t.match(failed, {
      status: 504,
      body: { code: "payment_status_unknown", delivered: false, budgetReturnsAt: /Z$/ },
    });
    t.match(failed.body["detail"], /Purser cannot cancel this kind of payment/);
    t.equal(await made.reserved(), "0.05");
    await made.chain.testClient.increaseTime({ seconds: 130 });
    await made.chain.testClient.mine({ blocks: 2 });
    await until(async () => (await made.reserved()) === before, 15_000);
    t.match(
      await made.fetch({ url: seller.url }, key),
      { body: { code: "upstream_error", paid: false } },
      "the same key returns that nothing was paid",
    );
  });
});

t.test("the allowance", async (t) => {
  const { made, thirdParty, exact, offer, allowances } = await world(t);
  const { app, seller, database, agent } = made;
  const original = app.custody.signAllowance.bind(app.custody);
  t.teardown(() => (app.custody.signAllowance = original));

  await t.test("no allowance without the owner's signed policy", async (t) => {
    offer(exact());
    await database.pool.query("UPDATE agents SET daily_limit = 900000000 WHERE id = $1", [
      agent.id,
    ]);
    t.match(await made.fetch({ url: seller.url }), { body: { code: "policy_not_signed" } });
    await database.pool.query("UPDATE agents SET daily_limit = 1000000 WHERE id = $1", [agent.id]);
    t.same(await allowances(), []);
    const policy = { kind: "policy" as const };
    const payment = (scheme: object) => ({
      authorization: {
        chainId: made.chain.chainId,
        asset: made.chain.usdc,
        from: agent.walletAddress,
        to: PAYEE,
        value: 1_000n,
        validAfter: 0n,
        validBefore: BigInt(Math.floor(Date.now() / 1_000) + 60),
        nonce: `permit2:0x${"7".repeat(64)}` as const,
        terms: { scheme: "exact-permit2" as const },
        ...scheme,
      },
      cover: policy,
    });
    const wanted = { count: 0n, deadline: BigInt(Math.floor(Date.now() / 1_000) + 60) };
    const sign = (scheme: object, value: bigint, more = {}) =>
      original(agent.id, payment(scheme), { ...wanted, value, ...more });
    t.equal((await sign({}, 1_000_001n)).value, 1_000_000n, "never more than the daily limit");
    await t.rejects(sign({}, 999n), { code: "service_unavailable" }, "less than the payment");
    await t.rejects(sign({ value: 100_001n }, 200_000n), { code: "service_unavailable" });
    await t.rejects(sign({ to: thirdParty.address }, 2_000n), "not on the list");
    await t.rejects(
      sign({ terms: undefined, nonce: `0x${"7".repeat(64)}` }, 2_000n),
      /no allowance/,
    );
    await t.rejects(sign({}, 2_000n, { deadline: wanted.deadline + 9_999n }), /too late/);
    await t.rejects(
      original(
        agent.id,
        { ...payment({}), cover: { kind: "approval", approvalId: "apr_1" } },
        { ...wanted, value: 2_000n },
      ),
      { code: "policy_not_signed" },
    );
    const low = {
      scheme: "upto",
      maximum: "500000",
      facilitator: thirdParty.address.toLowerCase(),
    };
    await t.rejects(sign({ terms: low }, 600_000n), { code: "service_unavailable" }, "its maximum");
  });

  await t.test("a third party relays our permit first", async (t) => {
    offer(exact());
    app.custody.signAllowance = async (...args) => {
      const permit = await original(...args);
      await relayPermit(made, permit);
      return permit;
    };
    t.match(await made.fetch({ url: seller.url }), { status: 200, body: { paid: true } });
    t.match(await allowances(), [{ status: "settled", by_other: true }]);
  });

  await t.test("the token's permit nonce moved meanwhile", async (t) => {
    await lose(made, agent.walletAddress, 0n);
    app.custody.signAllowance = async (id, payment, wanted) => {
      await relayPermit(made, await original(id, payment, { ...wanted, value: 20_000n }));
      return original(id, payment, wanted);
    };
    t.match(await made.fetch({ url: seller.url }), { status: 200, body: { paid: true } });
    const [, moved] = await allowances();
    t.match(moved, { status: "failed" }, "it became useless, and has ended");
    app.custody.signAllowance = original;
  });

  await t.test("ten payments at once raise the allowance once", async (t) => {
    await lose(made, agent.walletAddress, 0n);
    const before = (await allowances()).length;
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, index) => made.fetch({ url: `${seller.url}&n=${index}` })),
    );
    t.ok(
      answers.every(({ status }) => status === 200),
      JSON.stringify(answers.find(({ status }) => status !== 200)?.body),
    );
    t.equal((await allowances()).length - before, 1);
  });

  await t.test("a payment reserved during the raise is counted in it once", async (t) => {
    await lose(made, agent.walletAddress, 0n);
    const { limits } = app;
    const of = limits.of.bind(limits);
    const before = (await allowances()).length;
    const open = async () =>
      (await database.pool.query<{ nonce: string }>("SELECT nonce FROM payments WHERE outstanding"))
        .rows;
    let other: Promise<unknown> | undefined;
    limits.of = async (...args) => {
      const [first] = await open();
      // Another payment is reserved before the one that raises the allowance has read the limits.
      if (!first) return of(...args);
      limits.of = of;
      app.custody.signAllowance = async (id, payment, wanted) => {
        if (payment.authorization.nonce !== first.nonce)
          await until(async () => (await allowances()).length > before);
        return original(id, payment, wanted);
      };
      other = made.fetch({ url: `${seller.url}&n=meanwhile` });
      await until(async () => (await open()).length === 2);
      return of(...args);
    };
    t.match(await made.fetch({ url: `${seller.url}&n=raises` }), { status: 200 });
    t.match(await other, { status: 200 });
    app.custody.signAllowance = original;
    t.equal(
      await allowanceOf(made),
      (await of(agent.id))?.remainingAtomic,
      "exactly what the daily limit still allows",
    );
  });

  await t.test("a call that is overtaken while it signs sends no second permit", async (t) => {
    await lose(made, agent.walletAddress, 0n);
    const before = (await allowances()).length;
    let isSigning = false;
    let overtake = (): void => undefined;
    const isOvertaken = new Promise<void>((resolve) => (overtake = resolve));
    app.custody.signAllowance = async (...args) => {
      app.custody.signAllowance = original;
      const [id, payment, wanted] = args;
      const permit = await original(id, payment, { ...wanted, deadline: wanted.deadline - 1n });
      isSigning = true;
      await isOvertaken;
      return permit;
    };
    const slow = made.fetch({ url: `${seller.url}&n=slow` });
    await until(() => isSigning);
    t.match(await made.fetch({ url: `${seller.url}&n=quick` }), { status: 200 });
    overtake();
    t.match(await slow, { status: 200, body: { paid: true } });
    t.match((await allowances()).slice(before), [{ status: "settled" }]);
    t.equal((await allowances()).length - before, 1);
  });

  await t.test("a payment left open past its deadline needs no allowance", async (t) => {
    await lose(made, agent.walletAddress, 0n);
    // Older than a day: the limits no longer count it.
    await database.pool.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce, valid_before, created_at)
       SELECT agent_id, 'pay_stuck', kind, 'submitted', chain_id, asset, counterparty, 900000, $2,
              extract(epoch FROM now())::bigint - 90000, now() - interval '25 hours'
         FROM payments WHERE agent_id = $1 LIMIT 1`,
      [agent.id, `permit2:0x${"9".repeat(64)}`],
    );
    const answer = await made.fetch({ url: `${seller.url}&n=stuck` });
    t.match(answer, { status: 200, body: { paid: true } }, JSON.stringify(answer.body));
    await database.pool.query("DELETE FROM payments WHERE id = 'pay_stuck'");
  });

  await t.test("a failed raise is not repeated at once", async (t) => {
    await lose(made, agent.walletAddress, 0n);
    const { length } = await allowances();
    // The token accepts permit nonces only in order.
    app.custody.signAllowance = (id, payment, wanted) =>
      original(id, payment, { ...wanted, count: wanted.count + 5n });
    const answer = await made.fetch({ url: `${seller.url}&n=futile` });
    app.custody.signAllowance = original;
    t.match(answer, {
      status: 503,
      body: { code: "service_unavailable", detail: /not raised in time \(The token refuses/ },
    });
    t.equal((await allowances()).length, length + 1);
    t.match(await made.fetch({ url: `${seller.url}&n=after` }), { status: 200 });
  });

  await t.test("the owner sees the allowance, and archiving the agent revokes it", async (t) => {
    const detail = async () =>
      (await app.inject({ url: `/api/agents/${agent.id}`, headers: made.owner.headers })).json<{
        allowances: { spender: string; network: string; amount: string }[];
      }>().allowances;
    const left = await allowanceOf(made);
    t.ok(left > 0n);
    t.match(await detail(), [{ spender: PERMIT2, network: "eip155:5042002" }]);
    const held = await made.balanceOf(agent.walletAddress);
    await asWallet(
      made,
      agent.walletAddress,
      encodeFunctionData({
        abi: parseAbi(["function transfer(address to, uint256 value)"]),
        functionName: "transfer",
        args: [thirdParty.address, held],
      }),
    );
    const archived = await callApi(app, made.owner, "POST", `/api/agents/${agent.id}/archive`);
    t.equal(archived.statusCode, 200, archived.body);
    await app.allowances.revokeArchived();
    await until(async () => (await allowanceOf(made)) === 0n, 15_000);
    t.match((await allowances()).at(-1), { value: "0" });
    await until(async () => (await allowances()).at(-1)?.status === "settled", 15_000);
    const { length } = await allowances();
    await app.allowances.revokeArchived();
    t.equal((await allowances()).length, length, "once");
    const other = await createAgent(made, made.owner, { allowlist: [PAYEE] });
    const answer = await app.inject({
      url: `/api/agents/${other.id}`,
      headers: made.owner.headers,
    });
    t.same(answer.json<{ allowances: unknown[] }>().allowances, []);
  });
});

t.test("allowances of many archived agents are read with bounded parallelism", async (t) => {
  const one = { chainId: 1, asset: PAYEE, from: PAYEE, spender: PERMIT2 as Address };
  const wallets = Array.from({ length: 30 }, (_, index) => ({ ...one, agentId: `agt_${index}` }));
  const counts = { reads: 0, atOnce: 0, most: 0 };
  const allowances = new Allowances({
    store: {
      newest: async () => undefined,
      promised: async () => 0n,
      toRevoke: async () => wallets,
    },
    read: async () => {
      counts.reads += 1;
      counts.most = Math.max(counts.most, (counts.atOnce += 1));
      await new Promise((resolve) => setTimeout(resolve, 5));
      counts.atOnce -= 1;
      return { atomic: 0n, count: 0n, isThere: true, blockNumber: 1n, timestampSeconds: 1n };
    },
  } as Pick<AllowancesDeps, "read" | "store"> as AllowancesDeps);
  await allowances.revokeArchived();
  t.equal(counts.reads, 30);
  t.ok(counts.most > 1 && counts.most < 30, `${counts.most} in parallel`);
  await allowances.revokeArchived();
  t.equal(counts.reads, 30, "a wallet seen at zero is not read again every minute");
  const violation = (constraint: string) =>
    Object.assign(new DatabaseError("no", 1, "error"), { code: "23505", constraint });
  t.ok(isUnderWay(violation("settlements_one_allowance_idx")));
  t.notOk(isUnderWay(violation("settlements_pkey")), "a violation of another index");
});
