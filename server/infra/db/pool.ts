import { Pool as PgPool, TypeOverrides, Client, type ClientBase, type PoolClient } from "pg";
import { EventEmitter } from "node:events";

/** int8 as bigint and whole NUMERIC as bigint: money never becomes a float on its way out. */
const INT8_OID = 20;
const NUMERIC_OID = 1700;
const types = new TypeOverrides();
types.setTypeParser(INT8_OID, (text: string) => BigInt(text));
types.setTypeParser(NUMERIC_OID, (text: string) => (text.includes(".") ? text : BigInt(text)));

export type Pool = PgPool;
/** What a statement written by hand takes: the pool, or the client that holds the caller's transaction. */
export type Sql = Pick<PgPool, "query">;

export function createPool(
  connectionString: string,
  options: { maxConnections?: number; applicationName?: string } = {},
): Pool {
  return new PgPool({
    connectionString,
    types,
    max: options.maxConnections ?? 20,
    connectionTimeoutMillis: 5_000,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    application_name: options.applicationName ?? "purser",
    // The pool waits for it, which its types do not say.
    onConnect: (client): unknown => speakUtc(client),
  });
}

/** Prisma's adapter writes and reads times without their offset: right only where the session is in UTC. */
async function speakUtc(client: ClientBase): Promise<void> {
  // SQL: a setting of the connection, which no model has.
  await client.query("SET TIME ZONE 'UTC'");
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
    }
    if (source.kind !== undefined && ADAPTER_KINDS.has(source.kind)) return true;
    if (source.originalCode !== undefined && isConnectionState(source.originalCode)) return true;
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
/** `purser_lane_persist`: the day's gas for facilitated work is used up. */
export const OVER_GAS_CEILING = "PU003";
/** `purser_submit_payment`: the reservation was released before its authorization was accepted. */
export const RESERVATION_GONE = "PU004";

/** One of Postgres' own: a lock was not to be had within `lock_timeout`. */
export const LOCK_TIMEOUT = "55P03";

export const sqlState = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && typeof error.code === "string"
    ? error.code
    : undefined;

/** One dedicated connection that listens for NOTIFY, and comes back by itself when it is lost. */

const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 5_000;

interface ListenerOptions {
  connectionString: string;
  /** After each (re)connection: words may have been missed, so whoever waits must look again. */
  onConnected?: () => void;
  onTrouble?: (error: unknown) => void;
}

export class Listener {
  readonly #options: ListenerOptions;
  readonly #events = new EventEmitter();
  readonly #channels = new Set<string>();
  #client: Client | undefined;
  #retryMs = FIRST_RETRY_MS;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: ListenerOptions) {
    this.#options = options;
  }

  on(channel: string, handler: (payload: string) => void): void {
    this.#channels.add(channel);
    this.#events.on(channel, handler);
  }

  /** Never throws: an unreachable database is tried again in the background. */
  async connect(): Promise<void> {
    if (this.#closed) return;
    const client = new Client({
      connectionString: this.#options.connectionString,
      keepAlive: true,
      connectionTimeoutMillis: 5_000,
      application_name: "purser listener",
    });
    client.on("notification", ({ channel, payload }) => {
      this.#events.emit(channel, payload ?? "");
    });
    let lost = false;
    const lose = (error: unknown): void => {
      if (lost || this.#closed) return;
      lost = true;
      this.#client = undefined;
      void quietly(client);
      this.#options.onTrouble?.(error);
      this.#timer = setTimeout(() => void this.connect(), this.#retryMs);
      this.#timer.unref();
      this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS);
    };
    client.on("error", lose);
    client.on("end", () => lose(new Error("the connection ended")));
    try {
      await client.connect();
      for (const channel of this.#channels) await client.query(`LISTEN ${channel}`);
      // Closed while it was still connecting: nobody else knows this connection.
      if (this.#closed) return void quietly(client);
      this.#client = client;
      this.#retryMs = FIRST_RETRY_MS;
      this.#options.onConnected?.();
    } catch (error) {
      lose(error);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    if (this.#client) await quietly(this.#client);
  }
}

/** A connection that is gone already needs no farewell. */
async function quietly(client: Client): Promise<void> {
  try {
    await client.end();
  } catch {
    // Nothing is left to end.
  }
}
