/** Prisma: its client, our money and JSON in its types, and lists by keyset. */
import { PrismaPg } from "@prisma/adapter-pg";
import { Prisma, PrismaClient } from "../../generated/prisma/client.ts";
import { toJsonb } from "../../core/foreign-text.ts";
import type { Pool } from "./pool.ts";
import type { PageRequest, Place } from "../../core/paging.ts";

export type { Prisma, PrismaClient };
/** What a store takes: the client, or the handle inside `prisma.$transaction(async (tx) => ...)`. */
export type Db = Prisma.TransactionClient;

/** Prisma shares the pool of the hot paths: one limit on connections, one place to close. */
export function createPrisma(pool: Pool): PrismaClient {
  return new PrismaClient({
    adapter: new PrismaPg(pool, { disposeExternalPool: false }),
    // As long as the pool waits for a connection; and longer than anybody holds an agent's row.
    transactionOptions: { maxWait: 5_000, timeout: 30_000 },
    // Otherwise a message quotes the source around the call.
    errorFormat: "minimal",
  });
}

/**
 * The database's clock, which judges all times: replicas' own clocks may differ. Rows get their dates
 * from it too, because Prisma would fill `@default(now())` from this process' clock.
 */
export async function databaseNow(db: Db): Promise<Date> {
  // SQL: Prisma has no expression for the database's clock.
  const rows = await db.$queryRaw<{ now: Date }[]>`SELECT clock_timestamp() AS now`;
  return (rows[0] as { now: Date }).now;
}

export const secondsAfter = (time: Date, seconds: number): Date =>
  new Date(time.getTime() + seconds * 1000);
export const hoursBefore = (time: Date, hours: number): Date => secondsAfter(time, -hours * 3600);

/** A JSON column's value from strangers' data, without what jsonb refuses. */
export const jsonOf = (value: unknown): Prisma.InputJsonValue =>
  JSON.parse(toJsonb(value)) as Prisma.InputJsonValue;

/** The same where a column may be NULL. */
export const jsonOrNull = (value: unknown): Prisma.InputJsonValue | typeof Prisma.DbNull =>
  value === null ? Prisma.DbNull : jsonOf(value);

/** The one place between Prisma's Decimal and our bigint: money is atomic units, never a float. */

/** A NUMERIC(78,0) as it is: every digit, no exponent; throws should it ever have a fraction. */
export const atomicOf = (value: Prisma.Decimal): bigint => BigInt(value.toFixed());

export const atomicOrNull = (value: Prisma.Decimal | null): bigint | null =>
  value === null ? null : atomicOf(value);

/** Prisma takes decimals as text; a number would lose digits. */
export const decimalOf = (atomic: bigint): string => atomic.toString();

export const decimalOrNull = (atomic: bigint | null): string | null =>
  atomic === null ? null : decimalOf(atomic);

/**
 * Keyset paging for Prisma. A JavaScript date has milliseconds where Postgres orders by microseconds, so a
 * page begins with the rows of the last row's millisecond, in the database's order, and finds its place in
 * them; what is older follows by an index condition. A late page costs what the first one does. (Prisma's
 * own cursor reads every older row of a table whose key has two columns.)
 */

const MICROS_PER_MS = 1000n;

/** Joined to a list's own condition. */
interface KeysetWhere {
  createdAt?: { gte?: Date; lt: Date };
}

interface Placed {
  id: string;
  createdAt: Date;
}

/** Spread into `findMany`: how every list is ordered, and how many rows; without `take` all. */
interface KeysetOrder {
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
