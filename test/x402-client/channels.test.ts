// Goal: an agent pays sellers through payment channels without knowing: one deposit, vouchers after it, and every limit exact.
import { randomUUID } from "node:crypto";
import t from "tap";
import { CHANNELS, CHANNELS_ABI } from "../helpers/batch-settlement.ts";
import { stockFacilitator } from "../helpers/stock-channels.ts";
import { until } from "../helpers/until.ts";
import { channelSeller } from "./channel-sellers.ts";
import { market, PAYEE, type Market } from "./market.ts";
import { ourFacilitator } from "./stock-sellers.ts";

const RULES = { channelHeld: "1", channelDelay: 86_400 };

interface Wallet {
  balance: bigint;
  claimed: bigint;
}

async function onChain({ chain }: Market, id: string): Promise<Wallet> {
  const [balance, claimed] = await chain.publicClient.readContract({
    address: CHANNELS,
    abi: CHANNELS_ABI,
    functionName: "channels",
    args: [id as `0x${string}`],
  });
  return { balance, claimed };
}

const channelIn = (body: Record<string, unknown>) =>
  body["channel"] as { id: string; balance: string; charged: string };

async function counted({ database, agent }: Market): Promise<string> {
  const { rows } = await database.pool.query<{ sum: string }>(
    "SELECT window_sum::text AS sum FROM agents WHERE id = $1",
    [agent.id],
  );
  return rows[0]?.sum ?? "";
}

t.test("an agent pays through channels", async (t) => {
  const made = await market(t, {
    listen: true,
    env: { SETTLE_WAIT_MS: "10000", CONFIRMATIONS_31337: "1" },
    agent: { dailyLimit: "2", ...RULES },
  });
  const { chain, agent } = made;
  const facilitators = {
    ours: ourFacilitator(made.baseUrl),
    reference: stockFacilitator(chain),
  };
  for (const [whose, facilitator] of Object.entries(facilitators))
    await t.test(`of a stock seller with ${whose} facilitator`, async (t) => {
      const seller = await channelSeller(t, { chain, payTo: PAYEE, facilitator });
      made.config.fetchPrivateOrigins.push(seller.origin);
      const url = `${seller.origin}/word`;
      const before = { counted: BigInt(await counted(made)), payee: await made.balanceOf(PAYEE) };
      const first = await made.fetch({ url, detail: "short" });
      t.match(
        first,
        {
          status: 200,
          body: {
            paid: true,
            amountPaid: "0.001",
            txHash: null,
            data: { word: 1 },
            channel: { balance: "0.1", charged: "0.001" },
          },
        },
        JSON.stringify(first.body),
      );
      for (const charge of [700, 0, 1_000])
        t.match((await made.fetch({ url: `${url}?charge=${charge}` })).body, {
          paid: charge > 0,
          amountPaid: charge === 0 ? "0" : charge === 700 ? "0.0007" : "0.001",
        });
      const last = await made.fetch({ url });
      t.match(channelIn(last.body), { balance: "0.1", charged: "0.0037" }, "the seller's charges");
      const { id } = channelIn(last.body);
      t.match(await onChain(made, id), { balance: 100_000n }, "one deposit for all");
      t.equal(
        BigInt(await counted(made)) - before.counted,
        3_700n,
        "spent is the growth of the ceiling, which reused what was not charged",
      );
      await seller.collect();
      t.equal((await made.balanceOf(PAYEE)) - before.payee, 3_700n);
    });

  await t.test("the ledger agrees with the chain", async (t) => {
    const head = await chain.publicClient.getBlockNumber();
    await until(async () => {
      const { rows } = await made.database.pool.query("SELECT 1 FROM payments WHERE outstanding");
      return rows.length === 0;
    });
    const { rows } = await made.database.pool.query<Record<string, string>>(
      `SELECT kind, status, count(*)::text AS n, sum(amount)::text AS amount, sum(charged)::text AS charged
         FROM payments WHERE agent_id = $1 GROUP BY 1, 2 ORDER BY 1, 2`,
      [agent.id],
    );
    t.match(rows, [
      { kind: "deposit", status: "settled", n: "2", amount: "200000" },
      { kind: "x402", status: "settled", n: "10", amount: "7400", charged: "7400" },
    ]);
    t.equal(await made.balanceOf(agent.walletAddress), 5_000_000n - 200_000n);
    await until(async () => {
      const answer = await made.app.inject({ url: "/api/overview", headers: made.owner.headers });
      const [state] = answer.json<{ ledger: { equalsChain: boolean; asOfBlock: string }[] }>()
        .ledger;
      return state?.equalsChain === true && BigInt(state.asOfBlock) >= head;
    });
    const { rows: differences } = await made.database.pool.query(
      "SELECT * FROM ledger_differences",
    );
    t.same(differences, []);
  });

  await t.test("the same key pays once, and the same answer is replayed", async (t) => {
    const seller = await channelSeller(t, { chain, payTo: PAYEE, facilitator: facilitators.ours });
    made.config.fetchPrivateOrigins.push(seller.origin);
    const key = { "idempotency-key": randomUUID() };
    const url = `${seller.origin}/word`;
    const first = await made.fetch({ url }, key);
    const again = await made.fetch({ url }, key);
    t.equal(again.text, first.text);
    t.match(again.headers, { "idempotent-replayed": "true" });
    t.equal(seller.served, 1);
  });

  await t.test("only a deposit needs the wallet's balance", async (t) => {
    const { chainReads } = made.app;
    const read = t.capture(chainReads, "balances", chainReads.balances.bind(chainReads));
    const seller = await channelSeller(t, { chain, payTo: PAYEE, facilitator: facilitators.ours });
    made.config.fetchPrivateOrigins.push(seller.origin);
    const url = `${seller.origin}/word`;
    const paid = async () => {
      t.match(await made.fetch({ url }), { status: 200, body: { paid: true } });
      return read().filter(({ args: [, wallets] }) =>
        wallets.includes(agent.walletAddress.toLowerCase() as `0x${string}`),
      ).length;
    };
    t.equal(await paid(), 1, "the deposit");
    t.equal((await paid()) + (await paid()), 0, "its vouchers");
  });

  await t.test("requests at the same time take turns, and use one channel", async (t) => {
    const seller = await channelSeller(t, { chain, payTo: PAYEE, facilitator: facilitators.ours });
    made.config.fetchPrivateOrigins.push(seller.origin);
    const url = `${seller.origin}/word`;
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, index) => made.fetch({ url: `${url}?n=${index}` })),
    );
    t.same(
      answers.map(({ status }) => status),
      answers.map(() => 200),
      JSON.stringify(answers.map(({ body }) => body)),
    );
    t.equal(new Set(answers.map(({ body }) => channelIn(body).id)).size, 1);
    t.same(
      answers
        .map(({ body }) => channelIn(body).charged)
        .toSorted()
        .at(-1),
      "0.008",
    );
  });
});
