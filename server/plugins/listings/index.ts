/** Marketplace listings as paid fetches use them: pinned terms, and how far live terms may differ. */
import fp from "fastify-plugin";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import { ApiError } from "../../errors.ts";
import { countUse, findListing, flagListing, type ListingRow, type Terms } from "./store.ts";
import { formatAtomic } from "../../core/money.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** The listings as paid fetches use them. */
    listingRegistry: ListingRegistry;
  }
}

export default fp(
  async (app) => {
    app.decorate("listingRegistry", new ListingRegistry(app.prisma));
  },
  { name: "listing-book" },
);

/** The terms that x402-fetch enforces when it pays for a listing. */
export type ListingPins = Pick<
  ListingRow,
  | "id"
  | "url"
  | "method"
  | "host"
  | "payTo"
  | "asset"
  | "network"
  | "priceCeilingAtomic"
  | "status"
  | "x402Version"
  | "requirement"
>;

export class ListingRegistry {
  readonly #prisma: PrismaClient;
  constructor(prisma: PrismaClient) {
    this.#prisma = prisma;
  }

  /** The pinned terms for a paid fetch; the caller refuses a listing that is not active. */
  async forFetch(id: string): Promise<ListingPins> {
    const row = await findListing(this.#prisma, id);
    if (!row) throw new ApiError("not_found", { detail: "There is no listing with this id." });
    return row;
  }

  /** Records that a fetch got terms different from the pinned ones. */
  async flag(id: string): Promise<void> {
    const sentence = "The terms at the last fetch differed from the listing. Nothing was paid.";
    await flagListing(this.#prisma, id, "listing_mismatch", sentence);
  }

  async countUse(id: string): Promise<void> {
    await countUse(this.#prisma, id);
  }
}

/** The result of probing a live endpoint: the payment requirement of its 402 that a wallet of ours could pay. */
export interface ProbedTerms extends Terms {
  x402Version: number;
  requirement: object;
  /** The seller's text, unchanged: `plainListing` makes it fit to store. */
  name: string | null;
  description: string | null;
  mimeType: string | null;
  sample: string | null;
  tags: string[];
  extensions: object | null;
  /** The resource that the 402 names; null if it names none. */
  resourceUrl: string | null;
}

type PinnedTerms = Omit<Terms, "priceAtomic"> & { priceCeilingAtomic: bigint };

type TermsVerdict = { kept: true } | { kept: false; reason: string };

/**
 * Compares the terms that were pinned when the listing was created with later ones of the seller. A price below the
 * ceiling is no change; every other difference is.
 */
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
