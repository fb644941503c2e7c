/** The doctor's checks of Postgres: its settings, the tables and functions of this build, and overdue work. */
import { setTimeout as sleep } from "node:timers/promises";
import { createPool, type Pool } from "../infra/db/pool.ts";
import { createPrisma, type PrismaClient } from "../infra/db/prisma.ts";
import { identify, whyNotItsStandby } from "../infra/db/read-replica.ts";
import { readDurability } from "../infra/db/settings.ts";
import { readFunctions, readInstalled } from "../infra/db/functions.ts";
import { OLDEST_POSTGRES, readMigrations } from "../infra/db/migrate.ts";
import type { Config } from "../config.ts";
import { readOperatorHead, readOperators } from "../plugins/audit/operators.ts";
import { verifyOperators } from "../plugins/audit/verify.ts";
import { countOpenDifferences } from "../plugins/reconciliation/store.ts";
import { durationOf, found, ok, warning, wrong, type Finding } from "./finding.ts";

export interface Database {
  pool: Pool;
  prisma: PrismaClient;
  close(): Promise<void>;
}

/** Postgres itself refuses every write. */
export function openReadOnly(databaseUrl: string): Database {
  const pool = createPool(databaseUrl, {
    maxConnections: 3,
    applicationName: "purser-doctor",
    isReadOnly: true,
  });
  pool.on("error", () => undefined);
  const prisma = createPrisma(pool);
  return {
    pool,
    prisma,
    async close() {
      await prisma.$disconnect();
      await pool.end();
    },
  };
}

/** Before the first start: the database responds, and has none of this service's tables. */
export async function isUnused({ pool }: Pick<Database, "pool">): Promise<boolean> {
  // SQL: the catalogue.
  const { rows } = await pool.query<{ unused: boolean }>(
    "SELECT to_regclass('_prisma_migrations') IS NULL AS unused",
  );
  return rows[0]?.unused === true;
}

const CLOCK = { warning: 1, wrong: 10 };
const DUE_SECONDS = 300;
const STUCK_SECONDS = 120;
/** Retention runs hourly; rows that are a day overdue mean that it does not run at all. */
const LATE_HOURS = 24;

export async function checkDatabase(
  { pool, prisma }: Database,
  config: Config,
  { isFirstStart = false } = {},
): Promise<Finding[]> {
  const look = (check: string, todo: string, run: () => Promise<Finding | Finding[]>) =>
    found(check, run, { todo });
  const reached = await look(
    "database",
    "Check that DATABASE_URL is right and that Postgres is running.",
    () => version(pool),
  );
  if (reached.some(({ level }) => level === "wrong")) return reached;
  const LOOK_AGAIN = "Fix the reason and run the doctor again.";
  const general = [
    look("database durability", LOOK_AGAIN, () => durability(pool)),
    look("database clock", LOOK_AGAIN, () => clock(pool)),
    ...(config.databaseReadUrl === undefined ? [] : [readReplica(pool, config.databaseReadUrl)]),
  ];
  if (isFirstStart) {
    const tables = look("database tables", LOOK_AGAIN, () => firstStart(pool));
    return [...reached, ...(await Promise.all([...general, tables])).flat()];
  }
  const rest = await Promise.all([
    ...general,
    look("database migrations", "Start one replica of this build: it applies them.", () =>
      migrations(pool),
    ),
    look("database functions", "Start one replica of this build: it installs them.", () =>
      functions(pool),
    ),
    look("database size", LOOK_AGAIN, () => retention(pool, config)),
    look("job queue", "Start a replica: it creates the queue.", () => jobs(pool)),
    look("payments waiting", LOOK_AGAIN, () => waiting(pool)),
    look("ledger", LOOK_AGAIN, () => differences(prisma)),
    look("operators' record", LOOK_AGAIN, () => record(prisma)),
  ]);
  return [...reached, ...rest.flat()];
}

