// A fresh, migrated database for one test: a clone of a template that is migrated once in each run.
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Pool } from "pg";
import type { Test } from "tap";
import { migrate } from "../../server/infra/db/migrate.ts";

export interface TestDatabase {
  url: string;
  pool: Pool;
}

const TEMPLATE = "purser_template";
const TEMPLATE_BUILDING = "purser_template_building";
/** Any fixed number; held while the template is made, because test files run in parallel processes. */
const TEMPLATE_LOCK = 720_001;

/** The test fails at its end if a connection is still open after this long. */
const CLOSED_WITHIN_MS = 30_000;

export async function testDatabase(
  t: Pick<Test, "teardown">,
  { closedWithinMs = CLOSED_WITHIN_MS } = {},
): Promise<TestDatabase> {
  const adminUrl = process.env["PURSER_TEST_POSTGRES_URL"];
  if (adminUrl === undefined) throw new Error("run tests with `npm test -- <files>`");
  const name = `test_${process.pid}_${randomBytes(4).toString("hex")}`;
  await withAdmin(adminUrl, async (admin) => {
    await ensureTemplate(admin, adminUrl);
    // The default writes every page into the log as well, which costs three times the CPU time.
    await admin.query(`CREATE DATABASE ${name} TEMPLATE ${TEMPLATE} STRATEGY FILE_COPY`);
  });
  const url = databaseUrl(adminUrl, name);
  const pool = new Pool({ connectionString: url, max: 10 });
  pool.on("error", () => undefined); // The test may stop its Postgres on purpose.
  t.teardown(async () => {
    await pool.end();
    await withAdmin(adminUrl, async (admin) => {
      const left = await leftOpen(admin, name, closedWithinMs);
      await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
      if (left.length > 0) throw new Error(`connections were left open: ${left.join("; ")}`);
    });
  });
  return { url, pool };
}

/**
 * The connections that are still open, by their last query. Postgres sees the end of a closed pool slightly later, so this
 * polls: dropping the database in that moment would cause an error in the pool.
 */
async function leftOpen(admin: Client, database: string, withinMs: number): Promise<string[]> {
  const deadlineMs = performance.now() + withinMs;
  for (;;) {
    const { rows } = await admin.query<{ query: string }>(
      "SELECT left(query, 80) AS query FROM pg_stat_activity WHERE datname = $1",
      [database],
    );
    if (rows.length === 0 || performance.now() > deadlineMs) return rows.map(({ query }) => query);
    await sleep(10);
  }
}

async function ensureTemplate(admin: Client, adminUrl: string): Promise<void> {
  await admin.query("SELECT pg_advisory_lock($1)", [TEMPLATE_LOCK]);
  try {
    const found = await admin.query("SELECT 1 FROM pg_database WHERE datname = $1", [TEMPLATE]);
    if (found.rowCount === 1) return;
    // Renamed when complete: a half-migrated template is never cloned.
    await admin.query(`DROP DATABASE IF EXISTS ${TEMPLATE_BUILDING} WITH (FORCE)`);
    await admin.query(`CREATE DATABASE ${TEMPLATE_BUILDING}`);
    const connectionString = databaseUrl(adminUrl, TEMPLATE_BUILDING);
    await migrate({ connectionString });
    // Each app would make the tables of the job queue in its database.
    const { migrateJobs } = await import("../../server/infra/jobs.ts");
    await migrateJobs({ connectionString });
    await admin.query(`ALTER DATABASE ${TEMPLATE_BUILDING} RENAME TO ${TEMPLATE}`);
  } finally {
    await admin.query("SELECT pg_advisory_unlock($1)", [TEMPLATE_LOCK]);
  }
}

function databaseUrl(adminUrl: string, name: string): string {
  const url = new URL(adminUrl);
  url.pathname = `/${name}`;
  return url.href;
}

async function withAdmin<T>(adminUrl: string, use: (admin: Client) => Promise<T>): Promise<T> {
  const admin = new Client({ connectionString: adminUrl });
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.end();
  }
}

/** An empty database, for tests of the migrator itself. */
export async function emptyDatabase(t: Pick<Test, "teardown">): Promise<string> {
  const adminUrl = process.env["PURSER_TEST_POSTGRES_URL"];
  if (adminUrl === undefined) throw new Error("run tests with `npm test -- <files>`");
  const name = `empty_${process.pid}_${randomBytes(4).toString("hex")}`;
  await withAdmin(adminUrl, (admin) => admin.query(`CREATE DATABASE ${name}`));
  t.teardown(() =>
    withAdmin(adminUrl, (admin) => admin.query(`DROP DATABASE ${name} WITH (FORCE)`)),
  );
  return databaseUrl(adminUrl, name);
}
