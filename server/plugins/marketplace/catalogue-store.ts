/** The catalogue for the protocol's Bazaar: listings that currently respond with their terms. */
import { jsonOrNull, type Db, type Prisma } from "../../infra/db/prisma.ts";
import { type ListingRow, matches, rowOf } from "../listings/store.ts";

/** An announced endpoint is deleted after this many failed probes; it may be announced again. */
const FAILURES_UNTIL_FORGOTTEN = 20;

export async function forgetDeadAnnouncements(db: Db): Promise<number> {
  const { count } = await db.listing.deleteMany({
    where: { source: "bazaar", status: "failing", failures: { gte: FAILURES_UNTIL_FORGOTTEN } },
  });
  return count;
}

interface CatalogueFilter {
  query?: string | undefined;
  payTo?: string | undefined;
  scheme?: string | undefined;
  network?: string | undefined;
  extension?: string | undefined;
  limit: number;
  offset: number;
}

export async function listCatalogue(
  db: Db,
  filter: CatalogueFilter,
): Promise<{ rows: ListingRow[]; total: number }> {
  const { payTo, scheme, network, extension } = filter;
  const where: Prisma.ListingWhereInput = {
    AND: [
      { status: "active" },
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
