// Goal: every limit is exact to one atomic unit for payments through channels: counted is the growth of the signed ceiling, and what
// the owner changes acts on the next voucher.
import { randomUUID } from "node:crypto";
import t, { type Test } from "tap";
import type { Address } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { spendAs } from "../helpers/call.ts";
import { asOwner, createAgent, type NewTestAgent } from "../helpers/owner.ts";
import { isFullTier } from "../helpers/tier.ts";
import { channelIn, channelOf, counted, expectWholeLedger } from "./channel-facts.ts";
import { channelSeller, type ChannelSeller } from "./channel-sellers.ts";
import { market, PAYEE } from "./market.ts";
import { ourFacilitator } from "./stock-sellers.ts";

const OPEN = { channelHeld: "1", channelDelay: 86_400 };
const FUNDS = 1_000_000n;

const made = await market(t, { listen: true, env: { SETTLE_WAIT_MS: "10000" } });
const { app, chain, database, owner } = made;
const facilitator = ourFacilitator(made.baseUrl);

const newAddress = (): Address => privateKeyToAccount(generatePrivateKey()).address;
type SellerOptions = Partial<Parameters<typeof channelSeller>[1]>;

async function sellerOf(t: Test, options: SellerOptions = {}): Promise<ChannelSeller> {
  const seller = await channelSeller(t, { chain, payTo: PAYEE, facilitator, ...options });
  made.config.fetchPrivateOrigins.push(seller.origin);
  return seller;
}

