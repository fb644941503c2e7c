/**
 * Applies pending migrations and changed functions at start, under an advisory lock, so that replicas
 * starting together do it exactly once. Keeps Prisma's own `_prisma_migrations` table, so that `prisma migrate
 * deploy` agrees wherever it can run.
 */
import { createHash, randomUUID } from "node:crypto";
import { readFile, readdir } from "node:fs/promises";
import type { Client } from "pg";
import { setTimeout as sleep } from "node:timers/promises";
import { PrimaryClient } from "./primary.ts";
import { connectionSettings, LOCK_TIMEOUT, PATIENCE, sqlState } from "./pool.ts";

/** A database that cannot be brought to this build's tables and functions: one line a person can act on. */
export class MigrationError extends Error {
  override name = "MigrationError";
}

const MIGRATIONS_DIRECTORY = new URL("../../../prisma/migrations/", import.meta.url);
/** An arbitrary constant: every replica of Purser must use the same. */
const ADVISORY_LOCK_KEY = 7_205_759_403;

const PRISMA_TABLE = `
  CREATE TABLE IF NOT EXISTS _prisma_migrations (
    id VARCHAR(36) PRIMARY KEY NOT NULL,
    checksum VARCHAR(64) NOT NULL,
    finished_at TIMESTAMPTZ,
    migration_name VARCHAR(255) NOT NULL,
    logs TEXT,
    rolled_back_at TIMESTAMPTZ,
    started_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    applied_steps_count INTEGER NOT NULL DEFAULT 0
  )`;

interface Migration {
  name: string;
  sql: string;
  checksum: string;
}

export interface Applied {
  migrations: string[];
  functions: string[];
}

/** Every migration of this build, in order. */
export async function readMigrations(): Promise<Migration[]> {
  const entries = await readdir(MIGRATIONS_DIRECTORY, { withFileTypes: true });
  const names = entries
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();
  return Promise.all(
    names.map(async (name) => {
      const sql = await readFile(new URL(`${name}/migration.sql`, MIGRATIONS_DIRECTORY), "utf8");
      return { name, sql, checksum: createHash("sha256").update(sql).digest("hex") };
    }),
  );
}

/** Applies what is missing or changed and answers the names. */
export async function migrate(options: {
  connectionString: string;
  functionsDirectory?: URL;
}): Promise<Applied> {
  const functions = await readFunctions(options.functionsDirectory ?? FUNCTIONS_DIRECTORY);
  // A migration takes as long as it takes, whatever the role's own settings say.
  const client = new PrimaryClient(connectionSettings(options.connectionString, PATIENCE.none));
  await client.connect();
  try {
    await client.query("SELECT pg_advisory_lock($1)", [ADVISORY_LOCK_KEY]);
    await client.query(PRISMA_TABLE);
    return {
      migrations: await applyMigrations(client),
      functions: await applyFunctions(client, functions),
    };
  } finally {
    // Ending the session releases the advisory lock, also after an error.
    await client.end();
  }
}

async function applyMigrations(client: Client): Promise<string[]> {
  const applied = await appliedChecksums(client);
  const done: string[] = [];
  for (const migration of await readMigrations()) {
    const checksum = applied.get(migration.name);
    if (checksum === undefined) {
      await apply(client, migration);
      done.push(migration.name);
    } else if (checksum !== migration.checksum) {
      throw new MigrationError(
        `Migration ${migration.name} was applied in another form; this database belongs to another build`,
      );
    }
  }
  return done;
}

/** Names of migrations this build has and the database has not: `/api/ready` asks. */
export async function pendingMigrations(
  query: (sql: string) => Promise<{ rows: unknown[] }>,
): Promise<string[]> {
  const { rows } = await query(
    "SELECT migration_name FROM _prisma_migrations WHERE finished_at IS NOT NULL AND rolled_back_at IS NULL",
  );
  const applied = new Set((rows as { migration_name: string }[]).map((row) => row.migration_name));
  return (await readMigrations())
    .map((migration) => migration.name)
    .filter((name) => !applied.has(name));
}

