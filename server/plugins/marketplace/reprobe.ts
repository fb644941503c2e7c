/** Probes listings in the background: whether they still respond, with their pinned terms. */
import { ApiError } from "../../errors.ts";
import { decimalOf, secondsAfter, type Db, type PrismaClient } from "../../infra/db/prisma.ts";
import { type ListingRow, reviseListing, rowOf, wordsOf } from "../listings/store.ts";
import { isCatalogued } from "../listings/foreign.ts";
import { compareTerms, type ProbedTerms } from "../listings/index.ts";
import type { ListingText } from "../listings/listing-text.ts";
import { assertControl, type ControlReader } from "./control.ts";
import { nameOf, nextProbeInMs, probeRound, type Prober, type RoundLimits } from "./round.ts";

/** A short outage of a seller does not hide its listing. */
const FAILURES_UNTIL_FAILING = 3;
/** How long a claimed listing is not claimed again; longer than any probe may take. */
const PROBE_LEASE_MS = 120_000;

/** A catalogue's entry is probed this much more rarely: its host asked for nothing. */
const CATALOGUED_FACTOR = 24;

interface Deps {
  prisma: PrismaClient;
  probe: Prober;
  control: ControlReader;
  isStopping(): boolean;
}

/** Probes due listings, within the time of one round; returns how many. */
export function reprobeDue(deps: Deps, limits?: RoundLimits): Promise<number> {
  return probeRound(
    {
      claim: (limit, exceptHosts) =>
        claimDueListings(deps.prisma, { limit, exceptHosts, leaseMs: PROBE_LEASE_MS }),
      probe: (listing) => reprobe(deps, listing),
      isStopping: () => deps.isStopping(),
    },
    limits,
  );
}

async function reprobe(deps: Deps, listing: ListingRow): Promise<void> {
  const { prisma } = deps;
  let live: ProbedTerms;
  try {
    await mayProbe(deps, listing);
    live = await deps.probe(listing.url, { method: listing.method });
  } catch (error) {
    // Only the seller's own failure counts against it; the job retries our own faults.
    if (!(error instanceof ApiError) || error.code === "internal_error") throw error;
    const failures = listing.failures + 1;
    await recordBadProbe(prisma, listing.id, {
      // A failing listing shows the newest reason; a new one may fail a few times first.
      failing: failures >= FAILURES_UNTIL_FAILING || listing.status === "failing",
      flag: error.code,
      reason: error.message.slice(0, 300),
      nextProbeInMs: nextProbeInMs(failures),
    });
    return;
  }
  const verdict = compareTerms(listing, live);
  if (verdict.kept) {
    const { name, description, mimeType, sample, tags, extensions, requirement } = live;
    await recordGoodProbe(prisma, listing.id, {
      priceAtomic: live.priceAtomic,
      words: {
        requirement,
        extensions,
        tags,
        ...(mimeType === null ? {} : { mimeType }),
        ...(sample === null ? {} : { sample }),
        // An owner's name for a listing stays; a listing without an owner takes the seller's.
        ...(listing.source === "bazaar"
          ? { name: nameOf(name, listing.url), description: description ?? "" }
          : {}),
      },
      nextProbeInMs: nextProbeInMs(0) * (isCatalogued(listing) ? CATALOGUED_FACTOR : 1),
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

/** Anybody may list any URL, so a request that could have effects needs the host's consent each time. */
async function mayProbe({ prisma, control }: Deps, listing: ListingRow): Promise<void> {
  if (listing.method === "GET") return;
  const owner =
    listing.ownerId === null
      ? null
      : await prisma.owner.findUnique({
          where: { id: listing.ownerId },
          select: { address: true },
        });
  await assertControl(control, listing.url, owner?.address ?? "");
}

/**
 * Claims due listings and postpones their next probe in the same statement: replicas never probe the same listing
 * twice, and a process that dies in between loses one round, not the listing. At most one listing per host, and those
 * that responded before come first. Our own endpoints are not probed: their terms are known (`refreshBuiltIns`).
 */
async function claimDueListings(
  db: Db,
  options: { limit: number; leaseMs: number; exceptHosts: readonly string[] },
): Promise<ListingRow[]> {
  // SQL: DISTINCT ON within a locking read, and SKIP LOCKED: replicas take different ones instead of waiting.
  const due = await db.$queryRaw<{ id: string }[]>`
    UPDATE listings SET next_probe_at = now() + ${options.leaseMs}::int * interval '1 millisecond'
     WHERE id IN (
       SELECT id FROM listings
        WHERE id IN (SELECT DISTINCT ON (host) id FROM listings
                      WHERE status <> 'paused' AND source <> 'built-in' AND next_probe_at <= now()
                        AND NOT host = ANY (${[...options.exceptHosts]}::text[])
                      ORDER BY host, failures, next_probe_at)
          AND status <> 'paused' AND next_probe_at <= now()
        ORDER BY failures, next_probe_at LIMIT ${options.limit} FOR UPDATE SKIP LOCKED)
     RETURNING id`;
  if (due.length === 0) return [];
  const found = await db.listing.findMany({ where: { id: { in: due.map(({ id }) => id) } } });
  return found.map(rowOf);
}

/** The seller responded with the pinned terms: the listing is active again, unless its owner paused it meanwhile. */
async function recordGoodProbe(
  prisma: PrismaClient,
  id: string,
  seen: { priceAtomic: bigint; words: Partial<ListingText>; nextProbeInMs: number },
): Promise<void> {
  await reviseListing(prisma, id, ({ status }, now) => ({
    status: status === "paused" ? status : "active",
    flag: null,
    statusReason: null,
    failures: 0,
    price: decimalOf(seen.priceAtomic),
    ...wordsOf(seen.words),
    lastProbedAt: now,
    nextProbeAt: secondsAfter(now, seen.nextProbeInMs / 1000),
  }));
}

/** A failed probe; the listing becomes failing if `failing` is true, otherwise its status stays. */
async function recordBadProbe(
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
