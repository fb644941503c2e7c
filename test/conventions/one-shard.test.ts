// Goal: no hot statement asks more than one shard of the distribution that docs/scale.md writes down, but for those it names.
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import t, { type Test } from "tap";
import { createPool, type Pool } from "../../server/infra/db/pool.ts";
import { seededApp, spendInEveryWay } from "./hot-statements.ts";
import { recordScans, type Scan } from "./plans.ts";

const DOCUMENT = await readFile(
  fileURLToPath(new URL("../../docs/scale.md", import.meta.url)),
  "utf8",
);

/** Table to column and group, as the document's own statements say. */
const DISTRIBUTED = new Map(
  [
    ...DOCUMENT.matchAll(
      /create_distributed_table\('(\w+)', '(\w+)'(?:, colocate_with => '(\w+)')?\)/g,
    ),
  ].map(([, table = "", column = "", group = table]) => [table, { column, group }]),
);
const REFERENCE = new Set(
  [...DOCUMENT.matchAll(/create_reference_table\('(\w+)'/g)].map(([, table = ""]) => table),
);

/** The rows of the document's table below these words. */
function tableAfter(words: string): string[][] {
  const [, , ...rows] = (DOCUMENT.split(words)[1] ?? "")
    .split("\n\n")
    .find((part) => part.startsWith("|"))
    ?.split("\n") ?? [""];
  return rows.map((row) =>
    row
      .split(/ \| |^\| | \|$/)
      .map((cell) => cell.trim().replaceAll("`", ""))
      .filter(Boolean),
  );
}

/** Pinned to one value or a few, or to the same column of a table that is: the planner's own words. */
function namesItsShard({ table, conditions }: Scan): boolean {
  const found = DISTRIBUTED.get(table);
  if (!found) return REFERENCE.has(table);
  const { column } = found;
  return [
    String.raw`\b${column} = (\$\d|'[^']|\(?'?-?\d|\w+\.${column}\b)`,
    String.raw`\b${column} = ANY \(('\{|ARRAY\[|\$\d)`,
    // Of the agent that the same statement names.
    String.raw`\bagent_id = (a\.id|\(a\.\*\)\.id)\b`,
  ].some((pattern) => new RegExp(pattern).test(conditions));
}

const inOneLine = (statement: string): string => statement.replaceAll(/\s+/g, " ").trim();

t.test("a statement without its column is seen", async (t) => {
  const scan = { statement: "", node: "Index Scan", table: "payments", index: "", rows: 1 };
  t.notOk(namesItsShard({ ...scan, conditions: "(id = 'pay_1'::text)" }));
  t.ok(namesItsShard({ ...scan, conditions: "((agent_id = $1) AND (id = 'pay_1'::text))" }));
  t.notOk(namesItsShard({ ...scan, table: "nobody_said", conditions: "(agent_id = $1)" }));
});

t.test("statements of money, from the request to the ledger", async (t) => {
  const { database, seeded } = await seededApp(t);
  const pool = createPool(database.url, { maxConnections: 2 });
  t.teardown(() => pool.end());
  const scans = recordScans(pool);
  await spendInEveryWay(t, pool, seeded);
  t.ok(scans.length > 100, "functions and triggers were looked into");
  const named = tableAfter("it names one shard, or it is one of these").map(([start]) => start);
  t.ok(named.length > 0);
  const unnamed = scans.filter(
    (scan) =>
      !namesItsShard(scan) &&
      !named.some((start) => inOneLine(scan.statement).startsWith(start ?? "?")),
  );
  t.same(
    unnamed.map(({ table, conditions, statement }) => [table, conditions, inOneLine(statement)]),
    [],
  );
  for (const start of named)
    t.ok(
      scans.some((scan) => inOneLine(scan.statement).startsWith(start ?? "?")),
      `there is such a statement: ${start}`,
    );
  await t.test("what stands in the way is what the document says", (t) =>
    assertObstacles(t, database.pool),
  );
});

async function assertObstacles(t: Test, pool: Pool): Promise<void> {
  const { rows: unique } = await pool.query<{ table: string; columns: string[] }>(
    `SELECT c.relname AS table, ARRAY(
              SELECT a.attname::text FROM pg_attribute a
               WHERE a.attrelid = c.oid AND a.attnum = ANY(x.indkey::int2[])) AS columns
       FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid
      WHERE x.indisunique AND c.relnamespace = 'public'::regnamespace`,
  );
  const inTheWay = unique.filter(({ table, columns }) => {
    const found = DISTRIBUTED.get(table);
    return found && !columns.includes(found.column);
  });
  t.same(
    new Set(inTheWay.map(({ table, columns }) => `${table} ${columns.join(", ")}`)),
    new Set(
      tableAfter("uniqueness that does not name").map(([table, columns]) => `${table} ${columns}`),
    ),
  );
  const { rows: references } = await pool.query<{ from: string; to: string }>(
    `SELECT conrelid::regclass::text AS from, confrelid::regclass::text AS to
       FROM pg_constraint WHERE contype = 'f'`,
  );
  const groupOf = (table: string) => DISTRIBUTED.get(table)?.group;
  const crossing = references.filter(
    ({ from, to }) =>
      (REFERENCE.has(from) && groupOf(to) !== undefined) ||
      (groupOf(from) !== undefined && groupOf(to) !== undefined && groupOf(from) !== groupOf(to)),
  );
  t.same(
    new Set(crossing.map(({ from, to }) => `${from} ${to}`)),
    new Set(tableAfter("references that cross").map(([from, to]) => `${from} ${to}`)),
  );
}