async function appliedChecksums(client: Client): Promise<Map<string, string>> {
  const { rows } = await client.query<{ migration_name: string; checksum: string }>(
    "SELECT migration_name, checksum FROM _prisma_migrations WHERE finished_at IS NOT NULL AND rolled_back_at IS NULL",
  );
  return new Map(rows.map((row) => [row.migration_name, row.checksum]));
}

async function apply(client: Client, migration: Migration): Promise<void> {
  await client.query("BEGIN");
  try {
    await client.query(migration.sql);
    await client.query(
      "INSERT INTO _prisma_migrations (id, checksum, migration_name, finished_at, applied_steps_count) VALUES ($1, $2, $3, now(), 1)",
      [randomUUID(), migration.checksum, migration.name],
    );
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK");
    throw new MigrationError(
      `Migration ${migration.name} failed: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  }
}

/**
 * Keeps the database's functions as prisma/functions/*.sql say: one function a file, named like it, and
 * with it the triggers that call it. What changed is dropped and made anew, what left the folder is
 * dropped, all in one transaction. The last build to start decides: after a rollback, the older one.
 */

export const FUNCTIONS_DIRECTORY = new URL("../../../prisma/functions/", import.meta.url);

/** Shorter than Postgres' deadlock_timeout of 1 s: where a payment and a start block each other, the start gives way. */
const LOCK_TIMEOUT_MS = 500;
const LOCK_TRIES = 20;
const LOCK_PAUSE_MS = 250;

interface FunctionFile {
  name: string;
  sql: string;
  checksum: string;
}

/** Every function of this build; one that calls another comes after it. */
export async function readFunctions(directory = FUNCTIONS_DIRECTORY): Promise<FunctionFile[]> {
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

/** Makes what is missing or different, drops what is gone; answers the names it touched. */
async function applyFunctions(client: Client, files: readonly FunctionFile[]): Promise<string[]> {
  const { rows } = await client.query<{ name: string; checksum: string }>(
    "SELECT name, checksum FROM purser_functions ORDER BY name",
  );
  const applied = new Map(rows.map((row) => [row.name, row.checksum]));
  const changed = files.filter((file) => applied.get(file.name) !== file.checksum);
  const kept = new Set(files.map((file) => file.name));
  const gone = [...applied.keys()].filter((name) => !kept.has(name));
  if (changed.length === 0 && gone.length === 0) return [];
  for (let tried = 1; ; tried += 1) {
    try {
      await replace(client, { changed, gone });
      return [...changed.map((file) => file.name), ...gone];
    } catch (error) {
      if (sqlState(error) !== LOCK_TIMEOUT || tried === LOCK_TRIES) throw error;
      await sleep(LOCK_PAUSE_MS);
    }
  }
}

async function replace(
  client: Client,
  { changed, gone }: { changed: readonly FunctionFile[]; gone: readonly string[] },
): Promise<void> {
  await client.query("BEGIN");
  try {
    await client.query(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
    for (const name of [...gone, ...changed.map((file) => file.name)]) await drop(client, name);
    for (const file of changed) await create(client, file);
    await client.query("DELETE FROM purser_functions WHERE name = ANY($1)", [gone]);
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

/** Its triggers first. Without CASCADE: whatever else hangs on it stops the start. */
async function drop(client: Client, name: string): Promise<void> {
  const { rows } = await client.query<{ statement: string }>(
    `SELECT format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass) AS statement
       FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
      WHERE p.proname = $1 AND p.pronamespace = current_schema()::regnamespace
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

/** Postgres names the place as a character of the text. */
function lineOf({ sql }: FunctionFile, error: unknown): string {
  const place = Number((error as { position?: string }).position);
  return place > 0 ? `, line ${sql.slice(0, place - 1).split("\n").length}` : "";
}

/** SQL functions are checked when they are made, so what they call must be there. Names decide among equals. */
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

/** Everything written like a call, outside comments. */
const callsOf = ({ sql }: FunctionFile): string[] =>
  [...sql.replaceAll(/--.*/g, "").matchAll(/\b(\w+)\s*\(/g)].flatMap(([, name]) => name ?? []);
