/** The one place between Prisma's Decimal and our bigint: money is atomic units, never a float. */
import type { Prisma } from "./prisma.ts";

/** A NUMERIC(78,0) as it is: every digit, no exponent; throws should it ever have a fraction. */
export const atomicOf = (value: Prisma.Decimal): bigint => BigInt(value.toFixed());

export const atomicOrNull = (value: Prisma.Decimal | null): bigint | null =>
  value === null ? null : atomicOf(value);

/** Prisma takes decimals as text; a number would lose digits. */
export const decimalOf = (atomic: bigint): string => atomic.toString();

export const decimalOrNull = (atomic: bigint | null): string | null =>
  atomic === null ? null : decimalOf(atomic);