export async function version(pool: Pool): Promise<Finding> {
  // SQL: the server's own settings.
  const { rows } = await pool.query<{ version: string; number: number }>(
    "SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number",
  );
  const { version: named = "?", number = 0 } = rows[0] ?? {};
  return number >= OLDEST_POSTGRES * 10_000
    ? ok("database", `Postgres ${named} responds`)
    : wrong(
        "database",
        `Postgres ${named} is too old`,
        `Use Postgres ${OLDEST_POSTGRES} or newer.`,
        "database_version",
      );
}

/** What the first start needs and will do. */
export async function firstStart(pool: Pool): Promise<Finding> {
  const check = "database tables";
  // SQL: the catalogue. Tables and the job queue's schema are created.
  const { rows } = await pool.query<{
    role: string;
    schema: string | null;
    others: number;
    may: boolean;
  }>(
    `SELECT current_user AS role, current_schema() AS schema,
            (SELECT count(*)::int FROM pg_tables WHERE schemaname = current_schema()) AS others,
            coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)
              AND has_database_privilege(current_database(), 'CREATE') AS may`,
  );
  const { role = "?", schema = null, others = 0, may = false } = rows[0] ?? {};
  if (!may)
    return wrong(
      check,
      `the role ${role} may not create the tables`,
      `GRANT CREATE ON DATABASE ... TO ${role}; GRANT CREATE ON SCHEMA ${schema ?? "public"} TO ${role}; or use the database's owner.`,
      "database_rights",
    );
  return others > 0
    ? warning(
        check,
        `the database has ${others} tables, none of them ours`,
        "Check that DATABASE_URL is right. The first start would create its tables beside them.",
      )
    : ok(check, "the database is empty: the first start will create its tables");
}

export async function durability(pool: Pool): Promise<Finding> {
  const check = "database durability";
  const { fsync, fullPageWrites, synchronousCommit, waitsForStandby } = await readDurability(pool);
  const off = Object.entries({ fsync, full_page_writes: fullPageWrites }).flatMap(([name, isOn]) =>
    isOn ? [] : [name],
  );
  if (off.length > 0)
    return wrong(
      check,
      `${off.join(", ")} off: a crash of the server can lose confirmed payments`,
      `ALTER SYSTEM SET ${off[0]} = on; SELECT pg_reload_conf(); and look whether ALTER DATABASE or ALTER ROLE sets it.`,
    );
  // Our own connections raise it for themselves.
  return synchronousCommit === "off" || (waitsForStandby && synchronousCommit === "local")
    ? warning(
        check,
        `synchronous_commit is ${synchronousCommit} for all connections except ours`,
        "Set synchronous_commit to on.",
      )
    : ok(check, `synchronous_commit ${synchronousCommit}, fsync on`);
}

export async function clock(pool: Pool): Promise<Finding> {
  const beforeMs = Date.now();
  // SQL: the clock that decides all times.
  const { rows } = await pool.query<{ now: Date }>("SELECT clock_timestamp() AS now");
  const apartSeconds =
    Math.abs((rows[0]?.now.getTime() ?? 0) - (beforeMs + Date.now()) / 2) / 1_000;
  const says = `${durationOf(apartSeconds)} from this machine's`;
  const todo = "Synchronise both machines with NTP.";
  if (apartSeconds > CLOCK.wrong) return wrong("database clock", says, todo);
  return apartSeconds > CLOCK.warning
    ? warning("database clock", says, todo)
    : ok("database clock", says);
}

/** How long a standby may need to replay what the primary has now. */
const REPLAYED_WITHIN_MS = 5_000;

async function readReplica(pool: Pool, url: string): Promise<Finding[]> {
  const check = "read replica";
  const standby = createPool(url, {
    maxConnections: 1,
    applicationName: "purser-doctor",
    isReadOnly: true,
    isStandby: true,
    answerMs: REPLAYED_WITHIN_MS,
  });
  standby.on("error", () => undefined);
  const look = async (): Promise<Finding> => {
    const written = await identify(pool);
    const fromMs = performance.now();
    for (;;) {
      const replica = await identify(standby);
      const why = whyNotItsStandby(written, replica);
      if (why !== undefined)
        return wrong(check, `it ${why}`, "Set DATABASE_READ_URL to a standby of DATABASE_URL.");
      if (replica.lsn >= written.lsn) return ok(check, "follows the primary");
      if (performance.now() - fromMs > REPLAYED_WITHIN_MS)
        return warning(
          check,
          `is ${written.lsn - replica.lsn} bytes behind for more than ${durationOf(REPLAYED_WITHIN_MS / 1_000)}; reads use the primary`,
          "Check the standby's log, and pg_stat_replication on the primary.",
        );
      await sleep(LOOK_MS);
    }
  };
  try {
    return await found(check, look, {
      todo: "Check that DATABASE_READ_URL is right and that the standby is running. Reads use the primary meanwhile.",
      level: "warning",
    });
  } finally {
    await standby.end();
  }
}
const LOOK_MS = 100;

