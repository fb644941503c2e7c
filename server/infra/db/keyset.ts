/**
 * Keyset paging for Prisma. A JavaScript date has milliseconds where Postgres orders by microseconds, so
 * the place of a page is the last row itself, which the database compares exactly; the millisecond
 * beside it bounds the index, so that a late page costs what the first one does.
 */
import type { PageRequest, Place } from "../../core/paging.ts";

const MICROS_PER_MS = 1000n;

/** Spread into `findMany`; `where` is merged by the caller, because lists have conditions of their own. */
export interface Keyset {
  where: { createdAt?: { lt: Date }; OR?: object[] };
  /** The row the page comes after. */
  cursorId: string | undefined;
  take: number;
}

export const placeOf = ({ id, createdAt }: { id: string; createdAt: Date }): Place => ({
  id,
  createdAtMicros: BigInt(createdAt.getTime()) * MICROS_PER_MS,
});

/** The page after a row. When that row was deleted meanwhile, what is older than it by its date. */
export async function readKeyset<Row>(
  page: PageRequest,
  read: (keyset: Keyset) => Promise<Row[]>,
): Promise<Row[]> {
  const take = page.limit + 1;
  if (page.after === undefined) return read({ where: {}, cursorId: undefined, take });
  const { createdAtMicros, id } = page.after;
  const millisecond = new Date(Number(createdAtMicros / MICROS_PER_MS));
  const next = new Date(millisecond.getTime() + 1);
  const rows = await read({ where: { createdAt: { lt: next } }, cursorId: id, take });
  if (rows.length > 0) return rows;
  const older = [{ createdAt: { lt: millisecond } }, { id: { lt: id } }];
  return read({ where: { createdAt: { lt: next }, OR: older }, cursorId: undefined, take });
}
