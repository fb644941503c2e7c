/** Stored listings: the endpoints, their pinned terms, and when each is probed next. */
import { isDeepStrictEqual } from "node:util";
import { plainListing, type ListingText } from "./listing-text.ts";
import type { PageRequest, Place } from "../../core/paging.ts";
import {
  atomicOf,
  decimalOf,
  placeOf,
  readKeyset,
  databaseNow,
  jsonOf,
  jsonOrNull,
  secondsAfter,
  type Db,
  type Prisma,
  type PrismaClient,
} from "../../infra/db/prisma.ts";

export type ListingStatus = "active" | "failing" | "paused";
type ListingSource = "owner" | "bazaar" | "built-in";
export type ListingMethod = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** Addresses in lower case, network as CAIP-2 id. */
export interface Terms {
  host: string;
  payTo: string;
  asset: string;
  network: string;
  priceAtomic: bigint;
}

export interface ListingRow extends Terms, Place {
  source: ListingSource;
  ownerId: string | null;
  name: string;
  description: string;
  category: string;
  url: string;
  method: ListingMethod;
  priceCeilingAtomic: bigint;
  status: ListingStatus;
  flag: string | null;
  statusReason: string | null;
  x402Version: number;
  requirement: Record<string, unknown>;
  extensions: Record<string, unknown> | null;
  mimeType: string | null;
  sample: string | null;
  /** As the seller's 402 names them. */
  tags: string[];
  uses: bigint;
  /** In the last 30 days, to this payee at this host. */
  settlements: number;
  payers: number;
  /** A listing of another seller with the same texts, which has more payers. */
  similarTo: string | null;
  failures: number;
  /** Null, `well-known`, or the URL of the catalogue that named it (foreign.ts). */
  foundIn: string | null;
  lastProbedAt: Date | null;
  createdAt: Date;
  updatedAt: Date;
}

export function rowOf(stored: Prisma.ListingGetPayload<object>): ListingRow {
  const { price, priceCeiling, builtInKey: _key, nextProbeAt: _next, ...rest } = stored;
  const { nearWords: _near, textKey: _textKey, figuresAt: _figuresAt, ...facts } = rest;
  return {
    ...(facts as typeof facts &
      Pick<ListingRow, "source" | "method" | "status" | "requirement" | "extensions">),
    ...placeOf(stored),
    priceAtomic: atomicOf(price),
    priceCeilingAtomic: atomicOf(priceCeiling),
  };
}

interface ListingFilter {
  category?: string | undefined;
  network?: string | undefined;
  scheme?: string | undefined;
  maxPriceAtomic?: bigint | undefined;
  status?: ListingStatus | undefined;
  /** All listings of one owner, including paused ones; otherwise only public ones. */
  ownerId?: string | undefined;
}

const PUBLIC: Prisma.ListingWhereInput = { status: { not: "paused" } };

/** Newest first; one row more than `limit` shows that there is a next page. */
export async function listListings(
  db: Db,
  filter: ListingFilter,
  page: PageRequest,
): Promise<ListingRow[]> {
  const { ownerId, category, network, scheme, maxPriceAtomic, status } = filter;
  const within: Prisma.ListingWhereInput[] = [
    ownerId === undefined ? PUBLIC : { ownerId },
    {
      ...(category === undefined ? {} : { category }),
      ...(network === undefined ? {} : { network }),
      ...(scheme === undefined ? {} : { requirement: { path: ["scheme"], equals: scheme } }),
      ...(status === undefined ? {} : { status }),
      ...(maxPriceAtomic === undefined ? {} : { price: { lte: decimalOf(maxPriceAtomic) } }),
    },
  ];
  const rows = await readKeyset(page, (where, order) =>
    db.listing.findMany({
      where: { AND: [...within, where] },
      ...order,
    }),
  );
  return rows.map(rowOf);
}

/** Listings that respond and were paid here, or that are our own; the most used first. */
export async function suggestListings(db: Db, most: number): Promise<ListingRow[]> {
  const rows = await db.listing.findMany({
    where: {
      status: "active",
      OR: [{ uses: { gt: 0 } }, { source: { in: ["bazaar", "built-in"] }, foundIn: null }],
    },
    orderBy: [{ uses: "desc" }, { createdAt: "asc" }, { id: "asc" }],
    take: most,
  });
  return rows.map(rowOf);
}

export async function findListing(db: Db, id: string): Promise<ListingRow | undefined> {
  const stored = await db.listing.findUnique({ where: { id } });
  return stored === null ? undefined : rowOf(stored);
}

export interface NewListingRow extends Terms {
  id: string;
  source: ListingSource;
  ownerId: string | null;
  builtInKey: string | null;
  foundIn?: string;
  name: string;
  description: string;
  category: string;
  url: string;
  method: ListingMethod;
  priceCeilingAtomic: bigint;
  status: ListingStatus;
  flag: string | null;
  statusReason: string | null;
  x402Version: number;
  requirement: object;
  extensions: object | null;
  mimeType: string | null;
  sample: string | null;
  tags?: string[];
  /** Null: never probed, so due at once. */
  probedAt: Date | null;
  nextProbeInMs: number;
}

