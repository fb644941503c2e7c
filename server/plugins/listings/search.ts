/** Search: one order of listings for our own API, MCP and the protocol's Bazaar. The database ranks (purser_search). */
import { decodeCursor, encodeCursor, invalidCursor, type PageOf } from "../../core/paging.ts";
import { decimalOf, type Db } from "../../infra/db/prisma.ts";
import { searchWords } from "./search-words.ts";
import { rowOf, type ListingRow, type ListingStatus } from "./store.ts";

export interface SearchFilter {
  search: string;
  category?: string | undefined;
  network?: string | undefined;
  scheme?: string | undefined;
  maxPriceAtomic?: bigint | undefined;
  status?: ListingStatus | undefined;
  payTo?: string | undefined;
  extension?: string | undefined;
  /** All listings of one owner, including paused ones; otherwise only public ones. */
  ownerId?: string | undefined;
}

/** The last listing of the page before, its place, and when the search began: later listings are not in it. */
interface After {
  beganMicros: bigint;
  place: number;
  id: string;
}

interface Found {
  id: string;
  place: bigint;
  total: bigint;
  began: bigint;
}

/** Empty if the text has no word. */
async function findPlaces(
  db: Db,
  filter: SearchFilter,
  { limit, after, offset }: { limit: number; after?: After | undefined; offset?: number },
): Promise<Found[]> {
  const asked = searchWords(filter.search);
  if (asked === undefined) return [];
  const maxPrice = filter.maxPriceAtomic === undefined ? null : decimalOf(filter.maxPriceAtomic);
  const began = after === undefined ? null : after.beganMicros.toString();
  // SQL: the ranking is a function of the database. A listing that was removed keeps its place.
  return db.$queryRaw<Found[]>`
    WITH began AS MATERIALIZED (
           SELECT coalesce(${began}::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS micros),
         found AS MATERIALIZED (
           SELECT f.id, f.place FROM began, LATERAL purser_search(
             ${asked.words}::text[], ${asked.related}::text[], 'epoch'::timestamptz + began.micros * interval '1 microsecond',
             ${filter.ownerId ?? null}::text, ${filter.status ?? null}::text, ${filter.category ?? null}::text,
             ${filter.network ?? null}::text, ${filter.scheme ?? null}::text, ${maxPrice}::numeric,
             ${filter.payTo ?? null}::text, ${filter.extension ?? null}::text) f)
    SELECT f.id, f.place, (SELECT count(*) FROM found) AS total, began.micros AS began
      FROM found f, began
     WHERE f.place > coalesce((SELECT last.place FROM found last WHERE last.id = ${after?.id ?? null}::text),
                              ${after?.place ?? offset ?? 0}::int)
     ORDER BY f.place LIMIT ${limit}`;
}

async function rowsOf(db: Db, found: readonly Found[]): Promise<ListingRow[]> {
  const stored = await db.listing.findMany({ where: { id: { in: found.map(({ id }) => id) } } });
  const rows = new Map(stored.map((row) => [row.id, rowOf(row)]));
  return found.flatMap(({ id }) => rows.get(id) ?? []);
}

/** A page of our own API. */
export async function searchListings(
  db: Db,
  filter: SearchFilter,
  { limit, cursor }: { limit: number; cursor?: string | undefined },
): Promise<PageOf<ListingRow>> {
  const after = cursor === undefined ? undefined : readAfter(cursor);
  const found = await findPlaces(db, filter, { limit: limit + 1, after });
  const shown = found.slice(0, limit);
  const last = shown.at(-1);
  const nextCursor =
    found.length > limit && last
      ? encodeCursor({ createdAtMicros: last.began, id: `${last.place}.${last.id}` })
      : null;
  return { items: await rowsOf(db, shown), nextCursor };
}

function readAfter(cursor: string): After {
  const place = decodeCursor(cursor);
  const [, at, id] = /^([0-9]{1,5})\.(.+)$/.exec(place?.id ?? "") ?? [];
  if (!place || id === undefined) throw invalidCursor();
  return { beganMicros: place.createdAtMicros, place: Number(at), id };
}

/** A page of the protocol's search, which counts. */
export async function searchCatalogue(
  db: Db,
  filter: SearchFilter,
  page: { limit: number; offset: number },
): Promise<{ rows: ListingRow[]; total: number }> {
  const found = await findPlaces(db, filter, page);
  return { rows: await rowsOf(db, found), total: Number(found[0]?.total ?? 0) };
}
