// The database of the worlds: migrated like any other, with functions that tell the world's time. Each world starts from
// the same rows.
import { Client } from "pg";
import { migrate } from "../../server/infra/db/migrate.ts";

/** In the place of Postgres' own: the search path finds these first. */
const SIM_SCHEMA = `
  CREATE SCHEMA sim;
  CREATE SEQUENCE sim.ids;
  -- The time of the running statement, in microseconds, and the time at which its transaction began.
  CREATE FUNCTION sim.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT timestamptz 'epoch' + coalesce(nullif(current_setting('sim.clock', true), '')::bigint, 1800000000000000)
           * interval '1 microsecond' $$;
  CREATE FUNCTION sim.now() RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT timestamptz 'epoch' + coalesce(nullif(current_setting('sim.began', true), '')::bigint,
             nullif(current_setting('sim.clock', true), '')::bigint, 1800000000000000) * interval '1 microsecond' $$;
  CREATE FUNCTION sim.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT sim.clock_timestamp() $$;
  CREATE FUNCTION sim.transaction_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT sim.now() $$;
  CREATE FUNCTION sim.gen_random_uuid() RETURNS uuid LANGUAGE sql VOLATILE AS
    $$ SELECT md5(nextval('sim.ids')::text)::uuid $$;
  -- A notice reaches the simulation at once; it passes the notification on when the transaction is committed.
  CREATE FUNCTION sim.pg_notify(channel text, payload text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
    BEGIN RAISE NOTICE USING MESSAGE = channel, DETAIL = payload, HINT = 'sim.clock'; END $$;`;

export async function prepareDatabase(url: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(SIM_SCHEMA);
    await client.query(
      `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, sim, pg_catalog', current_database()); END $$`,
    );
  } finally {
    await client.end();
  }
  await migrate({ connectionString: url });
}
