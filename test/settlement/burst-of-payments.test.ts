// Goal: a burst of 500 payments is settled in full batches, none reverting, with a low gas cost for each.
// Runs alone
import t from "tap";
import { testChain } from "../helpers/chain.ts";
import {
  authorize,
  BRISK,
  payers,
  randomAddress,
  request,
  startEngine,
} from "../helpers/engine.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import { testDatabase } from "../helpers/postgres.ts";

const COUNT = 500;

t.test("500 at once", { timeout: 90_000 }, async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const database = await testDatabase(t);
  const node = await startEngine(t, { databaseUrl: database.url, chain, timings: BRISK });
  const accounts = payers(COUNT);
  await chain.mint(
    accounts.map((account) => account.address),
    1_000n,
  );
  const to = randomAddress();
  const requests = await Promise.all(
    accounts.map(async (payer) => request(await authorize(chain, payer, { to }))),
  );
  const { settlement } = node.engine;
  await settlement.acceptAll(node.pool, requests);
  const outcomes = await Promise.all(requests.map(({ id }) => settlement.wait(id, 60_000)));
  t.equal(outcomes.filter((outcome) => outcome.status === "settled").length, COUNT);
  t.ok(
    node.batches.length <= COUNT / 100,
    `${node.batches.length} transactions for ${COUNT} payments`,
  );
  const hashes = new Set(
    outcomes.map((outcome) => ("txHash" in outcome ? outcome.txHash : undefined)),
  );
  const receipts = await Promise.all(
    [...hashes].map((hash) => chain.publicClient.getTransactionReceipt({ hash: hash ?? "0x" })),
  );
  t.ok(
    receipts.every((receipt) => receipt.status === "success"),
    "none reverts",
  );
  const gas = receipts.reduce((sum, receipt) => sum + receipt.gasUsed, 0n);
  t.ok(gas / BigInt(COUNT) <= 45_000n, "gas per settlement");
  await expectLedgerEqualsChain(t, chain, database.pool);
});
