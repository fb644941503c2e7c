import type { Sql } from "../../infra/db/pool.ts";

export interface ServiceTotals {
  settled: number;
  volumeAtomic: bigint;
  medianSettleMs: number | null;
  blocked: number;
}

interface TotalsRow {
  settled: number;
  volume: bigint;
  median_ms: number | null;
  blocked: number;
}

/** What the landing page shows: the last 24 hours of everything settled here, and everything refused. */
export async function readServiceTotals(sql: Sql): Promise<ServiceTotals> {
  const { rows } = await sql.query<TotalsRow>(`
    SELECT count(*)::int AS settled,
           coalesce(sum(value), 0) AS volume,
           percentile_disc(0.5) WITHIN GROUP (
             ORDER BY extract(epoch FROM settled_at - created_at) * 1000
           )::float8 AS median_ms,
           (SELECT count(*)::int FROM payments
             WHERE status = 'blocked' AND created_at > now() - interval '24 hours') AS blocked
      FROM settlements
     WHERE status = 'settled' AND created_at > now() - interval '24 hours'`);
  const [row] = rows;
  const medianMs = row?.median_ms ?? null;
  return {
    settled: row?.settled ?? 0,
    volumeAtomic: row?.volume ?? 0n,
    medianSettleMs: medianMs === null ? null : Math.round(medianMs),
    blocked: row?.blocked ?? 0,
  };
}
