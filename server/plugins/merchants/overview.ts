/** The sums of a merchant's page, and how those of several cells become one. */
import type { FastifyInstance } from "fastify";
import {
  MOST_REASONS,
  readDays,
  readFailures,
  readRefundTotals,
  readTotals,
  type DayRow,
  type Payee,
  type ReasonRow,
  type Totals,
} from "./store.ts";

export interface Overview {
  totals: Totals & { refunds: number; refunded: bigint };
  days: DayRow[];
  failures: ReasonRow[];
}

export const readOverview = (
  app: Pick<FastifyInstance, "reading">,
  payee: Payee,
  days: number,
): Promise<Overview> =>
  app.reading(async (prisma) => {
    const [totals, refunded, perDay, failures] = await Promise.all([
      readTotals(prisma, payee, days),
      readRefundTotals(prisma, payee, days),
      readDays(prisma, payee, days),
      readFailures(prisma, payee, days),
    ]);
    return { totals: { ...totals, ...refunded }, days: perDay, failures };
  });

/** The days are those of the first. A payer that paid in two cells counts in both. */
export function addOverviews(first: Overview, others: readonly Overview[]): Overview {
  const all = [first, ...others];
  return {
    totals: all.map(({ totals }) => totals).reduce(addTotals),
    days: first.days.map((day) =>
      others
        .flatMap(({ days }) => days.filter((other) => other.day.getTime() === day.day.getTime()))
        .reduce(addDay, day),
    ),
    failures: addReasons(all.flatMap(({ failures }) => failures)),
  };
}

const addTotals = (left: Overview["totals"], right: Overview["totals"]): Overview["totals"] => ({
  settled: left.settled + right.settled,
  volume: left.volume + right.volume,
  pending: left.pending + right.pending,
  failed: left.failed + right.failed,
  payers: left.payers + right.payers,
  refunds: left.refunds + right.refunds,
  refunded: left.refunded + right.refunded,
});

const addDay = (left: DayRow, right: DayRow): DayRow => ({
  day: left.day,
  settled: left.settled + right.settled,
  failed: left.failed + right.failed,
  volume: left.volume + right.volume,
  refunded: left.refunded + right.refunded,
});

function addReasons(rows: readonly ReasonRow[]): ReasonRow[] {
  const sums = new Map<string, ReasonRow>();
  for (const row of rows) {
    const { count, lastAt } = sums.get(row.reason) ?? { count: 0, lastAt: row.lastAt };
    const latest = lastAt > row.lastAt ? lastAt : row.lastAt;
    sums.set(row.reason, { reason: row.reason, count: count + row.count, lastAt: latest });
  }
  return [...sums.values()]
    .toSorted((left, right) => right.count - left.count)
    .slice(0, MOST_REASONS);
}
