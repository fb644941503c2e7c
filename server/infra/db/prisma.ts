import { PrismaPg } from "@prisma/adapter-pg";
import { PrismaClient } from "../../generated/prisma/client.ts";
import type { Pool } from "./pool.ts";

export type Prisma = PrismaClient;
/** The handle inside `prisma.$transaction(async (tx) => ...)`. */
export type PrismaTx = Omit<
  PrismaClient,
  "$connect" | "$disconnect" | "$on" | "$transaction" | "$extends"
>;

/** Prisma shares the pool of the hot paths: one limit on connections, one place to close. */
export function createPrisma(pool: Pool): Prisma {
  return new PrismaClient({ adapter: new PrismaPg(pool, { disposeExternalPool: false }) });
}
