// A clock that a test sets, in place of Postgres' own: a rule about time is tested at its exact microsecond, and no test
// waits for it.
import type { Pool } from "pg";
import type { TestDatabase } from "./postgres.ts";

export interface DatabaseClock {
  /** Microseconds since 1970. */
  now(): bigint;
  set(micros: bigint): Promise<void>;
  pass(micros: bigint): Promise<void>;
}

/** Only connections made afterwards have it, and only functions, not defaults of columns. */
export async function withOwnClock({ url, pool }: TestDatabase): Promise<DatabaseClock> {
  const name = new URL(url).pathname.slice(1);
  let now = BigInt(Date.now()) * 1_000n;
  await pool.query(`
    CREATE SCHEMA clock;
    CREATE TABLE clock.reading (micros BIGINT);
    INSERT INTO clock.reading VALUES (${now});
    CREATE FUNCTION clock.clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE plpgsql VOLATILE AS
      $$ BEGIN RETURN (SELECT 'epoch'::timestamptz + micros * interval '1 microsecond' FROM clock.reading); END $$;
    CREATE FUNCTION clock.now() RETURNS TIMESTAMPTZ LANGUAGE sql VOLATILE AS 'SELECT clock.clock_timestamp()';
    CREATE FUNCTION clock.statement_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql VOLATILE AS
      'SELECT clock.clock_timestamp()';
    ALTER DATABASE ${name} SET search_path = clock, public, pg_catalog`);
  await endIdle(pool);
  const set = async (micros: bigint) => {
    now = micros;
    await pool.query("UPDATE clock.reading SET micros = $1", [String(micros)]);
  };
  return { now: () => now, set, pass: (micros) => set(now + micros) };
}

/** The connections that the pool has so far keep Postgres' clock. */
async function endIdle(pool: Pool): Promise<void> {
  const client = await pool.connect();
  client.release(true);
}
