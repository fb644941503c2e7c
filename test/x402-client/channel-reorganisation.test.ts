// Goal: a reorganisation removes the deposit of a channel: the next payment shows it again, so the seller has its money, and nothing is
// counted twice.
// Tier: full (a chain of its own, and times until a deposit expires).
import { randomUUID } from "node:crypto";
import t from "tap";
import { mineEvery, replaceAfter } from "../helpers/blocks.ts";
import { stockFacilitator } from "../helpers/stock-channels.ts";
import { until } from "../helpers/until.ts";
import { channelIn, channelOf, counted, expectWholeLedger, onChain } from "./channel-facts.ts";
import { reconcile } from "../reconciliation/world.ts";
import { channelSeller } from "./channel-sellers.ts";
import { market, PAYEE } from "./market.ts";

const CHAIN_ID = 5042002;

t.test("a deposit that the seller's side made is removed", { timeout: 60_000 }, async (t) => {
  const made = await market(t, {
    timings: { reconcileChannelsMs: 200 },
    env: { SETTLE_WAIT_MS: "10000", [`CONFIRMATIONS_${CHAIN_ID}`]: "50" },
    agent: { channelHeld: "1", channelDelay: 86_400 },
  });
  const { chain, database, agent } = made;
  const [, , , account] = chain.accounts;
  if (!account) throw new Error("no account");
  // Of somebody else: it does not send the deposit again by itself.
  const facilitator = stockFacilitator({ ...chain, relayer: account });
  const seller = await channelSeller(t, { chain, payTo: PAYEE, facilitator });
  made.config.fetchPrivateOrigins.push(seller.origin);
  const buy = async () => {
    const answer = await made.fetch(
      { url: `${seller.origin}/word` },
      { "idempotency-key": randomUUID() },
    );
    t.match(answer, { status: 200, body: { paid: true } }, answer.text);
    return channelIn(answer.body);
  };
  const deposits = async () => {
    const { rows } = await database.pool.query<{ status: string; amount: string }>(
      "SELECT status, amount::text FROM payments WHERE agent_id = $1 AND kind = 'deposit'",
      [agent.id],
    );
    return rows;
  };
  const isDeposit = (status: string) => () =>
    until(async () => (await deposits())[0]?.status === status, 20_000);

  const before = await chain.publicClient.getBlockNumber();
  const { id } = await buy();
  await isDeposit("settled")();
  await replaceAfter(chain, before);
  // The engine looks when there are new blocks.
  mineEvery(t, chain, 300);
  t.match(await onChain(made, id), { balance: 0n }, "removed");
  await isDeposit("submitted")();
  t.equal(await counted(made), 1_000n, "the voucher is with the seller all the same");

  t.match(await buy(), { id, charged: "0.002", balance: "0.1" });
  t.match(await onChain(made, id), { balance: 100_000n }, "the same deposit once more");
  await isDeposit("settled")();
  t.match(await deposits(), [{ status: "settled", amount: "100000" }], "one row");
  t.match(await channelOf(made, id), { status: "open", charged: 2_000n, ceiling: 2_000n });
  t.equal(await counted(made), 2_000n);
  await seller.collect();
  t.match(await onChain(made, id), { claimed: 2_000n }, "all of it can be claimed");
  await expectWholeLedger(t, made);

  // Now reconciliation compares the channel as of blocks that have the deposit once more.
  await chain.testClient.mine({ blocks: 60 });
  const reads = async (sql: string) => (await database.pool.query(sql)).rows;
  await until(
    async () =>
      (await reads("SELECT 1 FROM payments WHERE kind = 'deposit' AND outstanding")).length === 0,
  );
  const redone = await chain.publicClient.getBlockNumber({ cacheTime: 0 });
  await chain.testClient.mine({ blocks: 60 });
  await until(async () => {
    await reconcile(made);
    const { length } = await reads(
      `SELECT 1 FROM ledger_cursors c, channels h WHERE c.next_block > ${redone} AND h.prove_at > now()`,
    );
    return length === 1;
  }, 20_000);
  t.same(await reads("SELECT kind FROM ledger_differences WHERE kind LIKE 'channel%'"), []);
});
