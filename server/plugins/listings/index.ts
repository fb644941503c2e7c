/** The book of listings, as those see it who fetch from them: pinned terms, and how far live ones may differ. */
import fp from "fastify-plugin";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import { ApiError } from "../../errors.ts";
import {
  countUse,
  findListing,
  flagListing,
  type ListingMethod,
  type ListingStatus,
} from "./store.ts";
import { formatAtomic } from "../../core/money.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** The listings as a paid fetch meets them. */
    listingRegistry: ListingRegistry;
  }
}

export default fp(
  async (app) => {
    app.decorate("listingRegistry", new ListingRegistry(app.prisma));
  },
  { name: "listing-book" },
);

/** The listings as a paid fetch meets them: what it is held to, and what it reports back. */

/** What x402-fetch is held to when it pays for a listing. */
export interface ListingPins {
  id: string;
  url: string;
  method: ListingMethod;
  host: string;
  /** Lower case. */
  payTo: string;
  asset: string;
  network: string;
  priceCeilingAtomic: bigint;
  status: ListingStatus;
  x402Version: number;
  /** The entry of its 402 that was last seen. */
  requirement: Record<string, unknown>;
}

export class ListingRegistry {
  readonly #prisma: PrismaClient;
  constructor(prisma: PrismaClient) {
    this.#prisma = prisma;
  }

  /** The pins for a paid fetch; the caller refuses one that is not active. */
  async forFetch(id: string): Promise<ListingPins> {
    const row = await findListing(this.#prisma, id);
    if (!row) throw new ApiError("not_found", { detail: "There is no listing with this id." });
    const { url, method, host, payTo, asset, network, priceCeilingAtomic, status } = row;
    const { x402Version, requirement } = row;
    return {
      id: row.id,
      url,
      method,
      host,
      payTo,
      asset,
      network,
      priceCeilingAtomic,
      status,
      x402Version,
      requirement,
    };
  }

  /** A fetch met other terms than the pinned ones. */
  async flag(id: string, reason: string): Promise<void> {
    const sentence = "The terms at the last fetch differed from the listing. Nothing was paid.";
    await flagListing(this.#prisma, id, reason, sentence);
  }

  async countUse(id: string): Promise<void> {
    await countUse(this.#prisma, id);
  }
}

/** A listing's terms are pinned when it is made; whatever a seller asks later is held against them. */

/** Addresses in lower case, network as CAIP-2 id. */
export interface Terms {
  host: string;
  payTo: string;
  asset: string;
  network: string;
  priceAtomic: bigint;
}

/** What a probe of a live endpoint found: the entry of its 402 that a wallet here could pay. */
export interface ProbedTerms extends Terms {
  x402Version: number;
  requirement: object;
  /** Their words, as they came: `plainListing` makes them fit to keep. */
  name: string | null;
  description: string | null;
  mimeType: string | null;
  sample: string | null;
  extensions: object | null;
  /** What the 402 says it is for; null where it does not say. */
  resourceUrl: string | null;
}

type PinnedTerms = Omit<Terms, "priceAtomic"> & { priceCeilingAtomic: bigint };

type TermsVerdict = { kept: true } | { kept: false; reason: string };

/** A lower price than the ceiling is no change; everything else is. */
export function compareTerms(pinned: PinnedTerms, live: Terms): TermsVerdict {
  const changed = (reason: string): TermsVerdict => ({ kept: false, reason });
  if (live.host !== pinned.host)
    return changed(`The endpoint moved from ${pinned.host} to ${live.host}.`);
  if (live.network !== pinned.network)
    return changed(`It now requires payment on ${live.network} instead of ${pinned.network}.`);
  if (live.asset.toLowerCase() !== pinned.asset)
    return changed("It now requires a different asset.");
  if (live.payTo.toLowerCase() !== pinned.payTo)
    return changed("It now names a different payee from the listing.");
  if (live.priceAtomic > pinned.priceCeilingAtomic)
    return changed(
      `Its price rose to ${formatAtomic(live.priceAtomic)} USDC, above the listing's ${formatAtomic(pinned.priceCeilingAtomic)}.`,
    );
  return { kept: true };
}
