/** The listings as a paid fetch meets them: what it is held to, and what it reports back. */
import type { PrismaClient } from "../../infra/db/prisma.ts";
import { ApiError } from "../../errors.ts";
import {
  countUse,
  findListing,
  flagListing,
  type ListingMethod,
  type ListingStatus,
} from "./store.ts";

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
}

export class ListingBook {
  readonly #prisma: PrismaClient;
  constructor(prisma: PrismaClient) {
    this.#prisma = prisma;
  }

  /** The pins for a paid fetch; the caller refuses one that is not active. */
  async forFetch(id: string): Promise<ListingPins> {
    const row = await findListing(this.#prisma, id);
    if (!row) throw new ApiError("not_found", { detail: "There is no such listing." });
    const { url, method, host, payTo, asset, network, priceCeilingAtomic, status } = row;
    return { id: row.id, url, method, host, payTo, asset, network, priceCeilingAtomic, status };
  }

  /** A fetch met other terms than the pinned ones. */
  async flag(id: string, reason: string): Promise<void> {
    const sentence = "A fetch found other terms than the listing's; nothing was paid.";
    await flagListing(this.#prisma, id, reason, sentence);
  }

  async countUse(id: string): Promise<void> {
    await countUse(this.#prisma, id);
  }
}
