// `npm run bench`: side by side with the reference facilitator, on the same chain, in the same run.
//
//   npm run bench                     every row
//   npm run bench -- verify settle    rows whose name contains one of these words
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startPostgres } from "../../server/local/postgres.ts";
import type { BenchContext, BenchRow, RowResult, World } from "./context.ts";
import { printTable } from "./table.ts";
import { startWorld } from "./world.ts";

const ROWS = fileURLToPath(new URL("rows/", import.meta.url));
const OUTPUT = fileURLToPath(new URL("../../.tmp/bench.json", import.meta.url));

export type Finished = BenchRow & { result: RowResult | { error: string } };

async function findRows(words: string[]): Promise<BenchRow[]> {
  const files = readdirSync(ROWS)
    .filter((name) => name.endsWith(".ts"))
    .sort();
  const rows: BenchRow[] = [];
  for (const file of files) {
    const module = (await import(join(ROWS, file))) as { row?: BenchRow; rows?: BenchRow[] };
    // Rows lend each other code: a file without a row is such code.
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
    say: (text) => console.log(`    ${text}`),
  };
  console.log(`- ${row.name}`);
  try {
    const result = await row.run(context);
    console.log(`    reference ${result.reference}, ours ${result.ours}`);
    return { ...row, result };
  } catch (error) {
    console.error(error);
    return { ...row, result: { error: String(error) } };
  } finally {
    for (const world of worlds) await world.stop();
  }
}

async function main(words: string[]): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), "purser-bench-"));
  const postgres = await startPostgres({
    dir,
    password: randomBytes(12).toString("hex"),
    durable: false,
    maxConnections: 200,
    removeOnExit: dir,
  });
  process.env["PURSER_TEST_POSTGRES_URL"] = postgres.adminUrl;
  const finished: Finished[] = [];
  try {
    for (const row of await findRows(words)) finished.push(await runRow(row));
  } finally {
    await postgres.stop();
    rmSync(dir, { recursive: true, force: true });
  }
  const machine = {
    cpus: cpus().length,
    model: cpus()[0]?.model ?? "unknown",
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.version,
  };
  printTable(finished, machine);
  mkdirSync(join(OUTPUT, ".."), { recursive: true });
  const rows = finished.map(({ name, target, result }) => ({ name, target, ...result }));
  writeFileSync(OUTPUT, JSON.stringify({ at: new Date().toISOString(), machine, rows }, null, 2));
  console.log(`\nEverything measured: ${OUTPUT}`);
  if (finished.some(({ result }) => "error" in result)) process.exitCode = 1;
}

await main(process.argv.slice(2).map((word) => word.toLowerCase()));