/** The columns of a new row. */
const stored = (row: NewListingRow, now: Date) => {
  const { priceAtomic, priceCeilingAtomic, probedAt, nextProbeInMs, ...given } = row;
  const facts = plainListing(given);
  return {
    ...facts,
    price: decimalOf(priceAtomic),
    priceCeiling: decimalOf(priceCeilingAtomic),
    requirement: jsonOf(facts.requirement),
    extensions: jsonOrNull(facts.extensions),
    lastProbedAt: probedAt,
    nextProbeAt: secondsAfter(now, nextProbeInMs / 1000),
  };
};

/** The texts that a probe read, as columns; undefined members stay unchanged. */
export function wordsOf(words: Partial<ListingText>) {
  const { extensions, requirement, ...texts } = plainListing(words);
  return {
    ...texts,
    ...(extensions === undefined ? {} : { extensions: jsonOrNull(extensions) }),
    ...(requirement === undefined ? {} : { requirement: jsonOf(requirement) }),
  };
}

/** Undefined if this owner has already listed this endpoint. */
export async function insertListing(db: Db, row: NewListingRow): Promise<ListingRow | undefined> {
  const [inserted] = await db.listing.createManyAndReturn({
    data: [stored(row, await databaseNow(db))],
    skipDuplicates: true,
  });
  return inserted && rowOf(inserted);
}

/**
 * Lists our own endpoints: replicas that start together create one row, and a changed origin or payee updates the
 * pinned terms.
 */
export async function putBuiltIn(db: Db, row: NewListingRow): Promise<void> {
  if (row.builtInKey === null) throw new Error("a built-in listing needs its key");
  const now = await databaseNow(db);
  const columns = stored(row, now);
  const before = await db.listing.findUnique({ where: { builtInKey: row.builtInKey } });
  if (before === null) {
    await db.listing.createMany({ data: [columns], skipDuplicates: true });
    return;
  }
  const isSame =
    before.status === "active" &&
    before.url === row.url &&
    before.payTo === row.payTo &&
    before.asset === row.asset &&
    atomicOf(before.priceCeiling) === row.priceCeilingAtomic &&
    isDeepStrictEqual(before.requirement, columns.requirement);
  if (isSame) return;
  const { id: _id, source: _source, method: _method, x402Version: _version, ...changes } = columns;
  await db.listing.update({
    where: { id: before.id },
    data: {
      ...changes,
      lastProbedAt: before.lastProbedAt,
      status: "active",
      flag: null,
      statusReason: null,
      failures: 0,
      updatedAt: now,
    },
  });
}

interface ListingChange {
  name?: string | undefined;
  description?: string | undefined;
  category?: string | undefined;
  priceCeilingAtomic?: bigint | undefined;
  status?: ListingStatus | undefined;
  flag?: string | null | undefined;
  statusReason?: string | null | undefined;
  probeNow?: boolean | undefined;
}

export async function changeListing(
  db: Db,
  key: { id: string; ownerId: string },
  change: ListingChange,
): Promise<ListingRow | undefined> {
  const { priceCeilingAtomic, probeNow, flag, statusReason, ...facts } = change;
  const now = await databaseNow(db);
  const [changed] = await db.listing.updateManyAndReturn({
    where: key,
    data: {
      // Prisma ignores undefined members.
      ...plainListing(facts),
      ...(priceCeilingAtomic === undefined ? {} : { priceCeiling: decimalOf(priceCeilingAtomic) }),
      ...(flag === undefined ? {} : { flag, statusReason: statusReason ?? null }),
      ...(probeNow === true ? { nextProbeAt: now } : {}),
      updatedAt: now,
    },
  });
  return changed && rowOf(changed);
}

export async function deleteListing(
  db: Db,
  key: { id: string; ownerId: string },
): Promise<boolean> {
  const { count } = await db.listing.deleteMany({ where: key });
  return count === 1;
}

/** The number of listings of an owner, or of a host for all owners together. */
export async function countListings(
  db: Db,
  of: { ownerId: string } | { host: string },
): Promise<number> {
  return db.listing.count({ where: of });
}

export async function countUse(db: Db, id: string): Promise<void> {
  await db.listing.updateMany({ where: { id }, data: { uses: { increment: 1 } } });
}

/** Changes a listing depending on its current state, under its row's lock, so that its owner's change is not lost. */
export async function reviseListing(
  prisma: PrismaClient,
  id: string,
  revise: (before: { status: string; nextProbeAt: Date }, now: Date) => Prisma.ListingUpdateInput,
): Promise<void> {
  await prisma.$transaction(async (tx) => {
    // SQL: a row lock, which Prisma does not have.
    await tx.$queryRaw`SELECT 1 FROM listings WHERE id = ${id} FOR UPDATE`;
    const before = await tx.listing.findUnique({
      where: { id },
      select: { status: true, nextProbeAt: true },
    });
    if (before === null) return;
    const now = await databaseNow(tx);
    await tx.listing.update({ where: { id }, data: { ...revise(before, now), updatedAt: now } });
  });
}

const SOON_SECONDS = 60;

/** Called if terms differ from the pinned ones: the listing fails at once, and is probed soon. */
export async function flagListing(
  prisma: PrismaClient,
  id: string,
  flag: string,
  reason: string,
): Promise<void> {
  await reviseListing(prisma, id, ({ status, nextProbeAt }, now) => {
    const soon = secondsAfter(now, SOON_SECONDS);
    return {
      status: status === "paused" ? status : "failing",
      flag,
      statusReason: reason,
      nextProbeAt: nextProbeAt < soon ? nextProbeAt : soon,
    };
  });
}
