/** The marketplace: creating, changing and reading listings. */
import type { PaymentRequired } from "@x402/core/types";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import { listCatalogue } from "./catalogue-store.ts";
import { searchListings } from "../listings/search.ts";
import * as store from "../listings/store.ts";
import type { ListingPatch, ListingQuery, NewListing } from "../../schemas/listings.ts";
import { ApiError } from "../../errors.ts";
import { newId } from "../../core/ids.ts";
import { parseAtomic } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";
import { readPage, toPage, type PageOf } from "../../core/paging.ts";
import { readAnnouncement, type AnnouncementResult } from "./announcement.ts";
import { assertControl, type ControlReader } from "./control.ts";
import { nominate } from "./nominations-store.ts";
import { readCeiling, readListingUrl, readMaxPriceFilter, readName } from "./wire.ts";
import { nextProbeInMs, type Prober } from "./round.ts";
import type { ProbedTerms } from "../listings/index.ts";
import { dropShadows } from "../listings/foreign.ts";
import { plainListing } from "../listings/listing-text.ts";

/** An endpoint of our own, listed from the first start. */
interface BuiltIn {
  key: string;
  name: string;
  description: string;
  category: string;
  url: string;
  method: store.ListingMethod;
  sample: string;
  terms: () => Promise<PaymentRequired>;
}

interface Deps {
  prisma: PrismaClient;
  probe: Prober;
  control: ControlReader;
  networks: readonly NetworkFacts[];
}

/** The caller: listings belong to the owner, and the proof of control names its address. */
interface Lister {
  id: string;
  address: string;
}

/** Every listing is probed as long as it exists, so their number is limited. */
const LISTING_QUOTAS = { owner: 50, host: 200 };
const MOST_SUGGESTED = 24;
/** A person waits for the first probe, but a slow seller should still succeed. */
const FIRST_PROBE_MS = 10_000;

export class Listings {
  readonly #deps: Deps;
  readonly #builtIns: BuiltIn[] = [];
  constructor(deps: Deps) {
    this.#deps = deps;
  }

  async list(query: ListingQuery, ownerId: string | undefined): Promise<PageOf<store.ListingRow>> {
    const { prisma } = this.#deps;
    const filter = {
      category: query.category,
      network: query.network === undefined ? undefined : networkId(query.network),
      scheme: query.scheme,
      maxPriceAtomic: readMaxPriceFilter(query.maxPrice),
      status: query.status,
      ownerId: query.mine === undefined ? undefined : ownerId,
    };
    const page = readPage(query);
    const search = query.search?.trim() ?? "";
    if (search !== "")
      return searchListings(prisma, { ...filter, search }, { ...page, cursor: query.cursor });
    const rows = await store.listListings(prisma, filter, page);
    return toPage(rows, page.limit, (row) => row);
  }

