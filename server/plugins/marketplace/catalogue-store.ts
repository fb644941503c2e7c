/** The catalogue for the protocol's Bazaar: listings that currently respond with their terms. */
import { jsonOrNull, type Db, type Prisma } from "../../infra/db/prisma.ts";
import { SIGNED } from "../listings/foreign.ts";
import { searchCatalogue } from "../listings/search.ts";
import { type ListingRow, rowOf } from "../listings/store.ts";

/** An announced endpoint is deleted after this many failed probes; it may be announced again. */
const FAILURES_UNTIL_FORGOTTEN = 20;

export async function forgetDeadAnnouncements(db: Db): Promise<number> {
  const { count } = await db.listing.deleteMany({
    where: { source: "bazaar", status: "failing", failures: { gte: FAILURES_UNTIL_FORGOTTEN } },
  });
  return count;
}

/** Counts the sales of listings, and marks copies; returns how many were looked at. */
export async function countSales(db: Db, most: number): Promise<number> {
  const [row] = await db.$queryRaw<{ counted: number }[]>`
    SELECT purser_listing_figures(${most}::int) AS counted`;
  return row?.counted ?? 0;
}

interface CatalogueFilter {
  query?: string | undefined;
  payTo?: string | undefined;
  scheme?: string | undefined;
  network?: string | undefined;
  extension?: string | undefined;
  /** Without built-in listings and what catalogues named. */
  isOwn?: boolean;
  limit: number;
  offset: number;
}

export async function listCatalogue(
  db: Db,
  filter: CatalogueFilter,
): Promise<{ rows: ListingRow[]; total: number }> {
  const { query, scheme, network, extension, isOwn } = filter;
  const payTo = filter.payTo?.toLowerCase();
  if (query !== undefined)
    return searchCatalogue(
      db,
      { search: query, status: "active", payTo, scheme, network, extension },
      filter,
    );
  const where: Prisma.ListingWhereInput = {
    AND: [
      { status: "active" },
      isOwn ? { ...SIGNED, source: { not: "built-in" } } : {},
      payTo === undefined ? {} : { payTo },
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
