// Goal: an outcome that later proof contradicts is corrected once, in the payment, the window, the stored answer and the alarm; and no outcome is recorded without proof.
import t, { type Test } from "tap";
import type {
  EndProof,
  ProvenOutcome,
  SettlementRequest,
} from "../../server/plugins/settlement/types.ts";
import { testChain } from "../helpers/chain.ts";
import { walletWithLedger } from "../helpers/engine-ledger.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import { randomAddress, startEngine } from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";

const REFUSAL: EndProof = { kind: "refusal", block: "1", blockHash: `0x${"1".repeat(64)}` };
const PAID_BACK = { status: "voided", window_sum: "0" };

async function world(t: Test) {
  const chain = await testChain(t);
  const database = await testDatabase(t);
  // No relayer and no watcher run: the test records all outcomes.
  const node = await startEngine(t, { databaseUrl: database.url, chain, relayerPrivateKeys: [] });
  await node.engine.chains.get(chain.chainId)?.externalRelays.stop();
  const wallet = await walletWithLedger(chain, database);
  const record = (wanted: SettlementRequest, outcome: Partial<ProvenOutcome>) => {
    const { from, asset, nonce } = wanted.authorization;
    const key = { from: from.toLowerCase(), asset: asset.toLowerCase(), nonce };
    return node.engine.settlement.record(chain.chainId, [
      { ...key, status: "failed", isFinal: true, ...outcome },
    ]);
  };
  const row = async ({ id }: SettlementRequest) =>
    (await database.pool.query("SELECT * FROM settlements WHERE id = $1", [id])).rows[0];
  const accepted = async () => {
    const wanted = await wallet.spend(randomAddress(), { kind: "x402" });
    await node.engine.settlement.accept(node.pool, wanted);
    return wanted;
  };
  /** Relays it as a third party. */
  const paid = async (wanted: SettlementRequest): Promise<EndProof> => {
    const hash = await wallet.relayedByThirdParty(wanted);
    const receipt = await chain.publicClient.waitForTransactionReceipt({ hash });
    const { blockNumber, blockHash } = receipt;
    return { kind: "receipt", tx: hash, block: String(blockNumber), blockHash };
  };
  return { chain, database, node, wallet, record, row, accepted, paid };
}

t.jobs = 2;
t.test("failed, and paid after all", async (t) => {
  const { chain, database, node, wallet, record, row, accepted, paid } = await world(t);
  const wanted = await accepted();
  const result = await record(wanted, { proof: REFUSAL, reason: "refused", message: "No." });
  t.same(result, { finished: 1, corrected: [] });
  t.match(await wallet.ledger(wanted.id), PAID_BACK);
  await database.pool.query(
    `INSERT INTO idempotency_keys (subject_id, route, key, body_hash, payment_id, status_code, response)
     VALUES ($1, 'r', 'k', sha256('b'), $2, 502, '{}')`,
    [wallet.agentId, wanted.id],
  );

  const outcome = { status: "settled" as const, byOther: true, proof: await paid(wanted) };
  t.match(await record(wanted, outcome), {
    finished: 0,
    corrected: [{ id: wanted.id, kind: "failed_to_settled" }],
  });
  t.match(
    await wallet.ledger(wanted.id),
    {
      status: "settled",
      window_sum: "1000",
      failure_code: null,
      tx_hash: outcome.proof.kind === "receipt" && outcome.proof.tx,
    },
    "paid, and counted again",
  );
  t.match(await row(wanted), { status: "settled", error_reason: null, by_other: true });
  t.match(await node.engine.settlement.wait(wanted.id, 1_000), { status: "settled" });
  const { rows: keys } = await database.pool.query("SELECT status_code FROM idempotency_keys");
  t.same(keys, [{ status_code: null }], "the stored failure is not returned again");
  t.same(
    await record(wanted, outcome),
    { finished: 0, corrected: [] },
    "a second correction changes nothing",
  );
  t.equal((await wallet.ledger(wanted.id)).window_sum, "1000");
  t.same(node.corrections, ["failed_to_settled"]);
  t.equal(node.logs.filter(({ level }) => level === "error").length, 1, node.logText());
  const { rows } = await database.pool.query("SELECT kind, before FROM settlement_corrections");
  t.match(rows, [{ kind: "failed_to_settled", before: { reason: "refused", proof: REFUSAL } }]);
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("many corrections at once leave the window right", async (t) => {
  const { record, accepted, paid, wallet, node } = await world(t);
  const wanted = await accepted();
  await record(wanted, { proof: REFUSAL, reason: "refused", message: "No." });
  const outcome = { status: "settled" as const, byOther: true, proof: await paid(wanted) };
  const result = await Promise.all(Array.from({ length: 8 }, () => record(wanted, outcome)));
  t.equal(result.flatMap(({ corrected }) => corrected).length, 1, "corrected by one of them");
  t.equal((await wallet.ledger(wanted.id)).window_sum, "1000");
  t.equal(node.corrections.length, 1);
});

t.test("settled, and reopened only by the transaction that settled it", async (t) => {
  const { record, accepted, paid, wallet, row } = await world(t);
  const wanted = await accepted();
  const proof = await paid(wanted);
  await record(wanted, { status: "settled", byOther: true, proof });
  const elsewhere = { ...proof, tx: `0x${"2".repeat(64)}` } as EndProof;
  t.match(await record(wanted, { status: "open", proof: elsewhere }), { corrected: [] });
  t.match(
    await row(wanted),
    { status: "settled" },
    "the absence of another transaction does not matter",
  );
  t.match(
    await record(wanted, { proof: REFUSAL, reason: "refused", message: "No." }),
    { finished: 0, corrected: [] },
    "a refusal does not outweigh a receipt",
  );
  t.match(await row(wanted), { status: "settled" });
  t.match(await record(wanted, { status: "open", proof }), {
    corrected: [{ kind: "settled_to_open" }],
  });
  t.match(await row(wanted), { status: "queued", proof: null, tx_hash: null, lane_address: null });
  t.match(await wallet.ledger(wanted.id), { status: "submitted", window_sum: "1000" });
  t.same(await record(wanted, { status: "open", proof }), { finished: 0, corrected: [] });
});

t.test("an outcome without a proof is refused by the database", async (t) => {
  const { record, accepted, database } = await world(t);
  const wanted = await accepted();
  await t.rejects(record(wanted, { reason: "because", message: "No." }), /end_has_proof/);
  const { rows } = await database.pool.query("SELECT status FROM settlements");
  t.same(rows, [{ status: "queued" }]);
});
