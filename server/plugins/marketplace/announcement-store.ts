/** Listings that sellers announce by settling here, and the catalogue the protocol's Bazaar shows. */
import type { Announcement } from "./announcement.ts";
import { decimalOf } from "../../infra/db/decimal.ts";
import { databaseNow, jsonOf, jsonOrNull, type Db, type Prisma } from "../../infra/db/prisma.ts";
import { matches, rowOf, type ListingRow } from "../listings/store.ts";

/** One payee cannot fill the catalogue. */
const MAX_PER_PAYEE = 50;

/**
 * New: kept, unproven, due for a probe at once. Known: its price and extension follow what was paid;
 * the pinned ceiling and payee do not move.
 */
export async function announceListing(db: Db, row: Announcement & { id: string }): Promise<void> {
  const { url, method, payTo, network } = row;
  const listed = await db.listing.findFirst({
    where: { url, method, payTo, network, source: { not: "bazaar" } },
    select: { id: true },
  });
  if (listed !== null) return;
  const others = await db.listing.count({
    where: { payTo, source: "bazaar", NOT: { url, method } },
  });
  if (others >= MAX_PER_PAYEE) return;
  const now = await databaseNow(db);
  const announced = {
    name: row.name,
    description: row.description,
    extensions: jsonOrNull(row.extensions),
    mimeType: row.mimeType,
  };
  // Two that announce the same endpoint at once make one row: the second insert does nothing.
  const { count } = await db.listing.createMany({
    data: [
      {
        ...announced,
        id: row.id,
        source: "bazaar",
        category: "bazaar",
        url,
        method,
        host: row.host,
        payTo,
        asset: row.asset,
        network,
        price: decimalOf(row.priceAtomic),
        priceCeiling: decimalOf(row.priceAtomic),
        status: "failing",
        flag: "not_probed",
        statusReason: "Announced by its seller; not probed yet.",
        x402Version: row.x402Version,
        requirement: jsonOf(row.requirement),
        nextProbeAt: now,
      },
    ],
    skipDuplicates: true,
  });
  if (count === 1) return;
  await db.listing.updateMany({
    where: { url, method, payTo, network, source: "bazaar" },
    data: { ...announced, updatedAt: now },
  });
}

/** An announced endpoint that never answered again is forgotten; it may be announced anew. */
const FAILURES_UNTIL_FORGOTTEN = 20;

export async function forgetDeadAnnouncements(db: Db): Promise<number> {
  const { count } = await db.listing.deleteMany({
    where: { source: "bazaar", status: "failing", failures: { gte: FAILURES_UNTIL_FORGOTTEN } },
  });
  return count;
}

export interface CatalogueFilter {
  query?: string | undefined;
  payTo?: string | undefined;
  scheme?: string | undefined;
  network?: string | undefined;
  extension?: string | undefined;
  limit: number;
  offset: number;
}

/** Freshly announced ones are shown: their payment has just settled here. Failed probes hide a listing. */
const SHOWN: Prisma.ListingWhereInput = { OR: [{ status: "active" }, { flag: "not_probed" }] };

export async function listCatalogue(
  db: Db,
  filter: CatalogueFilter,
): Promise<{ rows: ListingRow[]; total: number }> {
  const { payTo, scheme, network, extension } = filter;
  const where: Prisma.ListingWhereInput = {
    AND: [
      SHOWN,
      matches(filter.query),
      payTo === undefined ? {} : { payTo: payTo.toLowerCase() },
      network === undefined ? {} : { network },
      scheme === undefined ? {} : { requirement: { path: ["scheme"], equals: scheme } },
      extension === undefined ? {} : { extensions: { path: [extension], not: jsonOrNull(null) } },
    ],
  };
  const [total, rows] = await Promise.all([
    db.listing.count({ where }),
    db.listing.findMany({
      where,
      orderBy: [{ createdAt: "desc" }, { id: "desc" }],
      take: filter.limit,
      skip: filter.offset,
    }),
  ]);
  return { rows: rows.map(rowOf), total };
}
