// Goal: while replicas, Postgres, the chain node, their connections and their responses fail under mixed
// load, no payment is lost or made twice, and reconciliation finds no difference; `npm run soak` does the
// same for half an hour.
// Runs alone
// Tier: full (takes minutes of mixed load).
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { runSoak } from "./soak.ts";

/** One fault of each kind; the long run has all of them. */
const FAULTS = [
  "a replica is killed",
  "Postgres is killed",
  "database connections fall silent",
  "the chain node restarts from its state",
  "receipts and logs lag",
  "blocks are reorganised",
  "gas becomes dear",
  "a flood of dust",
];

t.test("reconciliation finds no difference", { timeout: 290_000 }, async (t) => {
  const report = await runSoak({
    minutes: 0.4,
    replicas: 3,
    seed: Date.now() % 1_000_000,
    faults: FAULTS,
    isHurried: true,
    logDir: mkdtempSync(join(process.env["PURSER_TEST_DIR"] ?? tmpdir(), "soak-")),
    print: (line) => t.comment(line),
  });
  for (const { what, looked, wrong } of report.checks) t.same(wrong, [], `${what} (of ${looked})`);
  const { reported } = report.notes;
  for (const kind of ["spend", "x402", "withdrawal", "facilitated"])
    t.ok(
      reported.some((one) => one.kind === kind && one.outcome === "paid"),
      `${kind}: some were paid, so that there was something to compare`,
    );
  t.ok((report.notes.counts.get("channel payments: paid") ?? 0) > 0, "and through channels");
});
