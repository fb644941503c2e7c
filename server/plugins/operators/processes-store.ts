/** The row of this process among those that serve the database. */
import { hostname } from "node:os";
import type { Sql } from "../../infra/db/pool.ts";
import { BUILD, VERSION } from "../../infra/version.ts";

/** Writes that this process runs; its row may have been deleted meanwhile. */
export async function noteProcess(
  sql: Sql,
  { id, worker }: { id: string; worker: string | undefined },
): Promise<void> {
  // SQL: by the database's clock, in one statement.
  await sql.query({
    name: "process-seen",
    text: `INSERT INTO processes (id, host, pid, worker, version, commit, built_at, started_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp() - make_interval(secs => $8))
           ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp()`,
    values: [
      id,
      hostname(),
      process.pid,
      worker ?? null,
      VERSION,
      BUILD.commit,
      BUILD.builtAt,
      process.uptime(),
    ],
  });
}

export async function endProcess(sql: Sql, id: string): Promise<void> {
  await sql.query("DELETE FROM processes WHERE id = $1", [id]);
}
