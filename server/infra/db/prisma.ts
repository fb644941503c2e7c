/** Prisma: the client, conversions of money and JSON to its types, and keyset pagination of lists. */
import { PrismaPg } from "@prisma/adapter-pg";
import { Prisma, PrismaClient } from "../../generated/prisma/client.ts";
import { toJsonb } from "../../core/foreign-text.ts";
import type { Pool } from "./pool.ts";
import type { PageRequest, Place } from "../../core/paging.ts";

export { Prisma };
export type { PrismaClient };
/** For stores: the client, or the handle inside `prisma.$transaction(async (tx) => ...)`. */
export type Db = Prisma.TransactionClient;

/** Uses one of our pools, so that its connections are limited and watched like all others. */
export function createPrisma(pool: Pool): PrismaClient {
  return new PrismaClient({
    adapter: new PrismaPg(pool, { disposeExternalPool: false }),
    // The same limits as the pool's wait for a connection, and Postgres' idle-in-transaction timeout.
    transactionOptions: { maxWait: 5_000, timeout: 8_000 },
    // Otherwise messages quote the source code around the call.
    errorFormat: "minimal",
  });
}

/**
 * The time of the database's clock. It decides all times, because the clocks of replicas may differ. Rows get their
 * dates from it too: Prisma would fill `@default(now())` from this process' clock.
 */
export async function databaseNow(db: Db): Promise<Date> {
  // SQL: Prisma has no expression for the database's clock.
  const rows = await db.$queryRaw<{ now: Date }[]>`SELECT clock_timestamp() AS now`;
  return (rows[0] as { now: Date }).now;
}

export const secondsAfter = (time: Date, seconds: number): Date =>
  new Date(time.getTime() + seconds * 1000);
export const hoursBefore = (time: Date, hours: number): Date => secondsAfter(time, -hours * 3600);

/** A JSON column's value from third-party data, without characters that jsonb refuses. */
export const jsonOf = (value: unknown): Prisma.InputJsonValue =>
  JSON.parse(toJsonb(value)) as Prisma.InputJsonValue;

/** The same for a column that may be NULL. */
export const jsonOrNull = (value: unknown): Prisma.InputJsonValue | typeof Prisma.DbNull =>
  value === null ? Prisma.DbNull : jsonOf(value);

/** The one conversion between Prisma's Decimal and bigint: money is atomic units, never a float. */

/** A NUMERIC(78,0) with every digit and no exponent; throws if it has a fraction. */
export const atomicOf = (value: Prisma.Decimal): bigint => BigInt(value.toFixed());

export const atomicOrNull = (value: Prisma.Decimal | null): bigint | null =>
  value === null ? null : atomicOf(value);

/** Prisma does not escape the wildcards of LIKE in `contains`. */
export const escapeLike = (text: string): string => text.replaceAll(/[\\%_]/g, String.raw`\$&`);

/** As text, because a JavaScript number would lose digits. */
export const decimalOf = (atomic: bigint): string => atomic.toString();

/**
 * Keyset pagination for Prisma. A JavaScript date has milliseconds, but Postgres orders by microseconds. So a page
 * first reads the rows in the same millisecond as the last row, in the database's order, and continues after that row;
 * older rows follow by an index condition. A late page costs as much as the first one. (Prisma's own cursor reads every
 * older row of a table whose key has two columns.)
 */

const MICROS_PER_MS = 1000n;

/** Combined with the list's own condition. */
export interface KeysetWhere {
  createdAt?: { gte?: Date; lt: Date };
}

interface Placed {
  id: string;
  createdAt: Date;
}

/** Spread into `findMany`: the order of every list and the number of rows; without `take`, all rows. */
interface KeysetOrder {
  orderBy: [{ createdAt: "desc" }, { id: "desc" }];
  take?: number;
}
const NEWEST_FIRST: KeysetOrder = { orderBy: [{ createdAt: "desc" }, { id: "desc" }] };

export const placeOf = ({ id, createdAt }: Placed): Place => ({
  id,
  createdAtMicros: BigInt(createdAt.getTime()) * MICROS_PER_MS,
});

/** Reads one row more than the page, which only shows that there is a next page. */
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
  // The last row may have been deleted; then the ids decide within its millisecond.
  const rest = last === -1 ? beside.filter((row) => row.id < id) : beside.slice(last + 1);
  if (rest.length >= take) return rest.slice(0, take);
  const order = { ...NEWEST_FIRST, take: take - rest.length };
  return [...rest, ...(await read({ createdAt: { lt: millisecond } }, order))];
}

/**
 * The same for a list that is merged from several databases: by milliseconds and then by id, which every database
 * orders alike. Rows of one millisecond are read together, so that none is between two pages.
 */
export async function readMergeable<Row extends Placed>(
  page: PageRequest,
  read: (where: KeysetWhere, order: KeysetOrder) => Promise<Row[]>,
): Promise<Row[]> {
  const take = page.limit + 1;
  const within = async (millisecond: Date): Promise<Row[]> => {
    const next = new Date(millisecond.getTime() + 1);
    return read({ createdAt: { gte: millisecond, lt: next } }, NEWEST_FIRST);
  };
  const { after } = page;
  const start = after && new Date(Number(after.createdAtMicros / MICROS_PER_MS));
  const beside = start ? (await within(start)).filter((row) => row.id < after.id) : [];
  beside.sort(newestFirst);
  if (beside.length >= take) return beside.slice(0, take);
  const wanted = take - beside.length;
  const older = await read(start ? { createdAt: { lt: start } } : {}, {
    ...NEWEST_FIRST,
    take: wanted,
  });
  const last = older.at(-1);
  const isCut = last && older.length === wanted;
  const whole = isCut
    ? [...older.filter((row) => !isAt(row, last.createdAt)), ...(await within(last.createdAt))]
    : older;
  return [...beside, ...whole.toSorted(newestFirst)].slice(0, take);
}

const isAt = ({ createdAt }: Placed, time: Date): boolean => createdAt.getTime() === time.getTime();

/** The order of `readMergeable`. */
export const newestFirst = (left: Placed, right: Placed): number =>
  right.createdAt.getTime() - left.createdAt.getTime() || (left.id < right.id ? 1 : -1);