/** Before a start, pending ones are what the start is for. */
export async function migrations(pool: Pool, { isBeforeStart = false } = {}): Promise<Finding> {
  const check = "database migrations";
  // SQL: the table of migrations is not a Prisma model.
  const { rows } = await pool.query<{ name: string; checksum: string }>(
    "SELECT migration_name AS name, checksum FROM _prisma_migrations WHERE finished_at IS NOT NULL AND rolled_back_at IS NULL",
  );
  const own = new Map((await readMigrations()).map(({ name, checksum }) => [name, checksum]));
  const applied = new Set(rows.map(({ name }) => name));
  const pending = [...own.keys()].filter((name) => !applied.has(name));
  const other = rows.filter(({ name, checksum }) => own.has(name) && own.get(name) !== checksum);
  if (pending.length > 0 && !isBeforeStart)
    return wrong(
      check,
      `${pending.length} pending, first ${pending[0] ?? ""}`,
      "Start one replica of this build: it applies them.",
    );
  if (other.length > 0)
    return wrong(
      check,
      `${other[0]?.name ?? ""} was applied with different content`,
      "This database belongs to a different build. Check DATABASE_URL, or deploy that build.",
      "database_other_build",
    );
  const newer = rows.filter(({ name }) => !own.has(name));
  if (newer.length > 0)
    return warning(
      check,
      `${newer[0]?.name ?? ""} is from a newer build`,
      "Deploy the newer build, unless you went back on purpose.",
      "database_newer_build",
    );
  return ok(
    check,
    pending.length > 0
      ? `${pending.length} pending, first ${pending[0] ?? ""}: the start will apply them`
      : `all ${own.size} applied`,
  );
}

/** Compares the functions themselves with the files, and not only the table of installed functions. */
async function functions(pool: Pool): Promise<Finding> {
  const own = await readFunctions();
  const { files } = own;
  if ((await readInstalled(pool, own)) === "newer")
    return warning(
      "database functions",
      "they are from a newer build and also work with this one",
      "Deploy the newer build, unless you went back on purpose.",
    );
  // SQL: the catalogue.
  const { rows } = await pool.query<{ name: string; source: string }>(
    "SELECT proname AS name, prosrc AS source FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND proname LIKE 'purser\\_%'",
  );
  const there = new Map(rows.map(({ name, source }) => [name, source]));
  const differing = files
    .filter(({ name, sql }) => {
      const [, body] = /\$\$([\s\S]*)\$\$/.exec(sql) ?? [];
      return body === undefined ? !there.has(name) : there.get(name) !== body;
    })
    .map(({ name }) => name);
  if (differing.length > 0)
    return wrong(
      "database functions",
      `${differing.join(", ")}: missing, or different from this build`,
      "Start a replica of this build to install them. If they still differ, they were changed manually: delete their rows in purser_functions first.",
    );
  // SQL: the catalogue.
  const { rows: off } = await pool.query<{ name: string }>(
    `SELECT t.tgrelid::regclass || '.' || t.tgname AS name FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
      WHERE p.proname LIKE 'purser\\_%' AND t.tgenabled = 'D' ORDER BY 1`,
  );
  if (off.length > 0)
    return wrong(
      "database functions",
      `triggers are disabled: ${off.map(({ name }) => name).join(", ")}`,
      "ALTER TABLE ... ENABLE TRIGGER, and find out who disabled them.",
    );
  return ok("database functions", `all ${files.length} match this build`);
}

