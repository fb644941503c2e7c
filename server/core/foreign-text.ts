/** What a stranger wrote: JSON, addresses, and words to be quoted. */
import { getAddress, type Address } from "viem";

/**
 * JSON that a stranger wrote. Parsing it never fails for its depth, but what comes after does: hashing,
 * storing or serializing a few thousand nested arrays overflows the stack. So depth is refused here.
 */

/** Deeper than any payment, JSON schema or order is; far from what a stack holds. */
export const MAX_JSON_DEPTH = 64;

type ForeignJson = { ok: true; value: unknown } | { ok: false; why: string };

/** `parse` is JSON.parse, or a codec that ends in it. */
export function readForeignJson(parse: () => unknown): ForeignJson {
  let value: unknown;
  try {
    value = parse();
  } catch {
    return { ok: false, why: "is not JSON" };
  }
  return isTooDeep(value)
    ? { ok: false, why: `is nested deeper than ${MAX_JSON_DEPTH} levels` }
    : { ok: true, value };
}

/** Whether more than `levels` arrays and objects are inside one another. */
export function isTooDeep(value: unknown, levels = MAX_JSON_DEPTH): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((member) => isTooDeep(member, levels - 1));
}

/** A JSON object, in contrast to an array, null or a scalar. */
export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** JSON as Postgres takes it: strangers' text may hold NUL, which jsonb refuses. */
export function toJsonb(value: unknown): string {
  return JSON.stringify(clean(value)) ?? "null";
}

function clean(value: unknown): unknown {
  if (typeof value === "string") return cleanText(value);
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return value.map(clean);
  if (typeof value !== "object" || value === null) return value;
  if ("toJSON" in value) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [cleanText(name), clean(member)]),
  );
}

/** Lone surrogates are refused by jsonb as well. */
const cleanText = (text: string): string => text.replaceAll(/\0|\p{Surrogate}/gu, "\uFFFD");

type ParsedAddress = { ok: true; address: Address } | { ok: false; reason: string };

const ZERO_ADDRESS = "0x0000000000000000000000000000000000000000";

/**
 * Reads an address a person or program wrote. Answers it in lower case, as the database keeps it.
 * Mixed case is a checksum (EIP-55) and must be right: a typo there would send money to nobody.
 */
export function parseAddress(text: unknown): ParsedAddress {
  if (typeof text !== "string" || !/^0x[0-9a-fA-F]{40}$/.test(text))
    return { ok: false, reason: "must be 0x and 40 hexadecimal digits" };
  const digits = text.slice(2);
  const lower = text.toLowerCase() as Address;
  const isMixed = digits !== digits.toLowerCase() && digits !== digits.toUpperCase();
  if (isMixed && getAddress(lower) !== text)
    return { ok: false, reason: "has a wrong checksum; copy it again, or write it in lower case" };
  if (lower === ZERO_ADDRESS) return { ok: false, reason: "is the zero address; nobody owns it" };
  return { ok: true, address: lower };
}

/** Numbers and strings say the same thing in what a stranger wrote; an object says nothing we could compare. */
export const plainText = (value: unknown): string | undefined =>
  typeof value === "string" || typeof value === "number" ? String(value) : undefined;

/** A stranger's text in a sentence of ours: short, and quoted. */
export const quoted = (value: unknown): string =>
  JSON.stringify((plainText(value) ?? typeof value).slice(0, 80));
