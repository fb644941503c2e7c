import type { Address } from "viem";
import { atomicOf } from "../../infra/db/decimal.ts";
import { databaseNow, hoursBefore, type Db, type Prisma } from "../../infra/db/prisma.ts";

export interface OverviewAgent {
  id: string;
  network: string;
  walletAddress: Address;
  isActive: boolean;
  isArchived: boolean;
}

/** Archived ones too: what they spent today was spent. */
export async function overviewAgents(
  db: Db,
  args: { ownerId: string; agentId: string | undefined },
): Promise<OverviewAgent[]> {
  const { ownerId, agentId } = args;
  const agents = await db.agent.findMany({
    where: { ownerId, ...(agentId === undefined ? {} : { id: agentId }) },
    select: { id: true, network: true, walletAddress: true, status: true, expiresAt: true },
  });
  const now = await databaseNow(db);
  return agents.map(({ status, expiresAt, walletAddress, ...agent }) => ({
    ...agent,
    walletAddress: walletAddress as Address,
    isActive: status === "active" && (expiresAt === null || expiresAt > now),
    isArchived: status === "archived",
  }));
}

export interface BucketRow {
  at: Date;
  spentAtomic: bigint;
  count: number;
  blocked: number;
}

/** Buckets of one size up to now, gaps filled with zeros, oldest first. */
export async function paymentBuckets(
  db: Db,
  args: { agentIds: readonly string[]; unit: "hour" | "day"; buckets: number },
): Promise<BucketRow[]> {
  const { agentIds, unit, buckets } = args;
  // SQL: sums per bucket of time with the gaps filled; Prisma groups by columns only.
  const rows = await db.$queryRaw<(Omit<BucketRow, "spentAtomic"> & { spent: Prisma.Decimal })[]>`
    WITH bounds AS (
      SELECT date_trunc(${unit}, now(), 'UTC') AS newest, ('1 ' || ${unit})::interval AS step),
    series AS (
      SELECT generate_series(newest - (${buckets}::int - 1) * step, newest, step) AS at FROM bounds),
    sums AS (
      SELECT date_trunc(${unit}, p.created_at, 'UTC') AS at,
             COALESCE(sum(p.amount) FILTER (WHERE p.counted), 0) AS spent,
             count(*) FILTER (WHERE p.counted)::int AS count,
             count(*) FILTER (WHERE p.status = 'blocked')::int AS blocked
        FROM payments p, bounds
       WHERE p.agent_id = ANY(${agentIds}::text[]) AND (p.counted OR p.status = 'blocked')
         AND p.created_at >= newest - (${buckets}::int - 1) * step
       GROUP BY 1)
    SELECT series.at, COALESCE(sums.spent, 0) AS spent, COALESCE(sums.count, 0) AS count,
           COALESCE(sums.blocked, 0) AS blocked
      FROM series LEFT JOIN sums ON sums.at = series.at ORDER BY series.at`;
  return rows.map(({ spent, ...row }) => ({ ...row, spentAtomic: atomicOf(spent) }));
}

export async function blockedLastDay(db: Db, agentIds: readonly string[]): Promise<number> {
  const since = hoursBefore(await databaseNow(db), 24);
  return db.payment.count({
    where: { agentId: { in: [...agentIds] }, status: "blocked", createdAt: { gt: since } },
  });
}
