import { Pool as PgPool, TypeOverrides, type PoolClient } from "pg";

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
