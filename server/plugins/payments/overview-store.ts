import type { Address } from "viem";
import type { Sql } from "../../infra/db/pool.ts";

export interface OverviewAgent {
  id: string;
  network: string;
  walletAddress: Address;
  isActive: boolean;
  isArchived: boolean;
}

/** Archived ones too: what they spent today was spent. */
export async function overviewAgents(
  sql: Sql,
  args: { ownerId: string; agentId: string | undefined },
): Promise<OverviewAgent[]> {
  const { rows } = await sql.query<OverviewAgent>(
    `SELECT id, network, wallet_address AS "walletAddress",
            status = 'active' AND coalesce(expires_at > now(), true) AS "isActive",
            status = 'archived' AS "isArchived"
       FROM agents WHERE owner_id = $1 AND ($2::text IS NULL OR id = $2)`,
    [args.ownerId, args.agentId ?? null],
  );
  return rows;
}

export interface BucketRow {
  at: Date;
  spentAtomic: bigint;
  count: number;
  blocked: number;
}

/** Buckets of one size up to now, gaps filled with zeros, oldest first. */
export async function paymentBuckets(
  sql: Sql,
  args: { agentIds: readonly string[]; unit: "hour" | "day"; buckets: number },
): Promise<BucketRow[]> {
  const { rows } = await sql.query<BucketRow>(
    `WITH bounds AS (
       SELECT date_trunc($2, now(), 'UTC') AS newest, ('1 ' || $2)::interval AS step),
     series AS (
       SELECT generate_series(newest - ($3::int - 1) * step, newest, step) AS at FROM bounds),
     sums AS (
       SELECT date_trunc($2, p.created_at, 'UTC') AS at,
              COALESCE(sum(p.amount) FILTER (WHERE p.counted), 0) AS spent,
              count(*) FILTER (WHERE p.counted)::int AS count,
              count(*) FILTER (WHERE p.status = 'blocked')::int AS blocked
         FROM payments p, bounds
        WHERE p.agent_id = ANY($1::text[]) AND (p.counted OR p.status = 'blocked')
          AND p.created_at >= newest - ($3::int - 1) * step
        GROUP BY 1)
     SELECT series.at, COALESCE(sums.spent, 0) AS "spentAtomic", COALESCE(sums.count, 0) AS count,
            COALESCE(sums.blocked, 0) AS blocked
       FROM series LEFT JOIN sums ON sums.at = series.at ORDER BY series.at`,
    [args.agentIds, args.unit, args.buckets],
  );
  return rows;
}

export async function blockedLastDay(sql: Sql, agentIds: readonly string[]): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM payments
      WHERE agent_id = ANY($1::text[]) AND status = 'blocked' AND created_at > now() - interval '24 hours'`,
    [agentIds],
  );
  return rows[0]?.count ?? 0;
}