/** An agent with money, and its requests. */
async function buyer(rules: Record<string, unknown>, funds = FUNDS) {
  const agent = await createAgent(made, owner, {
    dailyLimit: "10",
    allowlist: [PAYEE],
    ...OPEN,
    ...rules,
  });
  await chain.mint(agent.walletAddress, funds);
  const fetch = async (body: Record<string, unknown>, headers: Record<string, string> = {}) => {
    const answer = await app.inject({
      method: "POST",
      url: "/api/agents/x402-fetch",
      headers: { ...agent.headers, ...headers },
      payload: JSON.stringify({ detail: "full", ...body }),
    });
    return { status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
  };
  const change = async (body: Record<string, unknown>) => {
    const url = `/api/agents/${agent.id}`;
    const answer = await asOwner(app, owner, { method: "PATCH", url, body });
    if (answer.statusCode !== 200) throw new Error(answer.body);
  };
  return { agent, fetch, change, database };
}
type Buyer = Awaited<ReturnType<typeof buyer>>;

const word = ({ origin }: ChannelSeller, charge?: number) => ({
  url: `${origin}/word${charge === undefined ? "" : `?charge=${charge}`}`,
});

const denied = (code: string) => ({
  status: code === "insufficient_funds" ? 402 : 403,
  body: { code },
});

async function expectPaid(t: Test, { fetch }: Buyer, seller: ChannelSeller, charge?: number) {
  const answer = await fetch(word(seller, charge));
  t.match(answer, { status: 200 }, JSON.stringify(answer.body));
  return channelIn(answer.body);
}

async function expectDenied(t: Test, { fetch, agent }: Buyer, seller: ChannelSeller, code: string) {
  const before = seller.paidRequests;
  const answer = await fetch(word(seller));
  t.match(answer, denied(code), JSON.stringify(answer.body));
  t.equal(seller.paidRequests, before, "the seller gets no voucher");
  const { rows } = await database.pool.query<{ code: string }>(
    "SELECT denial_code AS code FROM payments WHERE agent_id = $1 AND status = 'blocked' ORDER BY updated_at DESC LIMIT 1",
    [agent.id],
  );
  t.match(rows, [{ code }], "the denial is stored");
  return answer;
}

const spend = async (agent: NewTestAgent, amount: string) => {
  const answer = await spendAs(app, agent, { recipient: PAYEE, amount });
  return { status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
};

/**
 * The default tier pays at one limit of each kind here; each of them is exact in `spending/channel-decisions` and
 * `spending/rules-order`.
 */
const LATER = new Set([
  "weekly_limit_exceeded",
  "monthly_limit_exceeded",
  "payee_per_payment_limit_exceeded",
  "payee removed",
  "no channels",
  "shorter delay",
]);
const inTier = ([name]: readonly [string, ...unknown[]]): boolean => isFullTier || !LATER.has(name);

t.test("exact to one unit, in each limit", async (t) => {
  const seller = await sellerOf(t);
  const limits: [string, Record<string, unknown>, Record<string, unknown>][] = [
    ["daily_limit_exceeded", { dailyLimit: "0.002999" }, { dailyLimit: "0.003" }],
    ["weekly_limit_exceeded", { weeklyLimit: "0.002999" }, { weeklyLimit: "0.003" }],
    ["monthly_limit_exceeded", { monthlyLimit: "0.002999" }, { monthlyLimit: "0.003" }],
    ["payment_rate_exceeded", { paymentsPerHour: 2 }, { paymentsPerHour: 3 }],
    [
      "payee_limit_exceeded",
      { allowlist: [{ address: PAYEE, dailyLimit: "0.002999" }] },
      { allowlist: [{ address: PAYEE, dailyLimit: "0.003" }] },
    ],
  ];
  for (const [code, tooLow, enough] of limits.filter(inTier))
    await t.test(code, async (t) => {
      const one = await buyer(tooLow);
      await expectPaid(t, one, seller);
      await expectPaid(t, one, seller);
      await expectDenied(t, one, seller, code);
      await one.change(enough);
      const { id } = await expectPaid(t, one, seller);
      t.match(await channelOf(one, id), { ceiling: 3_000n, charged: 3_000n });
      await expectDenied(t, one, seller, code);
      await expectWholeLedger(t, one);
    });
  const ofOne: [string, Record<string, unknown>, Record<string, unknown>][] = [
    ["per_payment_limit_exceeded", { perPaymentLimit: "0.000999" }, { perPaymentLimit: "0.001" }],
    [
      "payee_per_payment_limit_exceeded",
      { allowlist: [{ address: PAYEE, perPaymentLimit: "0.000999" }] },
      { allowlist: [{ address: PAYEE, perPaymentLimit: "0.001" }] },
    ],
  ];
  for (const [code, tooLow, enough] of ofOne.filter(inTier))
    await t.test(code, async (t) => {
      const one = await buyer(tooLow);
      await expectDenied(t, one, seller, code);
      await one.change(enough);
      await expectPaid(t, one, seller);
      // The ceiling that was not charged is signed again: nothing grows, and the price counts nevertheless.
      await expectPaid(t, one, seller, 0);
      await one.change(tooLow);
      await expectDenied(t, one, seller, code);
    });
});

t.test("vouchers, spends and exact payments share one limit", async (t) => {
  const byChannel = await sellerOf(t);
  const one = await buyer({ dailyLimit: "0.004999" });
  const exact = await sellerOf(t, { price: "5000", exact: "1000" });
  await expectPaid(t, one, byChannel);
  t.match(await spend(one.agent, "0.001"), { status: 200 });
  const paid = await one.fetch(word(exact));
  t.match(paid, { status: 200, body: { paid: true, txHash: /^0x/ } }, JSON.stringify(paid.body));
  t.equal(await counted(one), 3_000n);
  await expectPaid(t, one, byChannel);
  t.match(await spend(one.agent, "0.001"), denied("daily_limit_exceeded"));
  await expectDenied(t, one, byChannel, "daily_limit_exceeded");
  t.match(await spend(one.agent, "0.000999"), { status: 200 });
  t.equal(await counted(one), 4_999n);
  await expectWholeLedger(t, one);
});

t.test("after cheaper charges only the growth counts", async (t) => {
  const seller = await sellerOf(t);
  const one = await buyer({ dailyLimit: "0.0019" });
  await expectPaid(t, one, seller, 100);
  t.equal(await counted(one), 1_000n, "what it could have charged");
  await expectPaid(t, one, seller, 800);
  t.equal(await counted(one), 1_100n);
  const { id } = await expectPaid(t, one, seller, 0);
  t.equal(await counted(one), 1_900n);
  await expectPaid(t, one, seller, 0);
  t.equal(await counted(one), 1_900n, "nothing was charged, so nothing grows");
  await expectPaid(t, one, seller, 1);
  await expectDenied(t, one, seller, "daily_limit_exceeded");
  t.match(await channelOf(one, id), { ceiling: 1_900n, charged: 901n });
  await expectWholeLedger(t, one);
});

t.test("fifty at once, at a limit for ten", async (t) => {
  const seller = await sellerOf(t);
  const one = await buyer({ dailyLimit: "0.010999" });
  const answers = await Promise.all(
    Array.from({ length: 50 }, async (_, index) => {
      for (;;) {
        const answer = await one.fetch(
          { url: `${seller.origin}/word?n=${index}` },
          { "idempotency-key": `n${index}` },
        );
        const { code } = answer.body;
        // A process runs only a limited number of fetches of one agent.
        if (!["agent_busy", "fetch_capacity", "channel_busy"].includes(String(code))) return answer;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }),
  );
  const codes = answers.map(({ status, body }) => (status === 200 ? "paid" : String(body["code"])));
  const count = (wanted: string) => codes.filter((code) => code === wanted).length;
  t.equal(count("paid"), 10, JSON.stringify([...new Set(codes)]));
  t.equal(count("daily_limit_exceeded"), 40);
  t.equal(seller.served, 10);
  await expectWholeLedger(t, one);
  t.equal(await counted(one), 10_000n);
});

t.test("what the owner changes acts on the next voucher", async (t) => {
  const seller = await sellerOf(t, { withdrawDelay: 1_000 });
  const other = newAddress();
  const changes: [string, Record<string, unknown>, string][] = [
    ["pause", { status: "paused" }, "agent_paused"],
    ["payee removed", { allowlist: [other] }, "recipient_not_allowed"],
    ["lowered limit", { dailyLimit: "0.001999" }, "daily_limit_exceeded"],
    ["no channels", { channelHeld: "0" }, "channel_not_allowed"],
    ["shorter delay", { channelDelay: 999 }, "channel_not_allowed"],
    [
      "no channels to the payee",
      { allowlist: [{ address: PAYEE, channelHeld: "0" }] },
      "channel_not_allowed",
    ],
  ];
  for (const [name, change, code] of changes.filter(inTier))
    await t.test(name, async (t) => {
      const one = await buyer({});
      const { id } = await expectPaid(t, one, seller);
      await one.change(change);
      const answer = await expectDenied(t, one, seller, code);
      if (code === "channel_not_allowed")
        t.match(answer.body, { policy: { rule: "channels" } }, JSON.stringify(answer.body));
      t.match(await channelOf(one, id), { ceiling: 1_000n, status: "open" });
    });
  await t.test("a revoked key", async (t) => {
    const one = await buyer({});
    await expectPaid(t, one, seller);
    const url = `/api/agents/${one.agent.id}/keys/${one.agent.keyId}`;
    const gone = await asOwner(app, owner, { method: "DELETE", url });
    t.equal(gone.statusCode, 200, gone.body);
    const before = seller.paidRequests;
    t.match(await one.fetch(word(seller)), { status: 401 });
    t.equal(seller.paidRequests, before);
  });
});

t.test("what is held in channels is exact, in all and for each payee", async (t) => {
  const payee = newAddress();
  const [first, second, third] = [
    await sellerOf(t, { minDeposit: "10000" }),
    await sellerOf(t, { minDeposit: "10000" }),
    await sellerOf(t, { minDeposit: "10000", payTo: payee }),
  ];
  const one = await buyer({
    channelHeld: "0.019999",
    allowlist: [{ address: PAYEE, channelHeld: "0.018999" }, payee],
  });
  t.match(await expectPaid(t, one, first), { balance: "0.018999", charged: "0.001" });
  // 17,999 are held: 10,000 more do not fit either limit.
  await expectDenied(t, one, second, "channel_limit_exceeded");
  await one.change({ channelHeld: "0.1" });
  await expectDenied(t, one, second, "payee_channel_limit_exceeded");
  t.match(await expectPaid(t, one, third), { balance: "0.082001" }, "all that the limit leaves");
  const full = await expectDenied(t, one, second, "channel_limit_exceeded");
  t.match(full.body, { needs: { channelHeld: "0.109" } }, JSON.stringify(full.body));
  const held = "0.109";
  await one.change({ channelHeld: "0.108999", allowlist: [PAYEE, payee] });
  await expectDenied(t, one, second, "channel_limit_exceeded");
  await one.change({ channelHeld: held });
  t.match(await expectPaid(t, one, second), { balance: "0.01" }, "exactly the least");
  await expectWholeLedger(t, one);
});

t.test("the wallet pays the deposit", async (t) => {
  const seller = await sellerOf(t, { minDeposit: "10000" });
  const one = await buyer({}, 9_999n);
  const answer = await expectDenied(t, one, seller, "insufficient_funds");
  t.match(answer.body, { required: "0.01", balance: "0.009999" });
  await chain.mint(one.agent.walletAddress, 1n);
  t.match(
    await expectPaid(t, one, seller),
    { balance: "0.01" },
    "a smaller deposit, of all it has",
  );
  t.equal(await chain.usdcOf(one.agent.walletAddress), 0n);
  for (let n = 0; n < 9; n += 1) await expectPaid(t, one, seller);
  await expectDenied(t, one, seller, "insufficient_funds");
  t.equal(await counted(one), 10_000n);
  await expectWholeLedger(t, one);
});

t.test("maxAmount and a dry run", async (t) => {
  const seller = await sellerOf(t);
  const one = await buyer({});
  t.match(await one.fetch({ ...word(seller), maxAmount: "0.000999" }), denied("price_exceeds_max"));
  const quote = await one.fetch({ ...word(seller), dryRun: true });
  t.match(
    quote,
    { status: 200, body: { price: "0.001", paid: false } },
    JSON.stringify(quote.body),
  );
  const { rows } = await database.pool.query("SELECT 1 FROM channels WHERE agent_id = $1", [
    one.agent.id,
  ]);
  t.equal(rows.length, 0, "nothing is reserved");
  t.equal(await counted(one), 0n);
  t.match(await one.fetch({ ...word(seller), maxAmount: "0.001" }), { status: 200 });
  await one.fetch({ ...word(seller), dryRun: true });
  t.equal(await counted(one), 1_000n);
});

t.test("the choice between an exact payment and a channel", async (t) => {
  const isChannel = async (rules: Record<string, unknown>, options: SellerOptions) => {
    const one = await buyer(rules);
    const answer = await one.fetch(word(await sellerOf(t, options)));
    t.match(answer, { status: 200, body: { paid: true } }, JSON.stringify(answer.body));
    return answer.body["channel"] !== undefined;
  };
  t.equal(await isChannel({}, { price: "1000", exact: "1000" }), true, "equal prices");
  t.equal(await isChannel({}, { price: "1000", exact: "999" }), false, "cheaper exact");
  t.equal(await isChannel({}, { price: "999", exact: "1000" }), true, "cheaper channel");
  const none = { channelHeld: "0" };
  t.equal(await isChannel(none, { price: "999", exact: "1000" }), false, "not allowed");
  const short = { channelHeld: "0.000998" };
  t.equal(
    await isChannel(short, { price: "999", exact: "1000" }),
    false,
    "too little held allowed",
  );
  const one = await buyer(none);
  await expectDenied(t, one, await sellerOf(t), "channel_not_allowed");
});

t.test("payments through MCP count the same", async (t) => {
  const seller = await sellerOf(t);
  const one = await buyer({ dailyLimit: "0.001999" });
  const call = async () => {
    const answer = await app.inject({
      method: "POST",
      url: "/mcp",
      headers: { ...one.agent.headers, accept: "application/json, text/event-stream" },
      payload: JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        method: "tools/call",
        params: {
          name: "x402_fetch",
          arguments: { ...word(seller), idempotencyKey: randomUUID() },
        },
      }),
    });
    return answer.body;
  };
  t.match(await call(), /word/);
  t.match(await call(), /daily_limit_exceeded/);
  t.equal(await counted(one), 1_000n);
});
