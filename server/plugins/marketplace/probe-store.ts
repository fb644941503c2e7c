/** What background probes write: who is due, and what was seen. */
import { decimalOf } from "../../infra/db/decimal.ts";
import { jsonOf, secondsAfter, type Db, type PrismaClient } from "../../infra/db/prisma.ts";
import { reviseListing, rowOf, type ListingRow } from "../listings/store.ts";

/**
 * Takes what is due and pushes it into the future in the same statement: replicas never probe the
 * same listing twice, and a process that dies in between loses one round, not the listing. Our own
 * endpoints are not probed: their terms are known (`refreshBuiltIns`).
 */
export async function claimDueListings(
  db: Db,
  options: { limit: number; leaseMs: number },
): Promise<ListingRow[]> {
  // SQL: SKIP LOCKED, so that replicas take different ones instead of waiting for each other.
  const due = await db.$queryRaw<{ id: string }[]>`
    UPDATE listings SET next_probe_at = now() + ${options.leaseMs}::int * interval '1 millisecond'
     WHERE id IN (SELECT id FROM listings
                   WHERE status <> 'paused' AND source <> 'built-in' AND next_probe_at <= now()
                   ORDER BY next_probe_at LIMIT ${options.limit} FOR UPDATE SKIP LOCKED)
     RETURNING id`;
  const found = await db.listing.findMany({ where: { id: { in: due.map(({ id }) => id) } } });
  return found.map(rowOf);
}

/** The seller answered with the pinned terms: active again, unless its owner paused it meanwhile. */
export async function recordGoodProbe(
  prisma: PrismaClient,
  id: string,
  seen: {
    priceAtomic: bigint;
    requirement: object;
    mimeType: string | null;
    nextProbeInMs: number;
  },
): Promise<void> {
  await reviseListing(prisma, id, ({ status }, now) => ({
    status: status === "paused" ? status : "active",
    flag: null,
    statusReason: null,
    failures: 0,
    price: decimalOf(seen.priceAtomic),
    requirement: jsonOf(seen.requirement),
    ...(seen.mimeType === null ? {} : { mimeType: seen.mimeType }),
    lastProbedAt: now,
    nextProbeAt: secondsAfter(now, seen.nextProbeInMs / 1000),
  }));
}

/** A failed probe; the listing turns to failing when `failing` says so, and stays what it is otherwise. */
export async function recordBadProbe(
  prisma: PrismaClient,
  id: string,
  seen: { failing: boolean; flag: string; reason: string; nextProbeInMs: number },
): Promise<void> {
  await reviseListing(prisma, id, ({ status }, now) => ({
    failures: { increment: 1 },
    ...(seen.failing
      ? {
          status: status === "paused" ? status : "failing",
          flag: seen.flag,
          statusReason: seen.reason,
        }
      : {}),
    lastProbedAt: now,
    nextProbeAt: secondsAfter(now, seen.nextProbeInMs / 1000),
  }));
}
