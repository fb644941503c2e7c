import { Pool as PgPool, type PoolClient, TypeOverrides } from "pg";

/** int8 as bigint and whole NUMERIC as bigint: money never becomes a float on its way out. */
const INT8_OID = 20;
const NUMERIC_OID = 1700;
const types = new TypeOverrides();
types.setTypeParser(INT8_OID, (text: string) => BigInt(text));
types.setTypeParser(NUMERIC_OID, (text: string) => (text.includes(".") ? text : BigInt(text)));

export type Pool = PgPool;
/** What a store takes: the pool, or the client that holds the caller's transaction. */
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
  });
}

/** Runs `work` in one transaction on one connection; rolls back on any throw. */
export async function inTransaction<T>(
  pool: Pool,
  work: (sql: PoolClient) => Promise<T>,
): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    await client.query("BEGIN");
    const result = await work(client);
    await client.query("COMMIT");
    return result;
  } catch (error) {
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

/** Says whether an error means "the database cannot be reached right now", for a 503 instead of a 500. */
const SOCKET_CODES = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ENOTFOUND",
  "ETIMEDOUT",
  "ENOENT",
  "EHOSTUNREACH",
]);
const MESSAGES =
  /Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error|the database system is (starting up|shutting down)|Can't reach database server|Cannot use a pool after calling end/;

export function isDatabaseUnavailable(error: unknown, depth = 0): boolean {
  if (!(error instanceof Error) || depth > 4) return false;
  const code = (error as { code?: unknown }).code;
  if (typeof code === "string") {
    // 08*: connection exceptions. 57P01..03: shutdown, crash, starting up. 53300: too many connections.
    if (SOCKET_CODES.has(code) && isFromPostgres(error)) return true;
    if (
      code.startsWith("08") ||
      code.startsWith("57P0") ||
      code === "53300" ||
      code === "P1001" ||
      code === "P1017"
    )
      return true;
  }
  if (MESSAGES.test(error.message)) return true;
  const originalCode = (error.cause as { originalCode?: unknown } | undefined)?.originalCode;
  if (typeof originalCode === "string" && originalCode.startsWith("57P0")) return true;
  return isDatabaseUnavailable(error.cause, depth + 1);
}

/**
 * Says whether Postgres refused a text: NUL cannot be stored or looked for. Every text of a caller
 * ends in a query, so it is told here once instead of in each schema.
 */
export function isTextRefused(error: unknown, depth = 0): boolean {
  if (!(error instanceof Error) || depth > 4) return false;
  const { code, cause } = error as { code?: unknown; cause?: { originalCode?: unknown } };
  // 22021: invalid byte sequence. 22P05: a jsonb escape that is no character.
  if (code === "22021" || code === "22P05" || cause?.originalCode === "22021") return true;
  return isTextRefused(cause, depth + 1);
}

/** Outbound HTTP raises the same socket codes: only those that came through pg or Prisma count here. */
function isFromPostgres(error: Error): boolean {
  return (
    /node_modules\/(pg|pg-pool|@prisma)\b/.test(error.stack ?? "") ||
    error.name.startsWith("Prisma") ||
    error.name === "DriverAdapterError"
  );
}
