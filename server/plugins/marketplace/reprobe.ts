/** The background check of listings: are they still there, at the terms they were listed with? */
import { ApiError } from "../../errors.ts";
import {
  decimalOf,
  jsonOf,
  secondsAfter,
  type Db,
  type PrismaClient,
} from "../../infra/db/prisma.ts";
import { type ListingRow, reviseListing, rowOf } from "../listings/store.ts";
import { compareTerms, type ProbedTerms } from "../listings/index.ts";
import type { Prober } from "./marketplace.ts";

const MINUTE_MS = 60_000;
const HEALTHY_MS = 15 * MINUTE_MS;
const LONGEST_MS = 6 * 60 * MINUTE_MS;

/** One bad minute of a seller is no reason to hide it. */
export const FAILURES_UNTIL_FAILING = 3;
/** While a probe runs; longer than any probe may take. */
const PROBE_LEASE_MS = 2 * MINUTE_MS;
const BATCH = 10;

/** Doubling from one minute to six hours after failures; every 15 minutes when all is well. */
export function nextProbeInMs(failures: number, random: () => number = Math.random): number {
  const base = failures === 0 ? HEALTHY_MS : MINUTE_MS * 2 ** Math.min(failures - 1, 20);
  // Spread by a tenth, so that listings made together are not probed together for ever.
  return Math.round(Math.min(base, LONGEST_MS) * (0.9 + random() * 0.2));
}

export interface Deps {
  prisma: PrismaClient;
  probe: Prober;
}

/** Probes everything that is due, a batch at a time; answers how many it looked at. */
export async function reprobeDue(
  deps: Deps,
  isStopping: () => boolean = () => false,
): Promise<number> {
  let count = 0;
  while (!isStopping()) {
    const due = await claimDueListings(deps.prisma, { limit: BATCH, leaseMs: PROBE_LEASE_MS });
    if (due.length === 0) break;
    await Promise.all(due.map((listing) => reprobe(deps, listing)));
    count += due.length;
  }
  return count;
}

export async function reprobe({ prisma, probe }: Deps, listing: ListingRow): Promise<void> {
  let live: ProbedTerms;
  try {
    live = await probe(listing.url, { method: listing.method });
  } catch (error) {
    // Only what the probe says of the seller counts against it; our own faults are the job's to retry.
    if (!(error instanceof ApiError) || error.code === "internal_error") throw error;
    const failures = listing.failures + 1;
    await recordBadProbe(prisma, listing.id, {
      // Known to be failing: the newest reason is the one to show. New here: it gets its tries.
      failing:
        failures >= FAILURES_UNTIL_FAILING ||
        (listing.status === "failing" && listing.flag !== "not_probed"),
      flag: error.code,
      reason: error.message.slice(0, 300),
      nextProbeInMs: nextProbeInMs(failures),
    });
    return;
  }
  const verdict = compareTerms(listing, live);
  if (verdict.kept) {
    await recordGoodProbe(prisma, listing.id, {
      priceAtomic: live.priceAtomic,
      requirement: live.requirement,
      mimeType: live.mimeType,
      nextProbeInMs: nextProbeInMs(0),
    });
  } else {
    await recordBadProbe(prisma, listing.id, {
      failing: true,
      flag: "listing_mismatch",
      reason: verdict.reason,
      nextProbeInMs: nextProbeInMs(listing.failures + 1),
    });
  }
}

/** What background probes write: who is due, and what was seen. */

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
