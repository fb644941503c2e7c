/** Third-party input: JSON, addresses, and text to quote or store. */
import type { Address } from "viem";
import { checksummedAddress } from "./keccak.ts";
import { isRecord, isTooDeep, MAX_JSON_DEPTH } from "../../packages/paywall/src/foreign-json.ts";

export {
  escapeHtml,
  isRecord,
  isTooDeep,
  MAX_JSON_DEPTH,
  parseForeignJson,
  readForeignJson,
} from "../../packages/paywall/src/foreign-json.ts";

/** JSON that Postgres accepts: third-party text may contain NUL, which jsonb refuses. */
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

/** jsonb refuses lone surrogates as well. */
const cleanText = (text: string): string => text.replaceAll(/\0|\p{Surrogate}/gu, "\uFFFD");

/**
 * Invisible characters that no honest description needs: controls, bidi overrides and isolates, zero-width characters,
 * tags, variation selectors, fillers, private and unassigned code points. ZWJ and ZWNJ are removed too: an emoji falls
 * apart and a Persian sentence loses its spacing, but hidden instructions are the greater harm.
 */
const UNSEEN =
  /[\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Default_Ignorable_Code_Point}\u2800]|(?<=\p{M}{3})\p{M}/gu;
const BLANKS = /[\p{Cc}\p{Z}]+/gu;

/**
 * Turns third-party text into one line of plain, visible text in NFC, at most `maxLength` code points. All text that a
 * seller, an owner of a listing or a payer wrote passes through here before it is stored or returned.
 */
export function plainWords(text: unknown, maxLength: number): string {
  if (typeof text !== "string") return "";
  // Invisible characters must not use up the allowed length, and no unbounded text is normalized.
  const visible = text
    .slice(0, maxLength * 8)
    .normalize("NFC")
    .replaceAll(BLANKS, " ")
    .replaceAll(UNSEEN, "");
  return Array.from(visible.replaceAll(/ {2,}/g, " ").trim()).slice(0, maxLength).join("").trim();
}

/** The same for third-party JSON, names and values. Undefined: more than `maxBytes`, or too deep. */
export function plainJson(value: unknown, maxBytes: number): unknown {
  if (isTooDeep(value, MAX_JSON_DEPTH)) return undefined;
  const plain = (part: unknown): unknown => {
    if (typeof part === "string") return plainWords(part, maxBytes);
    if (Array.isArray(part)) return part.map(plain);
    if (!isRecord(part)) return part;
    return Object.fromEntries(
      Object.entries(part).map(([name, member]) => [plainWords(name, 200), plain(member)]),
    );
  };
  const result = plain(value);
  const isSmall = Buffer.byteLength(JSON.stringify(result) ?? "") <= maxBytes;
  return isSmall ? result : undefined;
}

type ParsedAddress = { ok: true; address: Address } | { ok: false; reason: string };

const ZERO_ADDRESS = "0x0000000000000000000000000000000000000000";

/**
 * Parses an address that a person or program wrote, and returns it in lower case, as the database stores it. Mixed case
 * is a checksum (EIP-55) and must be right: a typo would send the money to an address without a key.
 */
export function parseAddress(text: unknown): ParsedAddress {
  if (typeof text !== "string" || !/^0x[0-9a-fA-F]{40}$/.test(text))
    return { ok: false, reason: "must be 0x and 40 hexadecimal digits" };
  const lower = text.toLowerCase() as Address;
  const isMixed = lower !== text && /[a-f]/.test(text);
  if (isMixed && checksummedAddress(lower) !== text)
    return { ok: false, reason: "has a wrong checksum; copy it again or use lower case" };
  if (lower === ZERO_ADDRESS) return { ok: false, reason: "is the zero address" };
  return { ok: true, address: lower };
}

/** In third-party input a number and its string are equal; an object cannot be compared. */
export const plainText = (value: unknown): string | undefined =>
  typeof value === "string" || typeof value === "number" ? String(value) : undefined;

/** Quotes third-party text in a message, shortened. */
export const quoted = (value: unknown): string =>
  JSON.stringify((plainText(value) ?? typeof value).slice(0, 80));
