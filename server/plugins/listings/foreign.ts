/**
 * Listings that nobody signed for: a host's `/.well-known/x402` or another service's catalogue named the URL, and our own
 * probe found it alive.
 */
import type { Db } from "../../infra/db/prisma.ts";

export const WELL_KNOWN_SOURCE = "well-known";

export const isCatalogued = ({ foundIn }: { foundIn: string | null }): boolean =>
  foundIn !== null && foundIn !== WELL_KNOWN_SOURCE;

/**
 * What the owners of another cell of this service list, as the URL of a catalogue: only that, so that no two cells keep
 * an entry alive that both have from each other. It names the cell, whose address may change.
 */
export const catalogueOfCell = (id: string): string =>
  `cell://${id}/api/x402/discovery/resources?own=true`;

export const cellOfCatalogue = (url: string): string | undefined =>
  url.startsWith("cell://") ? new URL(url).host : undefined;

/** Where the listing comes from, as it is shown. */
export function sourceOf<S extends string>({
  source,
  foundIn,
}: {
  source: S;
  foundIn: string | null;
}) {
  if (foundIn === null) return source;
  if (foundIn === WELL_KNOWN_SOURCE) return WELL_KNOWN_SOURCE;
  return cellOfCatalogue(foundIn) === undefined ? { catalogue: foundIn } : "cell";
}

/** The other cell that lists it, as a member of what is shown. */
export function cellIn({ foundIn }: { foundIn: string | null }): { cell?: string } {
  const cell = foundIn === null ? undefined : cellOfCatalogue(foundIn);
  return cell === undefined ? {} : { cell };
}

/**
 * Host and path without what makes no difference to a reader: scheme, letter case, escapes, repeated slashes, query. Two
 * URLs with one key could be taken for each other.
 */
export function placeKey(url: string): string {
  const { host, pathname } = new URL(url);
  let path = pathname;
  try {
    path = decodeURIComponent(pathname);
  } catch {
    // An invalid escape stays as it is.
  }
  const plain = path.normalize("NFKC").toLowerCase().replaceAll(/\/+/g, "/").replace(/\/$/, "");
  return `${host.replace(/\.(?=:|$)/, "")}${plain}`;
}

/** Found in a catalogue, not in the host's own document. */
const CATALOGUED = { AND: [{ foundIn: { not: null } }, { foundIn: { not: WELL_KNOWN_SOURCE } }] };
export const SIGNED = { OR: [{ foundIn: null }, { foundIn: WELL_KNOWN_SOURCE }] };

/**
 * Whether a listing stands in the way of one that was found. A host may name several queries of a path; of a catalogue
 * only one entry is listed for a place, and none beside a listing that is not a catalogue's.
 */
export async function isTaken(db: Db, url: string, isOfCatalogue: boolean): Promise<boolean> {
  const rows = await db.listing.findMany({
    where: { host: new URL(url).host, ...(isOfCatalogue ? {} : { url, method: "GET", ...SIGNED }) },
    select: { url: true },
  });
  const key = placeKey(url);
  return rows.some((row) => !isOfCatalogue || placeKey(row.url) === key);
}

/** Deletes catalogues' entries at the place of another listing. Without `url`: everywhere. Returns how many. */
export async function dropShadows(db: Db, url?: string): Promise<number> {
  const host = url === undefined ? {} : { host: new URL(url).host };
  const found = await db.listing.findMany({
    where: { ...host, ...CATALOGUED },
    select: { id: true, url: true, host: true },
  });
  if (found.length === 0) return 0;
  const own = await db.listing.findMany({
    where: { host: { in: [...new Set(found.map((row) => row.host))] }, ...SIGNED },
    select: { url: true },
  });
  const taken = new Set(own.map((row) => placeKey(row.url)));
  const shadows = found.filter((row) => taken.has(placeKey(row.url))).map(({ id }) => id);
  const { count } = await db.listing.deleteMany({ where: { id: { in: shadows } } });
  return count;
}

/** Deletes what was found in a document, or only these URLs of it. */
export async function dropFound(db: Db, foundIn: string, urls: readonly string[]): Promise<number> {
  const { count } = await db.listing.deleteMany({ where: { foundIn, url: { in: [...urls] } } });
  return count;
}

/** An entry that a payment announced as well is the seller's own from then on. True: there was one. */
export async function adopt(
  db: Db,
  terms: { url: string; payTo: string; network: string },
): Promise<boolean> {
  const { count } = await db.listing.updateMany({
    where: { ...terms, method: "GET", source: "bazaar", foundIn: { not: null } },
    data: { foundIn: null },
  });
  return count > 0;
}

const FAILURES_UNTIL_DROPPED = 5;

/** Found listings that no longer respond go sooner than announced ones: nobody vouches for them. */
export async function dropDead(db: Db): Promise<number> {
  const { count } = await db.listing.deleteMany({
    where: {
      foundIn: { not: null },
      status: "failing",
      failures: { gte: FAILURES_UNTIL_DROPPED },
    },
  });
  return count;
}
