/** The marketplace: who may list what, and what a fetch by listing is held to. */
import type { PaymentRequired } from "@x402/core/types";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import { announceListing, listCatalogue } from "./announcement.ts";
import * as store from "../listings/store.ts";
import type { ListingPatch, ListingQuery, NewListing } from "../../schemas/listings.ts";
import { ApiError } from "../../errors.ts";
import { newId } from "../../core/ids.ts";
import { parseAtomic } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";
import { readPage, toPage, type PageOf } from "../../core/paging.ts";
import { readAnnouncement } from "./announcement.ts";
import { readCeiling, readListingUrl, readMaxPriceFilter } from "./wire.ts";
import { nextProbeInMs } from "./reprobe.ts";
import type { ProbedTerms } from "../listings/index.ts";

/** Asks the URL without paying; throws the ApiError that says why its 402 is none. */
export type Prober = (url: string, options: { method: string }) => Promise<ProbedTerms>;

/** An endpoint of our own, listed from the first start. */
export interface BuiltIn {
  key: string;
  name: string;
  description: string;
  category: string;
  url: string;
  method: store.ListingMethod;
  sample: string;
  terms: () => Promise<PaymentRequired>;
}

export interface Deps {
  prisma: PrismaClient;
  probe: Prober;
  networks: readonly NetworkFacts[];
  onBackgroundError: (error: unknown, what: string) => void;
}

export class Listings {
  readonly #deps: Deps;
  readonly #builtIns: BuiltIn[] = [];
  constructor(deps: Deps) {
    this.#deps = deps;
  }

  async list(query: ListingQuery, ownerId: string | undefined): Promise<PageOf<store.ListingRow>> {
    const page = readPage(query);
    const network = query.network === undefined ? undefined : networkId(query.network);
    const rows = await store.listListings(
      this.#deps.prisma,
      {
        search: query.search,
        category: query.category,
        network,
        maxPriceAtomic: readMaxPriceFilter(query.maxPrice),
        status: query.status,
        ownerId: query.mine === undefined ? undefined : ownerId,
      },
      page,
    );
    return toPage(rows, page.limit, (row) => row);
  }

  /** A paused listing is its owner's business; for everybody else it is not there. */
  async get(id: string, viewerId: string | undefined): Promise<store.ListingRow> {
    const row = await store.findListing(this.#deps.prisma, id);
    if (!row || (row.status === "paused" && row.ownerId !== viewerId)) throw missing();
    return row;
  }

  async probe(input: { url: string; method?: string | undefined }) {
    const url = readListingUrl(input.url);
    const method = (input.method ?? "GET") as store.ListingMethod;
    const terms = await this.#deps.probe(url.href, { method });
    return { url: url.href, method, terms };
  }

  async create(ownerId: string, input: NewListing): Promise<store.ListingRow> {
    const { url, method, terms } = await this.probe(input);
    const row = await store.insertListing(this.#deps.prisma, {
      id: newId("lst"),
      source: "owner",
      ownerId,
      builtInKey: null,
      name: input.name.trim(),
      description: input.description?.trim() ?? "",
      category: input.category ?? "other",
      url,
      method,
      ...pinned(terms),
      priceCeilingAtomic: readCeiling(input.maxPrice, terms.priceAtomic),
      status: "active",
      flag: null,
      statusReason: null,
      extensions: null,
      probedAt: new Date(),
      nextProbeInMs: nextProbeInMs(0),
    });
    if (!row) throw new ApiError("conflict", { detail: "You have listed this endpoint already." });
    return row;
  }

  async change(ownerId: string, id: string, patch: ListingPatch): Promise<store.ListingRow> {
    const before = await this.#own(ownerId, id);
    const ceiling =
      patch.maxPrice === undefined ? undefined : readCeiling(patch.maxPrice, before.priceAtomic);
    // Resumed, or held to another ceiling: what it is worth is seen by the next probe, due at once.
    const isResumed = patch.status === "active" && before.status === "paused";
    const row = await store.changeListing(
      this.#deps.prisma,
      { id, ownerId },
      {
        name: patch.name?.trim(),
        description: patch.description?.trim(),
        category: patch.category,
        priceCeilingAtomic: ceiling,
        // "active" does not overrule what a probe found.
        status: patch.status === "paused" ? "paused" : isResumed ? resumed(before) : undefined,
        probeNow: isResumed || ceiling !== undefined || patch.status === "active",
      },
    );
    if (!row) throw missing();
    return row;
  }