async function retention(pool: Pool, { retention: days }: Config): Promise<Finding> {
  // SQL: the size of the database, and whether old rows are deleted.
  const { rows } = await pool.query<{ bytes: bigint; events: Date | null; blocked: Date | null }>(
    `SELECT pg_database_size(current_database()) AS bytes, (SELECT min(created_at) FROM events) AS events,
            (SELECT min(created_at) FROM payments WHERE denial_code IS NOT NULL) AS blocked`,
  );
  const { bytes = 0n, events = null, blocked = null } = rows[0] ?? {};
  const size = `${(Number(bytes) / 2 ** 20).toFixed(0)} MiB`;
  const isLate = (oldest: Date | null, hours: number): boolean =>
    oldest !== null && Date.now() - oldest.getTime() > (hours + LATE_HOURS) * 3_600_000;
  return isLate(events, 48) || isLate(blocked, days.blockedDays * 24)
    ? warning(
        "database size",
        `${size}; old rows are not deleted`,
        "Retention runs every hour. Check the job queue and the log.",
      )
    : ok("database size", `${size}; old rows are deleted`);
}

async function jobs(pool: Pool): Promise<Finding> {
  // SQL: the job queue has its own schema.
  const { rows } = await pool.query<{ late: bigint; failed: bigint; task: string | null }>(
    `SELECT count(*) FILTER (WHERE attempts < max_attempts AND run_at < now() - make_interval(secs => $1)) AS late,
            count(*) FILTER (WHERE attempts >= max_attempts) AS failed,
            min(task_identifier) FILTER (WHERE attempts >= max_attempts OR run_at < now() - make_interval(secs => $1)) AS task
       FROM graphile_worker.jobs`,
    [DUE_SECONDS],
  );
  const { late = 0n, failed = 0n, task = null } = rows[0] ?? {};
  if (late > 0n)
    return warning(
      "job queue",
      `${late} due for more than ${durationOf(DUE_SECONDS)} (${task ?? ""})`,
      "Check that a replica is running, and search its log for `job queue`.",
    );
  return failed > 0n
    ? warning(
        "job queue",
        `${failed} failed for good (${task ?? ""})`,
        "Search the log for the failure. graphile_worker.jobs has the last error.",
      )
    : ok("job queue", "nothing is late");
}

async function waiting(pool: Pool): Promise<Finding> {
  // SQL: the oldest waiting item, in the engine's tables.
  const { rows } = await pool.query<{ chain: bigint; seconds: number; count: bigint }>(
    `SELECT chain_id AS chain, extract(epoch FROM clock_timestamp() - min(turn))::float8 AS seconds, count(*) AS count
       FROM settlements WHERE status = 'queued' AND (relay OR cancel_signature IS NOT NULL) GROUP BY chain_id
     HAVING min(turn) < clock_timestamp() - make_interval(secs => $1)`,
    [STUCK_SECONDS],
  );
  const [first] = rows;
  return first
    ? wrong(
        "payments waiting",
        `${first.count} on eip155:${first.chain}, the oldest for ${durationOf(first.seconds)}`,
        "Check that a replica is running, that its relayer has gas and that the RPC responds. See their lines.",
      )
    : ok("payments waiting", "none for long");
}

async function differences(prisma: PrismaClient): Promise<Finding> {
  const open = await countOpenDifferences(prisma);
  if (open.length === 0) return ok("ledger", "no open differences with the chain");
  const named = open.map(({ chainId, kind, count }) => `${count} ${kind} on eip155:${chainId}`);
  return wrong(
    "ledger",
    named.join(", "),
    "docs/operations/differences.md explains each kind; npm run operator -- heal-difference closes one that you have checked.",
  );
}

async function record(prisma: PrismaClient): Promise<Finding> {
  const head = await readOperatorHead(prisma);
  const verdict = await verifyOperators(readOperators(prisma), [head]);
  return verdict.ok
    ? ok("operators' record", "is intact")
    : wrong(
        "operators' record",
        `FAILED: entry ${verdict.seq} ${verdict.why}`,
        "Someone with superuser rights changed it. Compare with a backup, and restrict these rights.",
      );
}
