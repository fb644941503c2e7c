/** Whether an endpoint would be listed, and why not: the checks of a listing and of an announcement, storing nothing. */
import type { PaymentPayload } from "@x402/core/types";
import type { NetworkFacts } from "../../core/networks.ts";
import { ApiError } from "../../errors.ts";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import type { ProbedTerms } from "../listings/index.ts";
import { probedTerms, type TargetResponse } from "../x402-client/ask.ts";
import type { Offer } from "../x402-client/terms.ts";
import { readAnnouncement, refusedPlace } from "./announcement.ts";
import { resultOf } from "./nominations-store.ts";

export interface WouldList {
  /** By its owner, or by a payment. */
  wouldBe: boolean;
  /** The first payment that settles here lists it, without anybody else. */
  byPayment: boolean;
  why: string;
  /** The public listing of this URL and method. */
  listingId: string | null;
  /** Why its announcement lists nothing. */
  refusal?: string | undefined;
}

interface Deps {
  prisma: PrismaClient;
  networks: readonly NetworkFacts[];
}

interface Probed {
  url: URL;
  method: string;
  answered: TargetResponse;
}

export async function wouldList(deps: Deps, probed: Probed): Promise<WouldList> {
  const listed = await findPublic(deps.prisma, probed);
  if (listed) return listed;
  let terms: ProbedTerms;
  try {
    terms = probedTerms(probed.answered, probed.url, deps.networks, {});
  } catch (error) {
    if (!(error instanceof ApiError) || error.code === "internal_error") throw error;
    return { wouldBe: false, byPayment: false, why: error.message, listingId: null };
  }
  const owner =
    probed.method === "GET"
      ? "Its owner can list it now, on the page Marketplace."
      : "Its owner can list it once /.well-known/purser.json on its host names the owner's wallet.";
  const refusal = await whyNotByPayment(deps, probed, terms);
  const payment = refusal
    ? `A payment does not list it by itself: ${refusal}`
    : "The first payment that settles here lists it by itself.";
  return {
    wouldBe: true,
    byPayment: !refusal,
    why: `${owner} ${payment}`,
    listingId: null,
    refusal,
  };
}

async function findPublic(prisma: PrismaClient, { url, method }: Probed) {
  const row = await prisma.listing.findFirst({
    where: { url: url.href, method, status: { not: "paused" } },
    select: { id: true, status: true, statusReason: true },
    // One that works first.
    orderBy: { status: "asc" },
  });
  if (!row) return undefined;
  const isActive = row.status === "active";
  const why = isActive
    ? "It is listed."
    : `It is listed, but marked as failing: ${row.statusReason ?? "its last probes failed."}`;
  return { wouldBe: isActive, byPayment: isActive, why, listingId: row.id };
}

async function whyNotByPayment(
  { prisma, networks }: Deps,
  { url, answered }: Probed,
  terms: ProbedTerms,
): Promise<string | undefined> {
  if (answered.kind !== "offer") return undefined;
  const read = readAnnouncement(paymentFor(answered.offer, terms), "", networks);
  if (read.kind === "none") return "The 402 response has no `bazaar` extension.";
  if (read.kind === "refused") return read.reason;
  const { nomination } = read;
  if (nomination.url !== url.href)
    return refusedPlace(url.href, nomination.url) ?? "Its `resource.url` differs from this URL.";
  const result = await resultOf(prisma, nomination);
  return result?.status === "rejected" ? result.rejectedReason : undefined;
}

/** What a payer would send for these terms, without a signature. */
function paymentFor({ x402Version, resource, extensions }: Offer, { requirement }: ProbedTerms) {
  const accepted = requirement as PaymentPayload["accepted"];
  const { scheme, network } = accepted;
  const paymentPayload =
    x402Version === 1
      ? { x402Version, scheme, network, payload: {} }
      : { x402Version, resource, accepted, payload: {}, extensions };
  return { x402Version, paymentPayload, paymentRequirements: accepted };
}