  async remove(ownerId: string, id: string): Promise<void> {
    if (!(await store.deleteListing(this.#deps.prisma, { id, ownerId }))) throw missing();
  }

  addBuiltIn(builtIn: BuiltIn): void {
    this.#builtIns.push(builtIn);
  }

  /** Lists our own endpoints at the terms they ask now; the same from every replica. */
  async refreshBuiltIns(): Promise<void> {
    for (const builtIn of this.#builtIns) {
      const required = await builtIn.terms();
      const row = builtInRow(builtIn, required);
      if (row) await store.putBuiltIn(this.#deps.prisma, row);
    }
  }

  /** The Bazaar view. It lists HTTP resources only. */
  async catalogued(filter: {
    query?: string;
    type?: string;
    payTo?: string;
    scheme?: string;
    network?: string;
    extensions?: string;
    limit: number;
    offset: number;
  }): Promise<{ rows: store.ListingRow[]; total: number }> {
    if (filter.type !== undefined && filter.type !== "http") return { rows: [], total: 0 };
    const network = filter.network === undefined ? undefined : networkId(filter.network);
    return listCatalogue(this.#deps.prisma, {
      query: filter.query,
      payTo: filter.payTo,
      scheme: filter.scheme,
      network,
      extension: filter.extensions,
      limit: filter.limit,
      offset: filter.offset,
    });
  }

  /**
   * Called with the body of a settle that succeeded. Returns at once and never throws: what a seller
   * announces must not delay, or fail, what it earned.
   */
  catalogue(body: unknown): void {
    const { prisma, networks, onBackgroundError } = this.#deps;
    announce(prisma, body, networks).catch((error: unknown) =>
      onBackgroundError(error, "cataloguing a settled resource"),
    );
  }

  async #own(ownerId: string, id: string): Promise<store.ListingRow> {
    const row = await store.findListing(this.#deps.prisma, id);
    if (!row || row.ownerId !== ownerId) throw missing();
    return row;
  }
}

/** The columns that come from a probe. */
export const pinned = (terms: ProbedTerms) => ({
  host: terms.host,
  payTo: terms.payTo.toLowerCase(),
  asset: terms.asset.toLowerCase(),
  network: terms.network,
  priceAtomic: terms.priceAtomic,
  x402Version: terms.x402Version,
  requirement: terms.requirement,
  mimeType: terms.mimeType,
  sample: terms.sample,
});

async function announce(
  prisma: PrismaClient,
  body: unknown,
  networks: readonly NetworkFacts[],
): Promise<void> {
  const announcement = readAnnouncement(body, networks);
  if (announcement) await announceListing(prisma, { id: newId("lst"), ...announcement });
}

const networkId = (idOrAlias: string): string => findNetwork(idOrAlias)?.id ?? idOrAlias;
const resumed = (row: store.ListingRow): store.ListingStatus =>
  row.flag === null ? "active" : "failing";
const missing = (): ApiError => new ApiError("not_found", { detail: "There is no such listing." });

function builtInRow(builtIn: BuiltIn, required: PaymentRequired): store.NewListingRow | undefined {
  const [requirement] = required.accepts;
  const priceAtomic = parseAtomic(requirement?.amount);
  if (!requirement || priceAtomic === undefined) return undefined;
  return {
    id: newId("lst"),
    source: "built-in",
    ownerId: null,
    builtInKey: builtIn.key,
    name: builtIn.name,
    description: builtIn.description,
    category: builtIn.category,
    url: builtIn.url,
    method: builtIn.method,
    host: new URL(builtIn.url).host,
    payTo: requirement.payTo.toLowerCase(),
    asset: requirement.asset.toLowerCase(),
    network: requirement.network,
    priceAtomic,
    priceCeilingAtomic: priceAtomic,
    status: "active",
    flag: null,
    statusReason: null,
    x402Version: required.x402Version,
    requirement,
    extensions: required.extensions ?? null,
    mimeType: required.resource.mimeType ?? null,
    sample: builtIn.sample,
    probedAt: new Date(),
    nextProbeInMs: 0,
  };
}
