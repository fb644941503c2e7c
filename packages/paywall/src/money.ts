/**
 * The one place that converts money: integers only, no floating point. USDC has 6 decimals. In our REST
 * bodies money is a decimal string ("1.50"), in code a `bigint` of atomic units. Parsing refuses every
 * ambiguous text.
 */
export const USDC_DECIMALS = 6;
const ATOMIC_PER_USDC = 1_000_000n;

/** 40 digits are more than any real amount of USDC has, and they bound the work of parsing. */
const DECIMAL_PATTERN = /^(0|[1-9][0-9]{0,39})(?:\.([0-9]{1,6}))?$/;
const LONG_PATTERN = /^(0|[1-9][0-9]{0,39})\.[0-9]{7,}$/;
const MAX_UINT256 = (1n << 256n) - 1n;

export type ParsedAmount = { ok: true; atomic: bigint } | { ok: false; reason: string };

/** Parses a decimal string of USDC. Zero is allowed (a limit of "0" allows no spending). */
export function parseDecimal(text: unknown): ParsedAmount {
  if (typeof text !== "string") return { ok: false, reason: 'must be a string such as "1.50"' };
  const match = DECIMAL_PATTERN.exec(text);
  if (!match) {
    if (LONG_PATTERN.test(text))
      return { ok: false, reason: `has too many decimals: USDC has ${USDC_DECIMALS} decimals` };
    return {
      ok: false,
      reason:
        'must be a plain decimal such as "1.50": digits, at most 6 decimals, no sign, exponent or spaces',
    };
  }
  const whole = BigInt(match[1] ?? "0");
  const fraction = BigInt((match[2] ?? "").padEnd(USDC_DECIMALS, "0"));
  const atomic = whole * ATOMIC_PER_USDC + fraction;
  return { ok: true, atomic };
}

/** Parses an amount to be paid: zero is refused too. */
export function parsePayable(text: unknown): ParsedAmount {
  const parsed = parseDecimal(text);
  if (parsed.ok && parsed.atomic === 0n) return { ok: false, reason: "must be greater than zero" };
  return parsed;
}

/** Atomic units to the shortest exact decimal string: 1500000n -> "1.5", 0n -> "0". */
export function formatAtomic(atomic: bigint): string {
  const sign = atomic < 0n ? "-" : "";
  const value = atomic < 0n ? -atomic : atomic;
  const fraction = (value % ATOMIC_PER_USDC)
    .toString()
    .padStart(USDC_DECIMALS, "0")
    .replace(/0+$/, "");
  const whole = (value / ATOMIC_PER_USDC).toString();
  return fraction === "" ? `${sign}${whole}` : `${sign}${whole}.${fraction}`;
}

/** Parses an atomic amount as the x402 protocol writes it: decimal digits of a uint256. */
export function parseAtomic(text: unknown): bigint | undefined {
  if (typeof text !== "string" || !/^(0|[1-9][0-9]{0,77})$/.test(text)) return undefined;
  const atomic = BigInt(text);
  return atomic <= MAX_UINT256 ? atomic : undefined;
}
