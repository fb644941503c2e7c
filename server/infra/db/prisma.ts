import { PrismaPg } from "@prisma/adapter-pg";
import { Prisma, PrismaClient } from "../../generated/prisma/client.ts";
import { toJsonb } from "../../core/json.ts";
import type { Pool } from "./pool.ts";

export type { Prisma, PrismaClient };
/** What a store takes: the client, or the handle inside `prisma.$transaction(async (tx) => ...)`. */
export type Db = Prisma.TransactionClient;

/** On a pool of ours, so that its connections are limited and watched like all others. */
export function createPrisma(pool: Pool): PrismaClient {
  return new PrismaClient({
    adapter: new PrismaPg(pool, { disposeExternalPool: false }),
    // As long as the pool waits for a connection; and as long as Postgres lets a transaction idle.
    transactionOptions: { maxWait: 5_000, timeout: 8_000 },
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
