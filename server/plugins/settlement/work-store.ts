/** What the engine's rows say about work that waits. Every replica reads the same. */
import type { Sql } from "../../infra/db/pool.ts";
import type { SettlementKind } from "./types.ts";

/** The queue classes: those of a lower number are sent first. */
export const CLASSES: Record<SettlementKind, 0 | 1 | 2> = {
  withdrawal: 0,
  spend: 1,
  x402: 1,
  facilitated: 2,
  refund: 2,
  allowance: 1,
};
const CLASS_NAMES = ["withdrawal", "agent", "facilitated"] as const;
export const classNameOf = (kind: SettlementKind): string => CLASS_NAMES[CLASSES[kind]];
/** Reserved by a wallet and not known to have ended: the column payments.outstanding. */
const OUTSTANDING = ["reserved", "submitted", "unknown"] as const;

export interface Waiting {
  count: number;
  oldestSeconds: number;
}

/**
 * Settlements for us to relay that are not in a counted block yet. Those that others relay are not included, and
 * withdrawals from channels neither: nobody waits for them, and only one account may send them.
 */
export async function readWork(sql: Sql, chainId: number): Promise<Map<string, Waiting>> {
  const { rows } = await sql.query<{ kind: SettlementKind; count: number; oldest: number }>(
    `SELECT kind, count(*)::int AS count,
            greatest(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS oldest
       FROM settlements
      WHERE chain_id = $1 AND status IN ('queued', 'submitted') AND (relay OR cancel_signature IS NOT NULL)
        AND coalesce(terms->>'scheme', '') <> 'channel-withdraw'
      GROUP BY kind`,
    [chainId],
  );
  const work = new Map<string, Waiting>(
    CLASS_NAMES.map((name) => [name, { count: 0, oldestSeconds: 0 }]),
  );
  for (const { kind, count, oldest } of rows) {
    const of = work.get(classNameOf(kind));
    if (!of) continue;
    of.count += count;
    of.oldestSeconds = Math.max(of.oldestSeconds, oldest);
  }
  return work;
}

/** A voucher may stay unknown until its channel is used again or closed: nothing is wrong with it. */
export async function readOutstanding(sql: Sql, chainId: number): Promise<Map<string, Waiting>> {
  const { rows } = await sql.query<{ status: string; count: number; oldest: number }>(
    `SELECT status, count(*)::int AS count,
            greatest(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS oldest
       FROM payments
      WHERE outstanding AND chain_id = $1 AND NOT (status = 'unknown' AND ceiling IS NOT NULL)
      GROUP BY status`,
    [chainId],
  );
  const found = new Map(
    rows.map(({ status, count, oldest }) => [status, { count, oldestSeconds: oldest }]),
  );
  return new Map(
    OUTSTANDING.map((status) => [status, found.get(status) ?? { count: 0, oldestSeconds: 0 }]),
  );
}
