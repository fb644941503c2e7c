import type { Address } from "viem";
import { newId } from "../../core/ids.ts";
import type { Sql } from "../../infra/db/pool.ts";

/** An owner exists from the first sign-in of its address. */
export async function ensureOwner(sql: Sql, address: Address): Promise<string> {
  // The no-op update makes the statement answer the row that is there already.
  const { rows } = await sql.query<{ id: string }>(
    `INSERT INTO owners (id, address) VALUES ($1, $2)
     ON CONFLICT (address) DO UPDATE SET address = excluded.address RETURNING id`,
    [newId("own"), address],
  );
  return (rows[0] as { id: string }).id;
}

/** Keeps a fresh sign-in nonce, and clears away some that were never used. */
export async function insertNonce(sql: Sql, nonce: string, lifeSeconds: number): Promise<void> {
  await sql.query(
    `WITH stale AS (
       DELETE FROM auth_nonces WHERE nonce IN (
         SELECT nonce FROM auth_nonces WHERE expires_at < now() LIMIT 100 FOR UPDATE SKIP LOCKED))
     INSERT INTO auth_nonces (nonce, expires_at) VALUES ($1, now() + make_interval(secs => $2))`,
    [nonce, lifeSeconds],
  );
}

export interface TakenNonce {
  fresh: boolean;
  /** The database's clock, which judges all times of the message. */
  now: Date;
}

/** Deletes the nonce: of two requests with the same one, exactly one gets a row back. */
export async function takeNonce(sql: Sql, nonce: string): Promise<TakenNonce | undefined> {
  const { rows } = await sql.query<TakenNonce>(
    `DELETE FROM auth_nonces WHERE nonce = $1 RETURNING expires_at > now() AS fresh, now() AS now`,
    [nonce],
  );
  return rows[0];
}

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
