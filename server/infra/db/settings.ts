/**
 * Checks the database before any money is moved: sessions must not go through a transaction pooler, the role must have
 * the settings that a pooler does not pass on, and confirmed commits must be durable.
 */
import type { DatabaseSettings } from "../../core/database-settings.ts";
import { connectionsInAll } from "../../core/worker-settings.ts";
import {
  connectionSettings,
  createPool,
  DISK_FULL,
  inTransaction,
  isDatabaseUnavailable,
  sqlState,
  TIMEOUTS,
  type Pool,
  type Sql,
} from "./pool.ts";
import { PrimaryClient, type PrimaryConfig } from "./primary.ts";
import { identify, whyNotItsStandby } from "./read-replica.ts";

/** Its message is one sentence for the operator. */
export class UnfitDatabase extends Error {
  override name = "UnfitDatabase";
}

const POOLER_WITHOUT_DIRECT =
  "DATABASE_URL leads to a connection pooler (such as PgBouncer), which does not support LISTEN, advisory locks, named statements and our time limits. Set DATABASE_DIRECT_URL to Postgres itself and keep the pooler in DATABASE_URL, or set DATABASE_URL to Postgres itself";
const POOLER_AS_DIRECT =
  "DATABASE_DIRECT_URL leads to a connection pooler (such as PgBouncer). Set it to Postgres itself";

const REPLICA_ANSWER_MS = 3_000;

/** A setting that Postgres does not know, so it returns what we sent; a pooler refuses it or drops it. */
const MARK = "purser.direct";

/** Throws UnfitDatabase; returns notes for the operator, one sentence each. */
export async function checkDatabase(
  settings: DatabaseSettings & { workers?: number },
): Promise<string[]> {
  const { databaseUrl, databasePooledUrl, databaseReadUrl } = settings;
  if (databaseUrl === undefined) return [];
  const base = connectionSettings(databaseUrl, TIMEOUTS.jobs);
  const marked = { ...base, options: `${base.options ?? ""} -c ${MARK}=1` };
  const refusal = databasePooledUrl === undefined ? POOLER_WITHOUT_DIRECT : POOLER_AS_DIRECT;
  const direct = await withConnection(marked, async (sql) => {
    // SQL: whether our settings arrive.
    const { rows } = await sql.query<{ mark: string | null }>(
      `SELECT current_setting('${MARK}', true) AS mark`,
    );
    if (rows[0]?.mark !== "1") throw new UnfitDatabase(refusal);
    const notes = [
      ...(await durabilityNotes(sql, base.urls.length)),
      ...(await connectionNotes(sql, settings.workers ?? 1)),
      ...(databaseReadUrl === undefined ? [] : await readReplicaNotes(sql, databaseReadUrl)),
    ];
    return { place: await placeOf(sql), notes };
  }).catch((error: unknown) => {
    if (/unsupported startup parameter/.test((error as Error).message))
      throw new UnfitDatabase(refusal, { cause: error });
    throw error;
  });
  if (databasePooledUrl === undefined) return direct.notes;
  await withConnection(
    connectionSettings(databasePooledUrl, TIMEOUTS.requests, { isPooled: true }),
    async (sql) => {
      if ((await placeOf(sql)) !== direct.place)
        throw new UnfitDatabase(
          "DATABASE_URL and DATABASE_DIRECT_URL lead to different databases. They must lead to the same one",
        );
      await assertRoleSettings(sql);
    },
  );
  return direct.notes;
}

