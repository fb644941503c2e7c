import { DatabaseError, Pool as PgPool, type PoolClient, TypeOverrides } from "pg";
import { urlsOfHosts } from "../../core/database-settings.ts";
import { isOfConnection, PrimaryClient, StandbyClient } from "./primary.ts";
import { SilenceWatch } from "./silence.ts";

/** int8 and whole NUMERIC become bigint, so that money is never a float. */
const INT8_OID = 20;
const NUMERIC_OID = 1700;
const types = new TypeOverrides();
types.setTypeParser(INT8_OID, (text: string) => BigInt(text));
types.setTypeParser(NUMERIC_OID, (text: string) => (text.includes(".") ? text : BigInt(text)));

export type Pool = PgPool;
/** For hand-written statements: the pool, or the client of the caller's transaction. */
export type Sql = Pick<PgPool, "query">;

/** The Postgres text format of bytes. */
export const bytea = (bytes: Uint8Array): string => `\\x${Buffer.from(bytes).toString("hex")}`;

/** Postgres' timeouts for a connection; 0 is none. */
interface Timeouts {
  statementMs: number;
  lockMs: number;
  idleInTransactionMs: number;
  /** True if its statements find rows by key only and never scan tables. */
  isByKey?: true;
}

/** A request's statement takes milliseconds; one that takes seconds is stuck. */
const REQUESTS = { statementMs: 5_000, lockMs: 2_000, idleInTransactionMs: 8_000 };

/**
 * `money` is for the hand-written statements about money. The engine writes batches. Jobs delete and count, and no
 * request waits for them.
 */
export const TIMEOUTS = {
  requests: REQUESTS,
  money: { ...REQUESTS, isByKey: true },
  engine: { statementMs: 8_000, lockMs: 2_500, idleInTransactionMs: 5_000, isByKey: true },
  jobs: { statementMs: 60_000, lockMs: 30_000, idleInTransactionMs: 60_000 },
  none: { statementMs: 0, lockMs: 0, idleInTransactionMs: 0 },
} as const satisfies Record<string, Timeouts>;

/**
 * Postgres settings for statements that find rows by key. A plan prepared while a table is small would scan all of it
 * when it is large, until the table is analyzed. And the plan is the same for every key: by default each connection
 * plans a statement anew five times, and one with short lists every time, which is a sixth of a burst's cost in
 * Postgres.
 */
const BY_KEY = ["-c enable_seqscan=off", "-c plan_cache_mode=force_generic_plan"];

/** How much longer than Postgres' own timeout we wait, so that its error comes first. */
const ANSWER_MARGIN_MS = 1_000;

/**
 * What all connections have in common. The settings are part of the startup message and cost no round trip. The time
 * zone is UTC, because Prisma's adapter writes and reads times without an offset. A transaction pooler does not pass
 * the settings on: there the role must have them, which is checked at start (settings.ts).
 */
export function connectionSettings(
  connectionString: string,
  timeouts: Timeouts,
  { isPooled = false, isReadOnly = false, isStandby = false } = {},
) {
  const urls = urlsOfHosts(connectionString).map((text) => new URL(text));
  const [first] = urls as [URL, ...URL[]];
  const settings = [
    // First, so that the operator's own settings override them.
    "-c TimeZone=UTC",
    `-c statement_timeout=${timeouts.statementMs}`,
    `-c lock_timeout=${timeouts.lockMs}`,
    `-c idle_in_transaction_session_timeout=${timeouts.idleInTransactionMs}`,
    ...(timeouts.isByKey ? BY_KEY : []),
    first.searchParams.get("options") ?? "",
    isReadOnly ? "-c default_transaction_read_only=on" : "",
  ];
  for (const url of urls) url.searchParams.delete("options");
  return {
    connectionString: first.href,
    urls: urls.map(({ href }) => href),
    isPooled,
    Client: (isStandby ? StandbyClient : PrimaryClient) as unknown as new () => PrimaryClient,
    ...(!isPooled && { options: settings.join(" ").trim() }),
    keepAlive: true,
    keepAliveInitialDelayMillis: 5_000,
    connectionTimeoutMillis: 5_000,
  };
}

export interface PoolOptions {
  maxConnections?: number;
  /** This many open connections are kept: a new one costs Postgres a login and its reads of the catalog. */
  keeps?: number;
  applicationName?: string;
  timeouts?: Timeouts;
  /** Shared by all pools of a process, so that one silent connection makes the others suspect. */
  silence?: SilenceWatch;
  /** The URL leads to a transaction pooler. */
  isPooled?: boolean;
  /** Postgres itself refuses every write. */
  isReadOnly?: boolean;
  /** The URL leads to a standby; otherwise only a primary is used. */
  isStandby?: boolean;
  /** We give up waiting for an answer after this, and close the connection. */
  answerMs?: number;
}

