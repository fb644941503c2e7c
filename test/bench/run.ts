// `npm run bench`: compares with the reference facilitator on the same chain in the same run, alternately.
//
//   npm run bench                     every row
//   npm run bench -- verify settle    rows whose name contains one of these words
//   npm run bench -- --keep           also saves the medians: later runs on such a machine report regressions
//
// BENCH_ROUNDS=n (3): the number of measurements. PEER_COMMAND="...": another facilitator to compare with,
// which gets PEER_PORT, PEER_RPC_URL, PEER_CHAIN_ID and PEER_PRIVATE_KEY.
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { startPostgres } from "../../server/local/postgres.ts";
import type { BenchContext, BenchRow, World } from "./context.ts";
import { keep, machine } from "./baseline.ts";
import { printTable, type Finished } from "./table.ts";
import { startWorld } from "./world.ts";

const ROWS = fileURLToPath(new URL("rows/", import.meta.url));
const OUTPUT = fileURLToPath(new URL("../../.tmp/bench.json", import.meta.url));

async function findRows(words: string[]): Promise<BenchRow[]> {
  const files = readdirSync(ROWS)
    .filter((name) => name.endsWith(".ts"))
    .sort();
  const rows: BenchRow[] = [];
  for (const file of files) {
    const module = (await import(join(ROWS, file))) as { row?: BenchRow; rows?: BenchRow[] };
    // A file without a row contains code that rows share.
    rows.push(...(module.row ? [module.row] : []), ...(module.rows ?? []));
  }
  return rows.filter(
    ({ name }) => words.length === 0 || words.some((word) => name.toLowerCase().includes(word)),
  );
}

async function runRow(row: BenchRow): Promise<Finished> {
  const worlds: World[] = [];
  const context: BenchContext = {
    async world(options) {
      const world = await startWorld(options);
      worlds.push(world);
      return world;
    },
    print: (text) => console.log(`    ${text}`),
  };
  const { name } = row;
  console.log(`- ${name}`);
  // Other load on the machine is reported with the figures.
  const [load = 0] = loadavg();
  try {
    const figures = await row.run(context);
    printTable([{ name, result: { figures, load } }]);
    return { name, result: { figures, load } };
  } catch (error) {
    console.error(error);
    return { name, result: { error: String(error) } };
  } finally {
    for (const world of worlds) await world.stop();
  }
}

async function withPostgres<T>(settings: string[], use: () => Promise<T>): Promise<T> {
  const dir = mkdtempSync(join(tmpdir(), "purser-bench-"));
  const postgres = await startPostgres({
    dir,
    password: randomBytes(12).toString("hex"),
    // Durable, as in production: accepted payments are on disk.
    durable: true,
    maxConnections: 200,
    removeOnExit: dir,
    settings,
  });
  const before = process.env["PURSER_TEST_POSTGRES_URL"];
  process.env["PURSER_TEST_POSTGRES_URL"] = postgres.adminUrl;
  try {
    return await use();
  } finally {
    process.env["PURSER_TEST_POSTGRES_URL"] = before;
    await postgres.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}

async function main(words: string[], isKept: boolean): Promise<void> {
  await prepare((line) => console.log(line), [ensureServerBuild]);
  const finished: Finished[] = [];
  await withPostgres([], async () => {
    for (const row of await findRows(words)) {
      const { postgres } = row;
      const run = () => runRow(row);
      finished.push(await (postgres ? withPostgres(postgres, run) : run()));
    }
  });
  const measured = finished.flatMap(({ name, result }) =>
    "error" in result ? [] : [{ name, ...result }],
  );
  const loads = measured.map(({ load }) => load.toFixed(1)).join(", ");
  const { cpus, model, memoryGiB, node } = machine;
  console.log(
    `\n${cpus} cores (${model}), ${memoryGiB} GiB, Node ${node}; load before each row: ${loads}\n`,
  );
  printTable(finished);
  mkdirSync(join(OUTPUT, ".."), { recursive: true });
  const at = new Date().toISOString();
  writeFileSync(OUTPUT, JSON.stringify({ at, machine, rows: measured }, null, 2));
  console.log(`\nEverything measured: ${OUTPUT}`);
  if (isKept) keep(measured);
  if (measured.length < finished.length) process.exitCode = 1;
}

const words = process.argv.slice(2).map((word) => word.toLowerCase());
await main(
  words.filter((word) => word !== "--keep"),
  words.includes("--keep"),
);
