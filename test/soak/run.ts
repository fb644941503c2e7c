// `npm run soak`: minutes of mixed load on several replicas while faults are injected everywhere below them;
// then reconciliation.
//
//   npm run soak -- --minutes 30                 a full run
//   npm run soak -- --minutes 5 --seed 7         the same choices again
//   npm run soak -- --faults "reads lag,Postgres is killed"
//   npm run soak -- --minutes 1 --hurried        each fault once; at the end the chain's clock jumps past
// open deadlines
//
// Ctrl-C ends the load early; reconciliation still runs. Exit code 1 on any difference.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { parseArgs } from "node:util";
import { ROOT } from "../../server/local/bootstrap.mjs";
import { compile } from "../runner/compile.mjs";
import { FAULTS } from "./faults.ts";
import { runSoak } from "./soak.ts";
import { printReport, toJson } from "./table.ts";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "30" },
    replicas: { type: "string", default: "3" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    faults: { type: "string" },
    hurried: { type: "boolean", default: false },
  },
});
const faults = values.faults?.split(",").map((name) => name.trim());
const unknown = faults?.filter((name) => name !== "" && !FAULTS.has(name)) ?? [];
if (unknown.length > 0)
  throw new Error(`no such fault: ${unknown.join(", ")}. Known: ${[...FAULTS.keys()].join(", ")}`);

const interrupted = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => interrupted.abort());
const outDir = join(ROOT, ".tmp", `soak-${values.seed}`);
rmSync(outDir, { recursive: true, force: true });
mkdirSync(outDir, { recursive: true });
// Inside the repository, so that compiled files find the packages.
const compiled = mkdtempSync(join(ROOT, ".tmp", "soak-compiled-"));
try {
  await compile(["test/soak/replica.child.ts"], compiled);
  process.env["PURSER_TEST_COMPILED"] = compiled;
  const startMs = performance.now();
  const stamp = (): string => {
    const seconds = Math.floor((performance.now() - startMs) / 1_000);
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  };
  const report = await runSoak({
    minutes: Number(values.minutes),
    replicas: Number(values.replicas),
    seed: Number(values.seed),
    ...(faults && { faults }),
    isHurried: values.hurried,
    logDir: outDir,
    print: (line) => console.log(`${stamp()} ${line}`),
    signal: interrupted.signal,
  });
  const { notes } = report;
  const isBalanced = printReport(report, console.log);
  writeFileSync(
    join(outDir, "report.json"),
    toJson({ ...report, notes: { ...notes, counts: Object.fromEntries(notes.counts) } }),
  );
  console.log(`\nEverything, and the replicas' logs: ${relative(process.cwd(), outDir)}`);
  const again = ["--minutes", values.minutes, "--replicas", values.replicas, "--seed", values.seed];
  if (values.hurried) again.push("--hurried");
  if (values.faults !== undefined) again.push("--faults", JSON.stringify(values.faults));
  console.log(`Again: npm run soak -- ${again.join(" ")}`);
  process.exitCode = isBalanced ? 0 : 1;
} finally {
  rmSync(compiled, { recursive: true, force: true });
}
