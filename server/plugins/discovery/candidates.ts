/** Turns a URL that a document named into a listing, once our own probe found it alive and with the terms that were named. */
import { ApiError } from "../../errors.ts";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import { isTaken } from "../listings/foreign.ts";
import type { ProbedTerms } from "../listings/index.ts";
import { insertListing } from "../listings/store.ts";
import { refusedPlace } from "../marketplace/announcement.ts";
import { announcedRow } from "../marketplace/nominations.ts";
import { probeRound, ROUND, type Prober, type RoundLimits } from "../marketplace/round.ts";
import {
  claimCandidates,
  postponeCandidate,
  refuseCandidate,
  sourceOfCandidate,
  type Candidate,
} from "./documents-store.ts";

interface Deps {
  prisma: PrismaClient;
  probe: Prober;
  onEnd: (end: { kind: string; outcome: "listed" | "refused" }) => void;
  isStopping(): boolean;
}

const TAKEN = "This URL has a listing here.";
const TRIES = 3;
const NEXT_TRY_SECONDS = 300;
const LEASE_MS = 120_000;
/** One probe of a host in a round: it asked for nothing. */
export const CANDIDATE_ROUND: RoundLimits = { ...ROUND, perHost: 1 };

/** Probes waiting URLs, within the time of one round; returns how many. */
export function probeCandidates(deps: Deps, limits = CANDIDATE_ROUND): Promise<number> {
  return probeRound(
    {
      claim: (limit, exceptHosts) =>
        claimCandidates(deps.prisma, { limit, exceptHosts, leaseMs: LEASE_MS }),
      probe: (candidate) => settleCandidate(deps, candidate),
      isStopping: () => deps.isStopping(),
    },
    limits,
  );
}

async function settleCandidate(deps: Deps, candidate: Candidate): Promise<void> {
  const { prisma, probe, onEnd } = deps;
  const { id, url, payTo, network, tries, kind } = candidate;
  const refuse = async (reason: string): Promise<void> => {
    await refuseCandidate(prisma, id, reason);
    onEnd({ kind, outcome: "refused" });
  };
  if (await isTaken(prisma, url, kind === "catalogue")) return refuse(TAKEN);
  let live: ProbedTerms;
  try {
    live = await probe(url, { method: "GET", ...(payTo && network && { payTo, network }) });
  } catch (error) {
    if (!(error instanceof ApiError) || error.code === "internal_error") throw error;
    if (tries < TRIES) return postponeCandidate(prisma, id, NEXT_TRY_SECONDS * tries);
    return refuse(`The URL could not be checked: ${error.code}.`);
  }
  const reason = refusedPlace(url, live.resourceUrl) ?? differsFrom(candidate, live);
  if (reason !== undefined) return refuse(reason);
  const isListed = await list(prisma, candidate, live);
  if (!isListed) return refuse(TAKEN);
  onEnd({ kind, outcome: "listed" });
}

const differsFrom = ({ priceAtomic }: Candidate, live: ProbedTerms): string | undefined =>
  priceAtomic !== undefined && live.priceAtomic > priceAtomic
    ? "It asks for more than the catalogue says."
    : undefined;

/** Only while the document still names these terms, and nothing else is listed at this place. */
async function list(
  prisma: PrismaClient,
  candidate: Candidate,
  live: ProbedTerms,
): Promise<boolean> {
  const { id, url, host, kind, payTo = null, network = null } = candidate;
  return prisma.$transaction(async (tx) => {
    const { count } = await tx.discoveredUrl.updateMany({
      where: { id, payTo, network, status: "waiting" },
      data: { status: "listed", reason: null },
    });
    // Named no longer: there is nothing to refuse either.
    if (count === 0) return true;
    if (await isTaken(tx, url, kind === "catalogue")) return false;
    const row = announcedRow({ url, host }, live);
    return (
      (await insertListing(tx, { ...row, foundIn: sourceOfCandidate(candidate) })) !== undefined
    );
  });
}
