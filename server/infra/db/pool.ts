import { DatabaseError, Pool as PgPool, type PoolClient, TypeOverrides } from "pg";
import { urlsOfHosts } from "../../core/database-settings.ts";
import { PrimaryClient } from "./primary.ts";
import { SilenceWatch } from "./silence.ts";

/** int8 as bigint and whole NUMERIC as bigint: money never becomes a float on its way out. */
const INT8_OID = 20;
const NUMERIC_OID = 1700;
const types = new TypeOverrides();
types.setTypeParser(INT8_OID, (text: string) => BigInt(text));
types.setTypeParser(NUMERIC_OID, (text: string) => (text.includes(".") ? text : BigInt(text)));

export type Pool = PgPool;
/** What a statement written by hand takes: the pool, or the client that holds the caller's transaction. */
export type Sql = Pick<PgPool, "query">;

/** How long Postgres works or waits for us before it gives up by itself; 0 is for ever. */
export interface Patience {
  statementMs: number;
  lockMs: number;
  idleInTransactionMs: number;
  /** Its statements look for rows and never for tables. */
  isByKey?: true;
}

/** A request's statement takes milliseconds: one that takes seconds waits for something that is stuck. */
const REQUESTS = { statementMs: 5_000, lockMs: 2_000, idleInTransactionMs: 8_000 };

/** Those about money are written by hand. The engine writes batches. Jobs delete and count; nobody waits for them. */
export const PATIENCE = {
  requests: REQUESTS,
  money: { ...REQUESTS, isByKey: true },
  engine: { statementMs: 8_000, lockMs: 2_500, idleInTransactionMs: 5_000, isByKey: true },
  jobs: { statementMs: 60_000, lockMs: 30_000, idleInTransactionMs: 60_000 },
  none: { statementMs: 0, lockMs: 0, idleInTransactionMs: 0 },
} as const satisfies Record<string, Patience>;

/**
 * What is prepared while a table is small would read all of it when it is large, until somebody analyzes it. And a plan
 * for a key is the same for every key: planned for its values, each connection plans a statement five times anew, and
 * one with short lists every time; that is a sixth of what a burst costs Postgres.
 */
const BY_KEY = ["-c enable_seqscan=off", "-c plan_cache_mode=force_generic_plan"];

/** How much longer we listen than Postgres may work: then its own refusal comes first. */
const ANSWER_MARGIN_MS = 1_000;

/**
 * What every connection has in common. Settings travel with the connection's first message and cost no round
 * trip. UTC, because Prisma's adapter writes and reads times without their offset. A transaction pooler knows no
 * such settings: what they say is the role's own there, and held to at start (settings.ts).
 */
export function connectionSettings(
  connectionString: string,
  patience: Patience,
  { isPooled = false, isReadOnly = false } = {},
) {
  const urls = urlsOfHosts(connectionString).map((text) => new URL(text));
  const [first] = urls as [URL, ...URL[]];
  const settings = [
    // First, so that an operator's own win.
    "-c TimeZone=UTC",
    `-c statement_timeout=${patience.statementMs}`,
    `-c lock_timeout=${patience.lockMs}`,
    `-c idle_in_transaction_session_timeout=${patience.idleInTransactionMs}`,
    ...(patience.isByKey ? BY_KEY : []),
    first.searchParams.get("options") ?? "",
    isReadOnly ? "-c default_transaction_read_only=on" : "",
  ];
  for (const url of urls) url.searchParams.delete("options");
  return {
    connectionString: first.href,
    urls: urls.map(({ href }) => href),
    isPooled,
    Client: PrimaryClient as unknown as new () => PrimaryClient,
    ...(!isPooled && { options: settings.join(" ").trim() }),
    keepAlive: true,
    keepAliveInitialDelayMillis: 5_000,
    connectionTimeoutMillis: 5_000,
  };
}

export interface PoolOptions {
  maxConnections?: number;
  /** So many of those once opened stay open: a new one costs Postgres a login and all it reads of the catalog. */
  keeps?: number;
  applicationName?: string;
  patience?: Patience;
  /** Shared by all of a process, so that one silent connection makes the others suspect. */
  silence?: SilenceWatch;
  /** The URL leads to a transaction pooler. */
  isPooled?: boolean;
  /** Postgres itself refuses whatever would write. */
  isReadOnly?: boolean;
}

export function createPool(connectionString: string, options: PoolOptions = {}): Pool {
  const patience = options.patience ?? PATIENCE.requests;
  const pool = new PgPool({
    ...connectionSettings(connectionString, patience, options),
    types,
    max: options.maxConnections ?? 20,
    min: options.keeps ?? 0,
    idleTimeoutMillis: 30_000,
    application_name: options.applicationName ?? "purser",
  });
  watchSilence(pool, patience, options.silence ?? new SilenceWatch());
  return pool;
}

export function watchSilence(pool: PgPool, patience: Patience, silence: SilenceWatch): void {
  if (patience.statementMs === 0) return;
  pool.on("connect", (client) => silence.watch(client, patience.statementMs + ANSWER_MARGIN_MS));
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
    // SQL: a transaction of the statements that are written by hand.
    await client.query("BEGIN");
    const result = await work(client);
    // SQL: its end, either way.
    await client.query("COMMIT");
    return result;
  } catch (error) {
    // SQL: its end, either way.
    await client.query("ROLLBACK").catch((rollbackError: unknown) => {
      broken = rollbackError instanceof Error ? rollbackError : new Error(String(rollbackError));
    });
    throw error;
  } finally {
    // A connection that could not roll back is not given to the next caller.
    client.release(broken);
  }
}

