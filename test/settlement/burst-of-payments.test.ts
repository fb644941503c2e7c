// Goal: a burst of 500 payments on 2-second blocks lands at once, in full batches, none reverting, at a fair gas price.
// Runs alone
import t from "tap";
import { testChain } from "../helpers/chain.ts";
import {
  authorize,
  payers,
  randomAddress,
  request,
  settle,
  startEngine,
} from "../helpers/engine.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import { testDatabase } from "../helpers/postgres.ts";

const COUNT = 500;

t.test("500 at once on 2-second blocks", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 2 });
  const database = await testDatabase(t);
  const node = await startEngine(t, { databaseUrl: database.url, chain, blockTimeMs: 2_000 });
  const accounts = payers(COUNT);
  await chain.mint(
    accounts.map((account) => account.address),
    1_000n,
  );
  const to = randomAddress();
  const requests = await Promise.all(
    accounts.map(async (payer) => request(await authorize(chain, payer, { to }))),
  );
  const startedMs = Date.now();
  const elapsed: number[] = [];
  const outcomes = await Promise.all(
    requests.map(async (wanted) => {
      const outcome = await settle(node, wanted, 25_000);
      elapsed.push(Date.now() - startedMs);
      return outcome;
    }),
  );
  t.equal(outcomes.filter((outcome) => outcome.status === "settled").length, COUNT);
  elapsed.sort((one, other) => one - other);
  t.comment(
    `p50 ${elapsed[COUNT / 2]} ms, p95 ${elapsed[Math.floor(COUNT * 0.95)]} ms, batches ${node.batches.join(" ")}`,
  );
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
  t.comment(`gas per settlement ${gas / BigInt(COUNT)}`);
  t.ok(gas / BigInt(COUNT) <= 45_000n, "gas per settlement");
  await expectLedgerEqualsChain(t, chain, database.pool);
});
