/** The background check of listings: are they still there, at the terms they were listed with? */
import type { Pool } from "../../adapters/db/pool.ts";
import {
  claimDueListings,
  recordBadProbe,
  recordGoodProbe,
} from "../../adapters/stores/listing-probes.ts";
import type { ListingRow } from "../../adapters/stores/listings.ts";
import { ApiError } from "../../errors.ts";
import type { ProbedTerms, Prober } from "./listings.ts";
import { FAILURES_UNTIL_FAILING, nextProbeInMs, PROBE_LEASE_MS } from "./schedule.ts";
import { compareTerms } from "./terms.ts";

export interface ReprobeParts {
  pool: Pool;
  probe: Prober;
}

const BATCH = 10;

/** Probes everything that is due, a batch at a time; answers how many it looked at. */
export async function reprobeDue(
  parts: ReprobeParts,
  isStopping: () => boolean = () => false,
): Promise<number> {
  let count = 0;
  while (!isStopping()) {
    const due = await claimDueListings(parts.pool, { limit: BATCH, leaseMs: PROBE_LEASE_MS });
    if (due.length === 0) break;
    await Promise.all(due.map((listing) => reprobe(parts, listing)));
    count += due.length;
  }
  return count;
}

export async function reprobe({ pool, probe }: ReprobeParts, listing: ListingRow): Promise<void> {
  let live: ProbedTerms;
  try {
    live = await probe(listing.url, { method: listing.method });
  } catch (error) {
    // Only what the probe says of the seller counts against it; our own faults are the job's to retry.
    if (!(error instanceof ApiError) || error.code === "internal_error") throw error;
    const failures = listing.failures + 1;
    await recordBadProbe(pool, listing.id, {
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
    await recordGoodProbe(pool, listing.id, {
      priceAtomic: live.priceAtomic,
      requirement: live.requirement,
      mimeType: live.mimeType,
      nextProbeInMs: nextProbeInMs(0),
    });
  } else {
    await recordBadProbe(pool, listing.id, {
      failing: true,
      flag: "listing_mismatch",
      reason: verdict.reason,
      nextProbeInMs: nextProbeInMs(listing.failures + 1),
    });
  }
}
