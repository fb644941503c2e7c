/** The background check of listings: are they still there, at the terms they were listed with? */
import { ApiError } from "../../errors.ts";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import type { ListingRow } from "../listings/store.ts";
import { compareTerms, type ProbedTerms } from "../listings/terms.ts";
import type { Prober } from "./marketplace.ts";
import { claimDueListings, recordBadProbe, recordGoodProbe } from "./probe-store.ts";

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