  suggested(): Promise<store.ListingRow[]> {
    return store.suggestListings(this.#deps.prisma, MOST_SUGGESTED);
  }

  /** Only its owner sees a paused listing. */
  async get(id: string, viewerId: string | undefined): Promise<store.ListingRow> {
    const row = await store.findListing(this.#deps.prisma, id);
    if (!row || (row.status === "paused" && row.ownerId !== viewerId)) throw missing();
    return row;
  }

  async probe(lister: Lister, input: { url: string; method?: string | undefined }) {
    const url = readListingUrl(input.url);
    const method = (input.method ?? "GET") as store.ListingMethod;
    if (method !== "GET") await assertControl(this.#deps.control, url.href, lister.address);
    const live = await this.#deps.probe(url.href, { method, timeoutMs: FIRST_PROBE_MS });
    const words = { name: live.name ?? "", description: live.description ?? "" };
    return { url: url.href, method, terms: plainListing({ ...live, ...words }) };
  }

  async create(lister: Lister, input: NewListing): Promise<store.ListingRow> {
    await this.#assertRoom(lister, readListingUrl(input.url));
    const { url, method, terms } = await this.probe(lister, input);
    const row = await store.insertListing(this.#deps.prisma, {
      id: newId("lst"),
      source: "owner",
      ownerId: lister.id,
      builtInKey: null,
      name: readName(input.name),
      description: input.description ?? "",
      category: input.category ?? "other",
      url,
      method,
      ...pinned(terms),
      priceCeilingAtomic: readCeiling(input.maxPrice, terms.priceAtomic),
      status: "active",
      flag: null,
      statusReason: null,
      probedAt: new Date(),
      nextProbeInMs: nextProbeInMs(0),
    });
    if (!row) throw new ApiError("conflict", { detail: "You have already listed this endpoint." });
    await dropShadows(this.#deps.prisma, url);
    return row;
  }

  /** If a host already has many listings, only an owner who controls it may add more. */
  async #assertRoom(lister: Lister, { host, href }: URL): Promise<void> {
    const { prisma, control } = this.#deps;
    if ((await store.countListings(prisma, { ownerId: lister.id })) >= LISTING_QUOTAS.owner)
      throw new ApiError("listing_quota_exceeded", {
        detail: `You have ${LISTING_QUOTAS.owner} listings. Remove one first.`,
      });
    if ((await store.countListings(prisma, { host })) < LISTING_QUOTAS.host) return;
    await assertControl(control, href, lister.address);
  }

  async change(ownerId: string, id: string, patch: ListingPatch): Promise<store.ListingRow> {
    const before = await this.#own(ownerId, id);
    const ceiling =
      patch.maxPrice === undefined ? undefined : readCeiling(patch.maxPrice, before.priceAtomic);
    // A resumed listing, or one with a new ceiling, is probed at once.
    const isResumed = patch.status === "active" && before.status === "paused";
    const row = await store.changeListing(
      this.#deps.prisma,
      { id, ownerId },
      {
        name: patch.name === undefined ? undefined : readName(patch.name),
        description: patch.description,
        category: patch.category,
        priceCeilingAtomic: ceiling,
        // "active" does not override the result of a probe.
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

  /** Lists our own endpoints with their current terms; all replicas do the same. */
  async refreshBuiltIns(): Promise<void> {
    const rows: store.NewListingRow[] = [];
    for (const builtIn of this.#builtIns) {
      const row = builtInRow(builtIn, await builtIn.terms());
      if (row) rows.push(row);
    }
    // All appear at once, the last one first in the list.
    await this.#deps.prisma.$transaction(async (tx) => {
      for (const row of rows) await store.putBuiltIn(tx, row);
    });
  }

  /** The Bazaar view. It lists HTTP resources only. */
  async catalogued(filter: {
    query?: string;
    type?: string;
    payTo?: string;
    scheme?: string;
    network?: string;
    extensions?: string;
    own?: "true";
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
      isOwn: filter.own === "true",
      limit: filter.limit,
      offset: filter.offset,
    });
  }

  /** The result of the announcement in a successful settle; undefined if there is none. */
  async announced(body: unknown, payer: string): Promise<AnnouncementResult | undefined> {
    const { prisma, networks } = this.#deps;
    const read = readAnnouncement(body, payer, networks);
    if (read.kind === "none") return undefined;
    if (read.kind === "refused") return { status: "rejected", rejectedReason: read.reason };
    return nominate(prisma, read.nomination);
  }

  async #own(ownerId: string, id: string): Promise<store.ListingRow> {
    const row = await store.findListing(this.#deps.prisma, id);
    if (!row || row.ownerId !== ownerId) throw missing();
    return row;
  }
}

/** The columns that come from a probe. */
const pinned = (terms: Omit<ProbedTerms, "name" | "description">) => ({
  host: terms.host,
  payTo: terms.payTo.toLowerCase(),
  asset: terms.asset.toLowerCase(),
  network: terms.network,
  priceAtomic: terms.priceAtomic,
  x402Version: terms.x402Version,
  requirement: terms.requirement,
  mimeType: terms.mimeType,
  sample: terms.sample,
  tags: terms.tags,
  extensions: terms.extensions,
});

const networkId = (idOrAlias: string): string => findNetwork(idOrAlias)?.id ?? idOrAlias;
const resumed = (row: store.ListingRow): store.ListingStatus =>
  row.flag === null ? "active" : "failing";
const missing = (): ApiError =>
  new ApiError("not_found", { detail: "There is no listing with this id." });

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
