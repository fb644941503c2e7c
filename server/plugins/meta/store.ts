import { atomicOf, databaseNow, hoursBefore, type Db, type Prisma } from "../../infra/db/prisma.ts";

interface ServiceTotals {
  settled: number;
  volumeAtomic: bigint;
  medianSettleMs: number | null;
  blocked: number;
}

/** The totals of the landing page: everything settled and everything refused in the last 24 hours. */
export async function readServiceTotals(db: Db): Promise<ServiceTotals> {
  const since = hoursBefore(await databaseNow(db), 24);
  // SQL: a percentile, which Prisma does not support.
  const settled = db.$queryRaw<
    { count: number; volume: Prisma.Decimal; medianMs: number | null }[]
  >`
    SELECT count(*)::int AS count, coalesce(sum(value), 0) AS volume,
           percentile_disc(0.5) WITHIN GROUP (
             ORDER BY extract(epoch FROM settled_at - created_at) * 1000)::float8 AS "medianMs"
      FROM settlements WHERE status = 'settled' AND created_at > ${since}`;
  const blocked = db.payment.aggregate({
    where: { status: "blocked", createdAt: { gt: since } },
    _count: true,
    _sum: { repeats: true },
  });
  const [[row], refused] = await Promise.all([settled, blocked]);
  const medianMs = row?.medianMs ?? null;
  return {
    settled: row?.count ?? 0,
    volumeAtomic: row ? atomicOf(row.volume) : 0n,
    medianSettleMs: medianMs === null ? null : Math.round(medianMs),
    blocked: refused._count + (refused._sum.repeats ?? 0),
  };
}
