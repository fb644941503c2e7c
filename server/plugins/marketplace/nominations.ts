/** Turns a nominated URL into a listing: name, description and price come from the seller's own live 402. */
import { newId } from "../../core/ids.ts";
import { ApiError } from "../../errors.ts";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import type { ProbedTerms } from "../listings/index.ts";
import { adopt, dropShadows } from "../listings/foreign.ts";
import { insertListing, type NewListingRow } from "../listings/store.ts";
import { refusedPlace } from "./announcement.ts";
import {
  claimNominations,
  endNomination,
  postponeNomination,
  type WaitingNomination,
} from "./nominations-store.ts";
import { nameOf, nextProbeInMs, probeRound, type Prober, type RoundLimits } from "./round.ts";

interface Deps {
  prisma: PrismaClient;
  probe: Prober;
  isStopping(): boolean;
}

const TRIES = 3;
const NEXT_TRY_SECONDS = 120;
const LEASE_MS = 120_000;

/** Probes waiting nominations, within the time of one round; returns how many. */
export function probeNominations(deps: Deps, limits?: RoundLimits): Promise<number> {
  return probeRound(
    {
      claim: (limit, exceptHosts) =>
        claimNominations(deps.prisma, { limit, exceptHosts, leaseMs: LEASE_MS }),
      probe: (nomination) => settleNomination(deps, nomination),
      isStopping: () => deps.isStopping(),
    },
    limits,
  );
}

async function settleNomination(
  { prisma, probe }: Deps,
  nomination: WaitingNomination,
): Promise<void> {
  const { id, url, payTo, network, tries } = nomination;
  let live: ProbedTerms;
  try {
    live = await probe(url, { method: "GET", payTo, network });
  } catch (error) {
    if (!(error instanceof ApiError) || error.code === "internal_error") throw error;
    if (tries < TRIES) await postponeNomination(prisma, id, NEXT_TRY_SECONDS * tries);
    else await endNomination(prisma, id, { status: "refused", reason: refusalOf(error.code) });
    return;
  }
  const reason = refusedPlace(url, live.resourceUrl);
  if (reason !== undefined) {
    await endNomination(prisma, id, { status: "refused", reason });
    return;
  }
  if (!(await adopt(prisma, { url, payTo, network })))
    await insertListing(prisma, announcedRow(nomination, live));
  await dropShadows(prisma, url);
  await endNomination(prisma, id, { status: "listed" });
}

/** Our own text: the seller's text is not repeated in our headers. */
const refusalOf = (code: string): string =>
  code === "unsupported_payment_requirements"
    ? "The URL's 402 response does not require a payment to this payee on this network."
    : `The URL could not be checked: ${code}.`;

/** A listing without an owner, with what the probe read. */
export function announcedRow(
  { url, host }: { url: string; host: string },
  live: ProbedTerms,
): NewListingRow {
  return {
    id: newId("lst"),
    source: "bazaar",
    ownerId: null,
    builtInKey: null,
    name: nameOf(live.name, url),
    description: live.description ?? "",
    category: "bazaar",
    url,
    host,
    method: "GET",
    payTo: live.payTo.toLowerCase(),
    asset: live.asset.toLowerCase(),
    network: live.network,
    priceAtomic: live.priceAtomic,
    priceCeilingAtomic: live.priceAtomic,
    status: "active",
    flag: null,
    statusReason: null,
    x402Version: live.x402Version,
    requirement: live.requirement,
    extensions: live.extensions,
    mimeType: live.mimeType,
    sample: live.sample,
    probedAt: new Date(),
    nextProbeInMs: nextProbeInMs(0),
  };
}
