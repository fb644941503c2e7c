/**
 * Keyset paging for Prisma. A JavaScript date has milliseconds where Postgres orders by microseconds, so a
 * page begins with the rows of the last row's millisecond, in the database's order, and finds its place in
 * them; what is older follows by an index condition. A late page costs what the first one does. (Prisma's
 * own cursor reads every older row of a table whose key has two columns.)
 */
import type { PageRequest, Place } from "../../core/paging.ts";

const MICROS_PER_MS = 1000n;

/** Joined to a list's own condition. */
export interface KeysetWhere {
  createdAt?: { gte?: Date; lt: Date };
}

interface Placed {
  id: string;
  createdAt: Date;
}

/** Spread into `findMany`: how every list is ordered, and how many rows; without `take` all. */
export interface KeysetOrder {
  orderBy: [{ createdAt: "desc" }, { id: "desc" }];
  take?: number;
}
const NEWEST_FIRST: KeysetOrder = { orderBy: [{ createdAt: "desc" }, { id: "desc" }] };

export const placeOf = ({ id, createdAt }: Placed): Place => ({
  id,
  createdAtMicros: BigInt(createdAt.getTime()) * MICROS_PER_MS,
});

/** One row more than the page, which only says that there is more. */
export async function readKeyset<Row extends Placed>(
  page: PageRequest,
  read: (where: KeysetWhere, order: KeysetOrder) => Promise<Row[]>,
): Promise<Row[]> {
  const take = page.limit + 1;
  if (page.after === undefined) return read({}, { ...NEWEST_FIRST, take });
  const { createdAtMicros, id } = page.after;
  const millisecond = new Date(Number(createdAtMicros / MICROS_PER_MS));
  const next = new Date(millisecond.getTime() + 1);
  const beside = await read({ createdAt: { gte: millisecond, lt: next } }, NEWEST_FIRST);
  const last = beside.findIndex((row) => row.id === id);
  // The last row may be deleted by now: then the ids decide within its millisecond.
  const rest = last === -1 ? beside.filter((row) => row.id < id) : beside.slice(last + 1);
  if (rest.length >= take) return rest.slice(0, take);
  const order = { ...NEWEST_FIRST, take: take - rest.length };
  return [...rest, ...(await read({ createdAt: { lt: millisecond } }, order))];
}