/**
 * A server that goes away ends connections also while somebody holds them between two queries, or while the
 * pool is closing them. Without a listener each such end would take the whole process with it.
 */
export function surviveLostConnections(pool: PgPool, onLost: (error: Error) => void): void {
  pool.on("error", onLost);
  pool.on("connect", (client) => client.on("error", onLost));
}

const SOCKET_CODES = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ENOTFOUND",
  "ETIMEDOUT",
  "ENOENT",
  "EHOSTUNREACH",
]);
/**
 * Prisma's words for it. P1001, P1002, P1008: not reached, or not in time. P1017: closed. P2024, P2028: no
 * connection of the pool became free in time. P2037: too many connections.
 */
const PRISMA_CODES = new Set(["P1001", "P1002", "P1008", "P1017", "P2024", "P2028", "P2037"]);
/** What the driver adapter calls the same. */
const ADAPTER_KINDS = new Set([
  "DatabaseNotReachable",
  "ConnectionClosed",
  "SocketTimeout",
  "TooManyConnections",
]);
const MESSAGES =
  /Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error|the database system is (starting up|shutting down)|Can't reach database server|Cannot use a pool after calling end/;

/** Says whether an error means "the database cannot be reached right now", for a 503 instead of a 500. */
export function isDatabaseUnavailable(error: unknown): boolean {
  return sources(error).some((source) => {
    const code = source.code;
    if (code !== undefined) {
      if (SOCKET_CODES.has(code) && isFromPostgres(source.error)) return true;
      if (PRISMA_CODES.has(code) || isConnectionState(code)) return true;
      if (PATIENCE_STATES.has(code)) return true;
    }
    if (source.kind !== undefined && ADAPTER_KINDS.has(source.kind)) return true;
    if (source.originalCode !== undefined && isConnectionState(source.originalCode)) return true;
    if (source.originalCode !== undefined && PATIENCE_STATES.has(source.originalCode)) return true;
    return MESSAGES.test(source.error.message);
  });
}

/** 08*: connection exceptions. 57P01..03: shutdown, crash, starting up. 53300: too many connections. */
const isConnectionState = (sqlState: string): boolean =>
  sqlState.startsWith("08") || sqlState.startsWith("57P0") || sqlState === "53300";

/** 22021: invalid byte sequence. 22P05: a jsonb escape that is no character. */
const TEXT_STATES = new Set(["22021", "22P05"]);

/**
 * Says whether Postgres refused a text: NUL cannot be stored or looked for. Every text of a caller
 * ends in a query, so it is told here once instead of in each schema.
 */
export const isTextRefused = (error: unknown): boolean =>
  sources(error).some(
    ({ code, originalCode }) => TEXT_STATES.has(code ?? "") || TEXT_STATES.has(originalCode ?? ""),
  );

interface Source {
  error: Error;
  code: string | undefined;
  /** Of the driver adapter: what happened, and Postgres' own code. */
  kind: string | undefined;
  originalCode: string | undefined;
}

/** The error, its causes, and what Prisma keeps of the driver's error beside them (`meta`). */
function sources(error: unknown, depth = 0): Source[] {
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

/** Outbound HTTP raises the same socket codes: only those that came through pg or Prisma count here. */
function isFromPostgres(error: Error): boolean {
  return (
    /node_modules\/(pg|pg-pool|@prisma)\b/.test(error.stack ?? "") ||
    error.name.startsWith("Prisma") ||
    error.name === "DriverAdapterError"
  );
}

/** The SQLSTATEs our own functions raise. When one is raised, nothing was written. */

/** `purser_lane_persist`: this process holds the lane no more. */
export const LEASE_LOST = "PU001";
/** `purser_lane_persist`: an item belongs to another claim by now. */
export const CLAIM_LOST = "PU002";
/** `purser_submit_payment`: the reservation was released before its authorization was accepted. */
export const RESERVATION_GONE = "PU004";
/** `purser_gas_accepted`: a gas budget is used up; the detail names whose payments do not fit. */
export const GAS_EXHAUSTED = "PU005";

/** One of Postgres' own: a lock was not to be had within `lock_timeout`. */
export const LOCK_TIMEOUT = "55P03";
/** A statement took longer than `statement_timeout`. */
export const QUERY_CANCELED = "57014";
/** A transaction was left alone for longer than `idle_in_transaction_session_timeout`. */
export const IDLE_IN_TRANSACTION = "25P03";

/** A statement that writes met a server that only reads: it was the primary, and is not any more. */
export const READ_ONLY = "25006";

/** Postgres gave up waiting or working: a moment of too much load, something stuck, or the wrong server. */
const PATIENCE_STATES = new Set([QUERY_CANCELED, LOCK_TIMEOUT, IDLE_IN_TRANSACTION, READ_ONLY]);

/**
 * Postgres itself refused: whatever the statement or its transaction had done is undone. Any other failure
 * leaves open whether it was carried out: the answer may be all that was lost.
 */
export const wasRolledBack = (error: unknown): boolean =>
  error instanceof DatabaseError && error.code !== undefined && !isConnectionState(error.code);

/** Somebody else has what may be there once. */
export const isTaken = (error: unknown, constraint: string): boolean =>
  error instanceof DatabaseError && error.constraint === constraint;

export const sqlState = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && typeof error.code === "string"
    ? error.code
    : undefined;
