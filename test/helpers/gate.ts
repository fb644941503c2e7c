// Blocks statements on a table with an advisory lock until the test releases them.
import type { Pool } from "pg";
import type { Test } from "tap";
import { until } from "./until.ts";

/** Any fixed number. */
const LOCK = 720_002;

interface Gate {
  /** Resolves when a statement waits. */
  reached(): Promise<void>;
  /** Releases all. Resolves when the waiting connections are closed, so their client must be dead or closing. */
  open(): Promise<void>;
}

/**
 * `when` is an SQL condition: only statements that meet it wait. The waiting connection's lock_timeout is disabled;
 * its statement_timeout (5 s for requests) still applies.
 */
export async function gateAt(
  t: Pick<Test, "teardown">,
  pool: Pool,
  { on, when = "TRUE" }: { on: string; when?: string },
): Promise<Gate> {
  const holder = await pool.connect();
  let isHeld = true;
  const release = async (): Promise<void> => {
    if (!isHeld) return;
    isHeld = false;
    await holder.query("SELECT pg_advisory_unlock($1)", [LOCK]);
    holder.release();
  };
  t.teardown(release);
  await holder.query("SELECT pg_advisory_lock($1)", [LOCK]);
  const [table] = on.split(" ").slice(-1);
  await pool.query(`
    CREATE FUNCTION wait_at_gate() RETURNS TRIGGER LANGUAGE plpgsql SET lock_timeout = 0 AS $$
    BEGIN
      IF ${when} THEN PERFORM pg_advisory_xact_lock(${LOCK}); END IF;
      RETURN NULL;
    END $$;
    CREATE TRIGGER wait_at_gate ${on} FOR EACH STATEMENT EXECUTE FUNCTION wait_at_gate()`);
  const waiting = async (): Promise<number[]> => {
    const { rows } = await pool.query<{ pid: number }>(
      `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
      [LOCK],
    );
    return rows.map(({ pid }) => pid);
  };
  const areGone = async (pids: number[]): Promise<boolean> => {
    const { rowCount } = await pool.query("SELECT 1 FROM pg_stat_activity WHERE pid = ANY($1)", [
      pids,
    ]);
    return rowCount === 0;
  };
  return {
    reached: () => until(async () => (await waiting()).length > 0, 30_000),
    async open() {
      const pids = await waiting();
      await release();
      await until(() => areGone(pids), 30_000);
      await pool.query(`DROP TRIGGER wait_at_gate ON ${table}; DROP FUNCTION wait_at_gate`);
    },
  };
}
