/**
 * Keeps the database's SQL functions identical to prisma/functions/*.sql: one function per file, named like the file,
 * with the triggers that call it. Changed functions are dropped and created again, removed ones are dropped, all in one
 * transaction. During an upgrade, and after a rollback, two builds run on one set of functions: the newer build's. So a
 * process never installs functions older than the installed ones, and a changed function must still serve the previous
 * build.
 */
import { createHash } from "node:crypto";
import { readFile, readdir } from "node:fs/promises";
import type { Client } from "pg";
import { setTimeout as sleep } from "node:timers/promises";
import { MigrationError } from "./migration-error.ts";
import { LOCK_TIMEOUT, type Sql, sqlState } from "./pool.ts";
import { ROOT } from "../root.ts";

export const FUNCTIONS_DIRECTORY = new URL("prisma/functions/", ROOT);

/**
 * Below Postgres' deadlock_timeout of 1 s: if a payment and a starting process block each other, the starting process
 * gives way.
 */
const LOCK_TIMEOUT_MS = 500;
const LOCK_TRIES = 20;
const LOCK_PAUSE_MS = 250;

interface FunctionFile {
  name: string;
  sql: string;
  checksum: string;
}

interface FunctionSet {
  /** Grows with every change of a file: `npm run derive` writes it into version.json. */
  version: number;
  /** Ordered so that a function comes after the functions it calls. */
  files: readonly FunctionFile[];
  /** One checksum of all files. */
  contents: string;
}

/** The functions of this build. */
export async function readFunctions(directory = FUNCTIONS_DIRECTORY): Promise<FunctionSet> {
  const files = await readFiles(directory);
  const text = await readFile(new URL("version.json", directory), "utf8");
  const { version } = JSON.parse(text) as { version: number };
  return { version, files, contents: contentsOf(files) };
}

/** The same checksum that the query `CONTENTS` computes in the database. */
function contentsOf(files: readonly FunctionFile[]): string {
  const lines = files.map(({ name, checksum }) => `${name} ${checksum}`).sort();
  return createHash("sha256").update(lines.join("\n")).digest("hex");
}

async function readFiles(directory: URL): Promise<FunctionFile[]> {
  const names = (await readdir(directory))
    .filter((file) => file.endsWith(".sql"))
    .map((file) => file.slice(0, -".sql".length))
    .sort();
  const files = await Promise.all(
    names.map(async (name) => {
      const sql = await readFile(new URL(`${name}.sql`, directory), "utf8");
      return { name, sql, checksum: createHash("sha256").update(sql).digest("hex") };
    }),
  );
  return calledFirst(files);
}

/**
 * Installs what is missing or different and drops what was removed, unless a newer build has installed its functions.
 */
export async function applyFunctions(
  client: Client,
  { files, version }: FunctionSet,
): Promise<{ functions: string[]; newerFunctions?: number }> {
  const { rows } = await client.query<{ name: string; checksum: string; version: number }>(
    "SELECT name, checksum, version FROM purser_functions ORDER BY name",
  );
  const installed = Math.max(0, ...rows.map((row) => row.version));
  if (installed > version) return { functions: [], newerFunctions: installed };
  const applied = new Map(rows.map((row) => [row.name, row.checksum]));
  const changed = files.filter((file) => applied.get(file.name) !== file.checksum);
  const kept = new Set(files.map((file) => file.name));
  const gone = [...applied.keys()].filter((name) => !kept.has(name));
  if (changed.length + gone.length === 0 && installed === version) return { functions: [] };
  for (let tried = 1; ; tried += 1) {
    try {
      await replace(client, { changed, gone, version });
      return { functions: [...changed.map((file) => file.name), ...gone] };
    } catch (error) {
      if (sqlState(error) !== LOCK_TIMEOUT || tried === LOCK_TRIES) throw error;
      await sleep(LOCK_PAUSE_MS);
    }
  }
}