/** Refuses a server that is no standby of the primary. One that cannot be reached now is not used until it can be. */
async function readReplicaNotes(primary: Sql, url: string): Promise<string[]> {
  const pool = createPool(url, {
    maxConnections: 1,
    isReadOnly: true,
    isStandby: true,
    answerMs: REPLICA_ANSWER_MS,
  });
  pool.on("error", () => undefined);
  try {
    const replica = await identify(pool);
    const why = whyNotItsStandby(await identify(primary), replica);
    if (why === undefined) return [];
    throw new UnfitDatabase(
      `DATABASE_READ_URL ${why}. Set it to a streaming standby of DATABASE_URL, or remove it`,
    );
  } catch (error) {
    if (!isDatabaseUnavailable(error)) throw error;
    return [
      "DATABASE_READ_URL cannot be reached. Lists, sums and exports use the primary until it can be.",
    ];
  } finally {
    await pool.end();
  }
}

async function withConnection<T>(
  config: PrimaryConfig,
  work: (sql: Sql) => Promise<T>,
): Promise<T> {
  const client = new PrimaryClient(config);
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** An identifier of the database that is equal for two routes to it. */
async function placeOf(sql: Sql): Promise<string> {
  // SQL: which database of which server this is.
  const { rows } = await sql.query<{ place: string }>(
    `SELECT concat_ws(' ', oid, datname, extract(epoch FROM pg_postmaster_start_time())) AS place
       FROM pg_database WHERE datname = current_database()`,
  );
  return rows[0]?.place ?? "";
}

/** Settings that every direct connection sends. Behind a pooler the role must have them. */
const NEEDED = [
  { name: "statement_timeout", mostMs: TIMEOUTS.requests.statementMs },
  { name: "lock_timeout", mostMs: TIMEOUTS.requests.lockMs },
  {
    name: "idle_in_transaction_session_timeout",
    mostMs: TIMEOUTS.requests.idleInTransactionMs,
  },
];

async function assertRoleSettings(sql: Sql): Promise<void> {
  // SQL: the session's settings behind the pooler. We have already raised synchronous_commit, so its reset value is
  // read.
  const { rows } = await sql.query<{ name: string; setting: string; whose: string }>(
    `SELECT name, CASE name WHEN 'synchronous_commit' THEN reset_val ELSE setting END AS setting,
            format('ALTER ROLE %I IN DATABASE %I', current_user, current_database()) AS whose
       FROM pg_settings WHERE name = ANY($1)`,
    [["TimeZone", "synchronous_commit", ...NEEDED.map(({ name }) => name)]],
  );
  const found = new Map(rows.map(({ name, setting }) => [name, setting]));
  const missing = NEEDED.filter(({ name, mostMs }) => {
    const ms = Number(found.get(name));
    return !(ms > 0 && ms <= mostMs);
  }).map(({ name, mostMs }) => `${name} = '${mostMs}ms'`);
  if (found.get("TimeZone") !== "UTC") missing.unshift("timezone = 'UTC'");
  if (["off", "local"].includes(found.get("synchronous_commit") ?? ""))
    missing.push("synchronous_commit = 'on'");
  if (missing.length === 0) return;
  const statements = missing.map((setting) => `${rows[0]?.whose} SET ${setting};`);
  throw new UnfitDatabase(
    `DATABASE_URL leads to a pooler, which carries no settings of ours, so the role must have them. In Postgres: ${statements.join(" ")} Then let the pooler connect anew (in PgBouncer's console: RECONNECT)`,
  );
}

interface Durability {
  fsync: boolean;
  fullPageWrites: boolean;
  /** The database's own setting; our connections raise it to "on" if it is lower. */
  synchronousCommit: string;
  /** Commits wait for a standby. */
  waitsForStandby: boolean;
  /** How many commits of this role wait for a standby now, and for how long the oldest has. */
  waiting: number;
}

export async function readDurability(sql: Sql): Promise<Durability> {
  // SQL: settings of the server, and what its processes wait for.
  const { rows } = await sql.query<Durability>(
    `SELECT current_setting('fsync')::boolean AS fsync,
            current_setting('full_page_writes')::boolean AS "fullPageWrites",
            (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit') AS "synchronousCommit",
            current_setting('synchronous_standby_names') <> '' AS "waitsForStandby",
            (SELECT count(*)::int FROM pg_stat_activity
              WHERE wait_event = 'SyncRep' AND state_change < clock_timestamp() - interval '2 seconds') AS waiting`,
  );
  return rows[0] as Durability;
}

/** For `/api/ready`. Every replica sees the same, so none becomes less ready because of it. */
export function describeDurability({ waitsForStandby, waiting }: Durability): string {
  if (waiting > 0)
    return `degraded: ${waiting} commits wait for a standby, and none confirms them (synchronous_standby_names)`;
  return waitsForStandby ? "answers; every commit waits for a standby" : "answers";
}

/** 42883: no such function. 42501: this role may not call it. 0A000: not supported. */
const LACKS_MESSAGE = new Set(["42883", "42501", "0A000"]);

/**
 * Whether the database can write. Leaves nothing in any table: it writes a message of a few bytes to the WAL and waits
 * until it is on the disk, and 10,000 numbers that do not fit into memory go through a temporary file on the disk of
 * the tables. A standby that does not confirm is reported elsewhere. A service that is only compatible with Postgres may
 * lack the message: there, only its own word that it is read-only counts.
 */
export async function readWritability(
  pool: Pool,
): Promise<"writable" | "it is read-only" | "its disk is full"> {
  // SQL: a setting.
  const readOnly = `SELECT current_setting('transaction_read_only') AS "readOnly"`;
  const read = async (sql: Pick<Sql, "query">, text: string) => {
    const { rows } = await sql.query<{ readOnly: string }>(text);
    return rows[0]?.readOnly === "on" ? "it is read-only" : "writable";
  };
  try {
    return await inTransaction(pool, async (sql) => {
      // SQL: for this transaction only.
      await sql.query(
        "SET LOCAL synchronous_commit = local; SET LOCAL work_mem = '64kB'; SET LOCAL temp_tablespaces = ''",
      );
      // SQL: also a message to nobody, and a temporary file.
      return read(
        sql,
        `${readOnly}, pg_logical_emit_message(true, 'purser', 'ready'), (SELECT count(*) FROM generate_series(1, 10000))`,
      );
    });
  } catch (error) {
    const state = sqlState(error) ?? "";
    if (state === DISK_FULL) return "its disk is full";
    if (LACKS_MESSAGE.has(state)) return read(pool, readOnly);
    throw error;
  }
}

/** Notes only with several workers: one process needs as many connections as before. */
async function connectionNotes(sql: Sql, workers: number): Promise<string[]> {
  if (workers === 1) return [];
  // SQL: settings of the server. Connections that are reserved for superusers are not for us.
  const { rows } = await sql.query<{ most: number }>(
    `SELECT current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int AS most`,
  );
  const most = rows[0]?.most ?? 0;
  const wanted = connectionsInAll({ workers });
  return wanted <= most
    ? []
    : [
        `WORKERS=${workers} may open ${wanted} connections to the database, which allows ${most} (max_connections without superuser_reserved_connections). Raise max_connections, set a smaller WORKERS, or put a pooler in front (DATABASE_DIRECT_URL).`,
      ];
}

async function durabilityNotes(sql: Sql, hosts: number): Promise<string[]> {
  const { fsync, fullPageWrites, synchronousCommit, waitsForStandby } = await readDurability(sql);
  return [
    ...(fsync && fullPageWrites
      ? []
      : [
          "The database runs with fsync or full_page_writes off. If its machine fails, confirmed payments can be lost and paid again. Turn both on.",
        ]),
    ...(synchronousCommit === "off" || synchronousCommit === "local"
      ? [
          `The database's default is synchronous_commit=${synchronousCommit}, which confirms a commit before it is safe. Our connections use "on"; set it for all others.`,
        ]
      : []),
    ...(hosts > 1 && !waitsForStandby
      ? [
          "DATABASE_URL has several hosts, but no commit waits for a standby (synchronous_standby_names is empty). A failover can lose the last confirmed payments, and they may be paid again.",
        ]
      : []),
  ];
}
