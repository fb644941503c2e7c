/** What the facilitator did for others: from its settlements, its transactions and its counts. */
import type { Tallied } from "./stats.ts";
import type { Sql } from "../../infra/db/pool.ts";

/** Settlements that somebody asked this facilitator for. */
const FACILITATED = "(kind = 'facilitated' OR (kind = 'x402' AND relay))";
const LAST_DAY = "created_at > now() - interval '24 hours'";
const SETTLE_MS = "extract(epoch FROM settled_at - created_at) * 1000";

export interface DayTotals {
  settled: number;
  failed: number;
  volume: bigint;
  median_ms: number | null;
  p95_ms: number | null;
}
export interface HourRow {
  at: Date;
  settled: number;
  failed: number;
  volume: bigint;
}
export interface RecentRow {
  id: string;
  status: string;
  kind: string;
  chain_id: bigint;
  from_address: string;
  to_address: string;
  value: bigint;
  tx_hash: string | null;
  created_at: Date;
  settled_at: Date | null;
}

export async function addFacilitatorCounts(sql: Sql, counts: readonly Tallied[]): Promise<void> {
  await sql.query(
    `INSERT INTO facilitator_hours AS kept (hour, operation, outcome, count)
     SELECT date_trunc('hour', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC', operation, outcome, count
       FROM unnest($1::text[], $2::text[], $3::bigint[]) AS added (operation, outcome, count)
      ORDER BY operation, outcome
     ON CONFLICT (hour, operation, outcome) DO UPDATE SET count = kept.count + EXCLUDED.count`,
    [
      counts.map(({ operation }) => operation),
      counts.map(({ outcome }) => outcome),
      counts.map(({ count }) => count),
    ],
  );
}

export async function countVerified(sql: Sql): Promise<number> {
  const { rows } = await sql.query<{ count: bigint }>(
    `SELECT coalesce(sum(count), 0)::bigint AS count FROM facilitator_hours
      WHERE operation = 'verify' AND hour > now() - interval '24 hours'`,
  );
  return Number(rows[0]?.count ?? 0n);
}

export async function readDayTotals(sql: Sql): Promise<DayTotals> {
  const { rows } = await sql.query<DayTotals>(
    `SELECT count(*) FILTER (WHERE status = 'settled')::int AS settled,
            count(*) FILTER (WHERE status IN ('failed', 'expired'))::int AS failed,
            coalesce(sum(value) FILTER (WHERE status = 'settled'), 0) AS volume,
            percentile_disc(0.5) WITHIN GROUP (ORDER BY ${SETTLE_MS}) FILTER (WHERE settled_at IS NOT NULL)::float8 AS median_ms,
            percentile_disc(0.95) WITHIN GROUP (ORDER BY ${SETTLE_MS}) FILTER (WHERE settled_at IS NOT NULL)::float8 AS p95_ms
       FROM settlements WHERE ${FACILITATED} AND ${LAST_DAY}`,
  );
  return rows[0] ?? { settled: 0, failed: 0, volume: 0n, median_ms: null, p95_ms: null };
}

export async function readAllTime(sql: Sql): Promise<{ settled: number; volume: bigint }> {
  const { rows } = await sql.query<{ settled: bigint; volume: bigint }>(
    `SELECT count(*) AS settled, coalesce(sum(value), 0) AS volume
       FROM settlements WHERE ${FACILITATED} AND status = 'settled'`,
  );
  return { settled: Number(rows[0]?.settled ?? 0n), volume: rows[0]?.volume ?? 0n };
}

/** 24 hours, oldest first, empty ones as zeros. */
export async function readHours(sql: Sql): Promise<HourRow[]> {
  const { rows } = await sql.query<HourRow>(
    `WITH hours AS (
       SELECT generate_series(date_trunc('hour', now()) - interval '23 hours', date_trunc('hour', now()),
                              interval '1 hour') AS at)
     SELECT hours.at,
            count(*) FILTER (WHERE status = 'settled')::int AS settled,
            count(*) FILTER (WHERE status IN ('failed', 'expired'))::int AS failed,
            coalesce(sum(value) FILTER (WHERE status = 'settled'), 0) AS volume
       FROM hours
       LEFT JOIN settlements ON ${FACILITATED} AND created_at >= hours.at AND created_at < hours.at + interval '1 hour'
      GROUP BY hours.at ORDER BY hours.at`,
  );
  return rows;
}

export async function readBatchSizes(sql: Sql): Promise<{ size: number; count: number }[]> {
  const { rows } = await sql.query<{ size: number; count: number }>(
    `SELECT size::int, count(*)::int AS count FROM (
       SELECT count(*) AS size FROM relayer_transactions sent
         JOIN settlement_transactions item ON item.chain_id = sent.chain_id
          AND item.lane_address = sent.lane_address AND item.lane_nonce = sent.nonce
        WHERE sent.${LAST_DAY}
        GROUP BY sent.chain_id, sent.lane_address, sent.nonce) batches
      GROUP BY size ORDER BY size`,
  );
  return rows;
}

export async function readRecent(sql: Sql, limit: number): Promise<RecentRow[]> {
  const { rows } = await sql.query<RecentRow>(
    `SELECT id, status, kind, chain_id, from_address, to_address, value, tx_hash, created_at, settled_at
       FROM settlements WHERE ${FACILITATED} ORDER BY created_at DESC LIMIT $1`,
    [limit],
  );
  return rows;
}