async function replace(
  client: Client,
  {
    changed,
    gone,
    version,
  }: { changed: readonly FunctionFile[]; gone: readonly string[]; version: number },
): Promise<void> {
  await client.query("BEGIN");
  try {
    await client.query(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
    for (const name of [...gone, ...changed.map((file) => file.name)]) await drop(client, name);
    for (const file of changed) await create(client, file);
    await client.query("DELETE FROM purser_functions WHERE name = ANY($1)", [gone]);
    await client.query("UPDATE purser_functions SET version = $1", [version]);
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

/** Drops the function after its triggers. Without CASCADE, so that any other dependency stops the start. */
async function drop(client: Client, name: string): Promise<void> {
  const { rows } = await client.query<{ statement: string }>(
    `SELECT format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass) AS statement
       FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
      -- A partition's trigger goes with its table's.
      WHERE t.tgparentid = 0 AND p.proname = $1 AND p.pronamespace = current_schema()::regnamespace
     UNION ALL
     SELECT format('DROP FUNCTION %s', p.oid::regprocedure) FROM pg_proc p
      WHERE p.proname = $1 AND p.pronamespace = current_schema()::regnamespace
      ORDER BY statement DESC`,
    [name],
  );
  for (const { statement } of rows) await client.query(statement);
}

async function create(client: Client, file: FunctionFile): Promise<void> {
  try {
    await client.query(file.sql);
  } catch (error) {
    if (sqlState(error) === LOCK_TIMEOUT) throw error;
    throw new MigrationError(
      `Function ${file.name} cannot be made (prisma/functions/${file.name}.sql${lineOf(file, error)}): ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  }
  const { rowCount } = await client.query(
    "SELECT FROM pg_proc WHERE proname = $1 AND pronamespace = current_schema()::regnamespace",
    [file.name],
  );
  if (rowCount !== 1)
    throw new MigrationError(
      `prisma/functions/${file.name}.sql must make one function of its name, and made ${rowCount ?? 0}`,
    );
  await client.query(
    `INSERT INTO purser_functions (name, checksum) VALUES ($1, $2)
     ON CONFLICT (name) DO UPDATE SET checksum = EXCLUDED.checksum, applied_at = now()`,
    [file.name, file.checksum],
  );
}

/** Postgres reports the position of an error as a character offset. */
function lineOf({ sql }: FunctionFile, error: unknown): string {
  const place = Number((error as { position?: string }).position);
  return place > 0 ? `, line ${sql.slice(0, place - 1).split("\n").length}` : "";
}

/**
 * Sorts called functions first, because Postgres checks SQL functions when they are created. Otherwise the order is by
 * name.
 */
function calledFirst(files: readonly FunctionFile[]): FunctionFile[] {
  const byName = new Map(files.map((file) => [file.name, file]));
  const ordered = new Set<FunctionFile>();
  const visit = (file: FunctionFile, callers: readonly string[]): void => {
    if (ordered.has(file)) return;
    if (callers.includes(file.name))
      throw new MigrationError(
        `Functions call each other: ${[...callers, file.name].join(" -> ")}`,
      );
    for (const called of callsOf(file)) {
      const other = byName.get(called);
      if (other && other !== file) visit(other, [...callers, file.name]);
    }
    ordered.add(file);
  };
  for (const file of files) visit(file, []);
  return [...ordered];
}

/** All names used like a call, outside comments. */
const callsOf = ({ sql }: FunctionFile): string[] =>
  [...sql.replaceAll(/--.*/g, "").matchAll(/\b(\w+)\s*\(/g)].flatMap(([, name]) => name ?? []);

/** The checksum of everything that is installed, as `contentsOf` computes it. */
const CONTENTS = `
  SELECT coalesce(max(version), 0) AS version,
         encode(sha256(convert_to(coalesce(
           string_agg(name || ' ' || checksum, E'\\n' ORDER BY name COLLATE "C"), ''), 'UTF8')), 'hex') AS contents
    FROM purser_functions`;

/** Whether the installed functions are this build's, a newer build's (which serve this one too), or neither. */
export type InstalledFunctions = "own" | "newer" | "older";

export async function readInstalled(
  sql: Sql,
  own: Pick<FunctionSet, "version" | "contents">,
): Promise<InstalledFunctions> {
  // SQL: every process reads this table before Prisma is loaded.
  const { rows } = await sql.query<{ version: number; contents: string }>(CONTENTS);
  const [installed = { version: 0, contents: "" }] = rows;
  if (installed.version > own.version) return "newer";
  return installed.contents === own.contents ? "own" : "older";
}
