/**
 * Applies pending migrations and changed SQL functions at start. An advisory lock makes replicas that start together do
 * it exactly once. Uses Prisma's own `_prisma_migrations` table, so that `prisma migrate deploy` agrees.
 */
import { createHash, randomUUID } from "node:crypto";
import { readFile, readdir } from "node:fs/promises";
import type { Client } from "pg";
import { applyFunctions, readFunctions } from "./functions.ts";
import { MigrationError } from "./migration-error.ts";
import { PrimaryClient } from "./primary.ts";
import { connectionSettings, TIMEOUTS } from "./pool.ts";

const MIGRATIONS_DIRECTORY = new URL("../../../prisma/migrations/", import.meta.url);
/** An arbitrary constant; all replicas must use the same. */
export const MIGRATION_LOCK_KEY = 7_205_759_403;

/** Older servers lack what the migrations and functions use. */
export const OLDEST_POSTGRES = 15;
/**
 * Migrations that were rewritten without a change of what they do, and the checksums that they keep, so that the build
 * before accepts a database that this one made. These two used a statement that Postgres 15 and 16 do not have.
 */
export const REWRITTEN: ReadonlyMap<string, string> = new Map([
  ["20261126000300_merchants", "bb3301ddeb0841b709d56e079ae1dfd50e0c9127b4324366e421c734217e1996"],
  [
    "20261126000500_settlement_writes",
    "6da45ed3caedc5b6b4a136c685aa5ba561c62a16114ccc7e65f775ac55011036",
  ],
]);

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

interface Applied {
  migrations: string[];
  functions: string[];
  /** Set if a newer build has installed its functions, which then stay. */
  newerFunctions?: number;
}

/** All migrations of this build, in order. */
export async function readMigrations(): Promise<Migration[]> {
  const entries = await readdir(MIGRATIONS_DIRECTORY, { withFileTypes: true });
  const names = entries
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();
  return Promise.all(
    names.map(async (name) => {
      const sql = await readFile(new URL(`${name}/migration.sql`, MIGRATIONS_DIRECTORY), "utf8");
      const checksum = REWRITTEN.get(name) ?? createHash("sha256").update(sql).digest("hex");
      return { name, sql, checksum };
    }),
  );
}

/** Applies missing migrations and changed functions, and returns their names. */
export async function migrate(options: {
  connectionString: string;
  functionsDirectory?: URL;
}): Promise<Applied> {
  const functions = await readFunctions(options.functionsDirectory);
  return withMigrationLock(options.connectionString, async (client) => {
    await assertVersion(client);
    await client.query(PRISMA_TABLE);
    const migrations = await applyMigrations(client);
    return { migrations, ...(await applyFunctions(client, functions)) };
  });
}

/** Reinstalls this build's functions, for a running process that found older ones. */
export async function reinstallFunctions(connectionString: string): Promise<string[]> {
  const own = await readFunctions();
  const { functions } = await withMigrationLock(connectionString, (client) =>
    applyFunctions(client, own),
  );
  return functions;
}

async function withMigrationLock<T>(
  connectionString: string,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  // A migration has no timeout, whatever the role's settings are.
  const client = new PrimaryClient(connectionSettings(connectionString, TIMEOUTS.none));
  await client.connect();
  try {
    await client.query("SELECT pg_advisory_lock($1)", [MIGRATION_LOCK_KEY]);
    return await work(client);
  } finally {
    // Ending the session releases the advisory lock, also after an error.
    await client.end();
  }
}

/** Refuses a server that is too old before anything is applied. */
export async function assertVersion(client: {
  query(sql: string): Promise<{ rows: { server_version_num?: string }[] }>;
}): Promise<void> {
  const { rows } = await client.query("SHOW server_version_num");
  const major = Math.floor(Number(rows[0]?.server_version_num) / 10_000);
  if (major < OLDEST_POSTGRES)
    throw new MigrationError(
      `The database is Postgres ${major}; Purser needs Postgres ${OLDEST_POSTGRES} or newer. Nothing was changed in it`,
    );
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
        `Migration ${migration.name} was applied with different content; this database belongs to a different build`,
      );
    }
  }
  return done;
}

/** Names of this build's migrations that are missing in the database; used by `/api/ready`. */
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