export function createPool(connectionString: string, options: PoolOptions = {}): Pool {
  const timeouts = options.timeouts ?? TIMEOUTS.requests;
  const pool = new PgPool({
    ...connectionSettings(connectionString, timeouts, options),
    types,
    max: options.maxConnections ?? 20,
    min: options.keeps ?? 0,
    idleTimeoutMillis: 30_000,
    application_name: options.applicationName ?? "purser",
    ...(options.answerMs !== undefined && {
      query_timeout: options.answerMs,
      connectionTimeoutMillis: options.answerMs,
    }),
  });
  watchSilence(pool, timeouts, options.silence ?? new SilenceWatch());
  return pool;
}

export function watchSilence(pool: PgPool, timeouts: Timeouts, silence: SilenceWatch): void {
  if (timeouts.statementMs === 0) return;
  pool.on("connect", (client) => silence.watch(client, timeouts.statementMs + ANSWER_MARGIN_MS));
  pool.on("acquire", (client) => silence.setIdle(client, false));
  pool.on("release", (_error, client) => silence.setIdle(client, true));
}

/** Runs `work` in one transaction on one connection; rolls back on any throw. */
export async function inTransaction<T>(
  pool: Pool,
  work: (sql: PoolClient) => Promise<T>,
): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    // SQL: a transaction for hand-written statements.
    await client.query("BEGIN");
    const result = await work(client);
    // SQL: the end of that transaction.
    await client.query("COMMIT");
    return result;
  } catch (error) {
    // SQL: the end of that transaction.
    await client.query("ROLLBACK").catch((rollbackError: unknown) => {
      broken = rollbackError instanceof Error ? rollbackError : new Error(String(rollbackError));
    });
    throw error;
  } finally {
    // A connection that failed to roll back is not reused.
    client.release(broken);
  }
}

/**
 * When a server goes away, its connections end, also between two queries of their holder or while the pool is closing
 * them. Without a listener each of these errors would crash the process.
 */
export function surviveLostConnections(pool: PgPool, onLost: (error: Error) => void): void {
  pool.on("error", onLost);
  pool.on("connect", (client) => client.on("error", onLost));
}

/**
 * Prisma's error codes. P1001, P1002, P1008: not reached, or not in time. P1017: closed. P2024, P2028: the pool had no
 * free connection in time. P2037: too many connections.
 */
const PRISMA_CODES = new Set(["P1001", "P1002", "P1008", "P1017", "P2024", "P2028", "P2037"]);
/** The same conditions in the driver adapter. */
const ADAPTER_KINDS = new Set([
  "DatabaseNotReachable",
  "ConnectionClosed",
  "SocketTimeout",
  "TlsConnectionError",
  "TooManyConnections",
]);
const MESSAGES =
  /Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error|the database system is (starting up|shutting down)|Can't reach database server|Cannot use a pool after calling end/;

/**
 * True if the error means "the database cannot be used right now": it is away, full, or read-only. Callers get a 503
 * instead of a 500.
 */
export function isDatabaseUnavailable(error: unknown): boolean {
  return sources(error).some(({ error: source, code = "", kind = "", originalCode = "" }) => {
    const isKnown = isOfConnection(source) || PRISMA_CODES.has(code) || ADAPTER_KINDS.has(kind);
    return isKnown || isOutage(code) || isOutage(originalCode) || MESSAGES.test(source.message);
  });
}

/** The reason of a fault in one line. Prisma writes it last, below its own code. */
export function lineOf(error: Error): string {
  const lines = error.message.split("\n").filter((line) => line.trim() !== "");
  return (error.message.startsWith("\n") ? lines.at(-1) : lines[0])?.trim() || error.name;
}

/** For an operator's command: what to do where the database cannot be used. */
export const explainOutage = (error: unknown): string | undefined =>
  error instanceof Error && isDatabaseUnavailable(error)
    ? `The database cannot be used: ${lineOf(error)}\nCheck that DATABASE_URL is right and that Postgres is running.`
    : undefined;

/** 08*: connection exceptions. 57P01..03: shutdown, crash, starting up. 53300: too many connections. */
const isConnectionState = (sqlState: string): boolean =>
  sqlState.startsWith("08") || sqlState.startsWith("57P0") || sqlState === "53300";

/** Postgres: there is no room for what it would write. */
export const DISK_FULL = "53100";

/** 53*: the disk is full, there is no memory, or there are too many connections. 58030: reading or writing failed. */
const isOutage = (sqlState: string): boolean =>
  isConnectionState(sqlState) ||
  /^53[0-9A-Z]{3}$/.test(sqlState) ||
  sqlState === "58030" ||
  TIMEOUT_STATES.has(sqlState);

/** 22021: invalid byte sequence. 22P05: a jsonb escape that is no character. */
const TEXT_STATES = new Set(["22021", "22P05"]);

