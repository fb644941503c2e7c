// Goal: a payment removed by a reorganisation is noticed, corrected in ledger and window, rebroadcast from its stored bytes, settled anew and reported; and nothing is reported before the network's inclusion depth.
import t, { type Test } from "tap";
import { replaceNewest } from "../helpers/blocks.ts";
import { testChain, withOwnAccounts, type TestChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import { BRISK, randomAddress, request, startEngine, authorize } from "../helpers/engine.ts";
import { walletWithLedger } from "../helpers/engine-ledger.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

let onDemand: TestChain;

t.before(async () => {
  onDemand = await testChain(t);
  await onDemand.testClient.setAutomine(false);
});

async function world(t: Test, depths: { confirmations: number; inclusionDepth: number }) {
  const chain = await withOwnAccounts(onDemand);
  const database = await testDatabase(t);
  const node = await startEngine(t, {
    databaseUrl: database.url,
    chain,
    timings: BRISK,
    ...depths,
  });
  const wallet = await walletWithLedger(chain, database);
  await chain.testClient.mine({ blocks: 5 });
  const to = randomAddress();
  const balance = () => chain.usdcOf(to);
  const pool = () => chain.testClient.getTxpoolStatus();
  const arrived = () => until(async () => (await pool()).pending === 1, 15_000);
  const mine = (blocks: number) => chain.testClient.mine({ blocks });
  const reorganise = (depth: number) => replaceNewest(chain, depth);
  const row = async (id: string) =>
    (await database.pool.query("SELECT * FROM settlements WHERE id = $1", [id])).rows[0];
  return { chain, database, node, wallet, to, balance, arrived, mine, reorganise, row };
}

const deep = { confirmations: 3, inclusionDepth: 1 };

t.test("reported at inclusion, then removed", { timeout: 60_000 }, async (t) => {
  const { chain, database, node, wallet, to, balance, arrived, mine, reorganise, row } =
    await world(t, deep);
  const wanted = await wallet.spend(to);
  await node.engine.settlement.accept(node.pool, wanted);
  await arrived();
  await mine(1);
  const outcome = await node.engine.settlement.wait(wanted.id, 10_000);
  t.equal(outcome.status, "settled", "one block is enough for the report");
  t.match(await row(wanted.id), { status: "settled", final_at: null, proof: { kind: "receipt" } });
  t.match(await wallet.ledger(wanted.id), {
    status: "settled",
    final_at: null,
    window_sum: "1000",
  });

  await reorganise(1);
  t.equal(await balance(), 0n, "the reorganised chain does not contain it");
  await until(async () => (await row(wanted.id)).status === "submitted", 15_000);
  t.match(
    await wallet.ledger(wanted.id),
    { status: "submitted", tx_hash: outcome.txHash, settled_at: null, window_sum: "1000" },
    "neither paid nor released",
  );
  // The row is visible before the engine has received the response to its COMMIT.
  await until(() => node.corrections.length > 0);
  t.same(node.corrections, ["settled_to_open"], node.logText());
  t.ok(
    node.logs.some(
      ({ level, message }) => level === "error" && /reorganisation removed/.test(message),
    ),
  );
  const audit = await database.pool.query(
    "SELECT action, body::json->'before' AS before, body::json->'after' AS after FROM audit_log WHERE agent_id IS NOT NULL",
  );
  t.match(audit.rows, [{ action: "payment.corrected", after: { status: "submitted" } }]);

  await arrived();
  await mine(1);
  t.match(await node.engine.settlement.wait(wanted.id, 10_000), { status: "settled" });
  t.equal((await row(wanted.id)).final_at, null);
  await mine(2);
  await until(async () => (await row(wanted.id)).final_at !== null, 15_000);
  t.not((await wallet.ledger(wanted.id)).final_at, null, "the payment is final as well");
  const { rows } = await database.pool.query("SELECT status FROM relayer_transactions");
  t.same(rows, [{ status: "mined" }], "final");
  const attempts = await database.pool.query("SELECT 1 FROM relayer_attempts");
  t.equal(attempts.rowCount, 1, "one set of bytes");
  t.equal(await balance(), 1_000n, "paid once");
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("removed while no process was running", { timeout: 60_000 }, async (t) => {
  const { chain, database, node, wallet, to, balance, arrived, mine, reorganise, row } =
    await world(t, deep);
  const wanted = await wallet.spend(to);
  await node.engine.settlement.accept(node.pool, wanted);
  await arrived();
  await mine(1);
  t.match(await node.engine.settlement.wait(wanted.id, 10_000), { status: "settled" });
  await node.stop();
  await reorganise(1);
  await mine(4);
  t.equal(await balance(), 0n);
  const next = await startEngine(t, { databaseUrl: database.url, chain, timings: BRISK, ...deep });
  await until(async () => (await row(wanted.id)).status === "submitted", 15_000);
  await arrived();
  await mine(3);
  await until(async () => (await row(wanted.id)).final_at !== null, 15_000);
  t.equal(await balance(), 1_000n, next.logText());
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("removed, and expired before it is mined again", { timeout: 60_000 }, async (t) => {
  const { chain, database, node, wallet, to, arrived, mine, reorganise, row } = await world(
    t,
    deep,
  );
  const wanted = await wallet.spend(to, { validForSeconds: 30 });
  await node.engine.settlement.accept(node.pool, wanted);
  await arrived();
  await mine(1);
  t.match(await node.engine.settlement.wait(wanted.id, 10_000), { status: "settled" });
  await reorganise(1);
  await until(async () => (await row(wanted.id)).status === "submitted", 15_000);
  await chain.testClient.setNextBlockTimestamp({
    timestamp: wanted.authorization.validBefore + 1n,
  });
  await mine(4);
  // The search starts by our clock, the proof uses the chain's time.
  await database.pool.query("UPDATE settlements SET valid_before = valid_before - 40");
  t.match(await node.engine.settlement.wait(wanted.id, 20_000), { status: "expired" });
  t.match(await wallet.ledger(wanted.id), { status: "voided", window_sum: "0" });
  t.match((await row(wanted.id)).proof, { kind: "state" }, "proven by the state of a final block");
});

t.test("a payment relayed by others is removed", { timeout: 60_000 }, async (t) => {
  const { chain, database, node, wallet, to, mine, reorganise, row } = await world(t, deep);
  const wanted = await wallet.spend(to, { kind: "x402" });
  await node.engine.settlement.accept(node.pool, wanted);
  await wallet.relayedByThirdParty(wanted);
  await mine(1);
  t.match(await node.engine.settlement.wait(wanted.id, 10_000, { look: true }), {
    status: "settled",
    byOther: true,
  });
  await reorganise(1);
  await mine(3);
  await until(async () => (await row(wanted.id)).status === "queued", 15_000);
  t.match(await wallet.ledger(wanted.id), { status: "submitted", window_sum: "1000" });
  await until(() => node.corrections.length > 0);
  t.same(node.corrections, ["settled_to_open"]);
  await wallet.relayedByThirdParty(wanted);
  await mine(1);
  t.match(await node.engine.settlement.wait(wanted.id, 10_000), { status: "settled" });
  await mine(2);
  await until(async () => (await row(wanted.id)).final_at !== null, 15_000);
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("nothing is reported before the inclusion depth", { timeout: 60_000 }, async (t) => {
  const { chain, database, node, wallet, to, balance, arrived, mine, reorganise, row } =
    await world(t, { confirmations: 4, inclusionDepth: 2 });
  const wanted = request(await authorize(chain, wallet.account, { to }));
  const seenAtDepthOne = async () => {
    await mine(1);
    const block = await chain.publicClient.getBlockNumber();
    await until(() => (node.heads.head?.number ?? 0n) >= block);
    t.match(await node.engine.settlement.wait(wanted.id, 300), { status: "pending" });
  };
  await node.engine.settlement.accept(node.pool, wanted);
  await arrived();
  await seenAtDepthOne();
  await reorganise(1);
  t.equal(await balance(), 0n);
  await arrived();
  await seenAtDepthOne();
  await mine(1);
  t.equal((await node.engine.settlement.wait(wanted.id, 15_000)).status, "settled", node.logText());
  t.same(node.corrections, [], "no report was taken back");
  await mine(2);
  await until(async () => (await row(wanted.id)).final_at !== null, 15_000);
  await expectLedgerEqualsChain(t, chain, database.pool);
});
