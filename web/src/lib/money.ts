/**
 * Money in the browser: decimal strings from and to the API, `bigint` atomic units in between. No floating
 * point.
 */
import { formatAtomic, USDC_DECIMALS } from "../../../packages/paywall/src/money.ts";

/** The API's form: no separators, no unnecessary trailing zeros. */
export const toDecimal = formatAtomic;

export const UNIT = 10n ** BigInt(USDC_DECIMALS);
/** As many digits as the API's amounts; users may also begin or end with the point. */
const AMOUNT = /^(\d{1,72}(\.\d{0,6})?|\.\d{1,6})$/;

/** `undefined` for anything that is not a plain decimal with at most 6 places. */
export function parseUsdc(text: string): bigint | undefined {
  const trimmed = text.trim();
  if (!AMOUNT.test(trimmed)) return undefined;
  const [whole = "", fraction = ""] = trimmed.split(".");
  return BigInt(whole === "" ? "0" : whole) * UNIT + BigInt(fraction.padEnd(USDC_DECIMALS, "0"));
}

/** For amounts from the API; an unreadable amount is a defect, not zero. */
export function atomic(decimal: string): bigint {
  const negative = decimal.startsWith("-");
  const value = parseUsdc(negative ? decimal.slice(1) : decimal);
  if (value === undefined) throw new RangeError(`Not a USDC amount: ${decimal}`);
  return negative ? -value : value;
}

/** A typed amount in the API's form; a text that is not an amount is returned unchanged. */
export function canonical(amount: string): string {
  const value = parseUsdc(amount);
  return value === undefined ? amount : toDecimal(value);
}

/** For display: thousands separators, at least two decimals, never rounded. */
export function formatUsdc(amount: bigint | string): string {
  const [whole = "0", fraction = ""] = toDecimal(
    typeof amount === "bigint" ? amount : atomic(amount),
  ).split(".");
  return `${whole.replaceAll(/\B(?=(\d{3})+$)/g, ",")}.${fraction.padEnd(2, "0")}`;
}

/** The share of a total in per mille, for the length of a bar. */
export function perMille(part: bigint, whole: bigint): number {
  if (whole <= 0n) return part > 0n ? 1000 : 0;
  const share = (part * 1000n) / whole;
  return Number(share > 1000n ? 1000n : share < 0n ? 0n : share);
}

/** Charts need numbers: the picture may round, the text beside it does not. */
export const forChart = (amountAtomic: bigint): number => Number(amountAtomic) / Number(UNIT);