/**
 * True if Postgres refused a text, such as one with NUL, which it can neither store nor compare. Any text of a caller
 * may end in a query, so it is handled here once and not in each schema.
 */
export const isTextRefused = (error: unknown): boolean => isRaised(error, TEXT_STATES);

const isRaised = (error: unknown, states: ReadonlySet<string>): boolean =>
  sources(error).some(
    ({ code, originalCode }) => states.has(code ?? "") || states.has(originalCode ?? ""),
  );

interface Source {
  error: Error;
  code: string | undefined;
  /** From the driver adapter: the kind of error, and Postgres' own code. */
  kind: string | undefined;
  originalCode: string | undefined;
}

/** The error, its causes, and the driver's error that Prisma keeps in `meta`. */
export function sources(error: unknown, depth = 0): Source[] {
  if (!(error instanceof Error) || depth > 4) return [];
  const { code, cause, meta } = error as Error & {
    code?: unknown;
    meta?: { driverAdapterError?: unknown };
  };
  const { kind, originalCode } = (cause ?? {}) as { kind?: unknown; originalCode?: unknown };
  const text = (value: unknown) => (typeof value === "string" ? value : undefined);
  return [
    { error, code: text(code), kind: text(kind), originalCode: text(originalCode) },
    ...sources(cause, depth + 1),
    ...sources(meta?.driverAdapterError, depth + 1),
  ];
}

/** SQLSTATEs that our SQL functions raise. When one is raised, nothing was written. */

/** `purser_lane_persist`: this process no longer holds the lane. */
export const LEASE_LOST = "PU001";
/** `purser_lane_persist`: an item now belongs to another claim. */
export const CLAIM_LOST = "PU002";
/** `purser_submit_payment`: the reservation was released before its authorization was accepted. */
export const RESERVATION_GONE = "PU004";
/** `purser_gas_accepted`: a gas budget is used up; the detail names the accounts whose payments do not fit. */
export const GAS_EXHAUSTED = "PU005";
/** `purser_assert_not_stopped`: the owner stopped everything meanwhile. */
export const OWNER_STOPPED = "PU006";
const OWNER_STATES = new Set([OWNER_STOPPED]);
export const isOwnerStop = (error: unknown): boolean => isRaised(error, OWNER_STATES);

/** `purser_assert_not_moved`: the owner moves, or has moved, to another cell. */
export const OWNER_MOVED = "PU007";
const MOVED_STATES = new Set([OWNER_MOVED]);
const NEW_PLACE = /the owner is in the cell (\S+) at ([^\s`"]+)/;

/** Where the owner is, if a statement was refused because it is no longer here. */
export function movedTo(error: unknown): { cell: string; url: string } | undefined {
  if (!isRaised(error, MOVED_STATES)) return undefined;
  for (const { error: source } of sources(error)) {
    const { message } = (source.cause ?? {}) as { message?: unknown };
    const [, cell, url] = NEW_PLACE.exec(`${source.message}\n${String(message)}`) ?? [];
    if (cell !== undefined && url !== undefined) return { cell, url };
  }
  throw new Error("an owner moved, and the error does not say where", { cause: error });
}

/** Postgres: a lock could not be acquired within `lock_timeout`. */
export const LOCK_TIMEOUT = "55P03";
/** Postgres: a statement took longer than `statement_timeout`. */
const QUERY_CANCELED = "57014";
export const isStatementTimeout = (error: unknown): boolean =>
  isRaised(error, new Set([QUERY_CANCELED]));
/**
 * True if a standby canceled the read, because replaying the primary's changes would have had to wait for it. P2034:
 * Prisma's name for the same code.
 */
export const isRecoveryConflict = (error: unknown): boolean =>
  isRaised(error, new Set(["40001", "P2034"]));
/** Postgres: a transaction was idle for longer than `idle_in_transaction_session_timeout`. */
const IDLE_IN_TRANSACTION = "25P03";

/** Postgres: a write on a read-only server, which used to be the primary. */
const READ_ONLY = "25006";

/** Postgres gave up waiting or working: a moment of too much load, something stuck, or the wrong server. */
const TIMEOUT_STATES = new Set([QUERY_CANCELED, LOCK_TIMEOUT, IDLE_IN_TRANSACTION, READ_ONLY]);

/**
 * True if Postgres itself refused: everything that the statement or its transaction did is undone. After any other
 * failure it is unknown whether it was carried out, because only the response may have been lost.
 */
export const wasRolledBack = (error: unknown): boolean =>
  error instanceof DatabaseError && error.code !== undefined && !isConnectionState(error.code);

/** True if the error is a violation of this constraint. */
export const violates = (error: unknown, constraint: string): boolean =>
  error instanceof DatabaseError && error.constraint === constraint;

export const sqlState = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && typeof error.code === "string"
    ? error.code
    : undefined;
