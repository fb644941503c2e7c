import type { Sql } from "../db/pool.ts";

/** Sign-in nonces and sessions that can be used no more; sessions stay a week for the owner's list. */
export async function deleteExpiredSignIns(sql: Sql): Promise<number> {
  const nonces = await sql.query(
    "DELETE FROM auth_nonces WHERE expires_at < now() - interval '1 hour'",
  );
  const sessions = await sql.query(
    "DELETE FROM sessions WHERE expires_at < now() - interval '7 days' OR revoked_at < now() - interval '7 days'",
  );
  return (nonces.rowCount ?? 0) + (sessions.rowCount ?? 0);
}
