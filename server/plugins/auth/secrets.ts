/**
 * Secrets that we issue and recognize by their hash: a prefix for the kind, 192 random bits in 33 base-62 digits, and a
 * CRC-32 in 6 more. The checksum refuses typos and truncated pastes without a database query, and makes secret scanners
 * reliable.
 */
import { createHash, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";
import { ApiError } from "../../errors.ts";

const SECRET_BYTES = 24;
const SECRET_DIGITS = 33;
const CHECKSUM_DIGITS = 6;
const SHAPE = /^(?:([a-z]{1,6}[0-9]{1,3})_)?[0-9A-Za-z]{39}$/;
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** No prefix of one kind is the start of another kind's secret: the digits after it contain no underscore. */
export const API_KEY_PREFIX = "purser_";
export const ACCESS_TOKEN_PREFIX = "purser_at_";
export const REFRESH_TOKEN_PREFIX = "purser_rt_";
export const CODE_PREFIX = "purser_ac_";
export const MERCHANT_KEY_PREFIX = "purser_mk_";

/** `cell`: where it is known, for a proxy in front of several cells. */
export function createSecret(kind: string, cell?: string): string {
  const prefix = cell === undefined ? kind : `${kind}${cell}_`;
  const secret = toBase62(BigInt(`0x${randomBytes(SECRET_BYTES).toString("hex")}`), SECRET_DIGITS);
  return `${prefix}${secret}${checksum(prefix, secret)}`;
}

/** A new key, with the parts to store and the full text to show once. */
export function createKey(kind: string, cell?: string) {
  const key = createSecret(kind, cell);
  const facts = {
    keyHash: hashSecret(key),
    prefix: key.slice(0, key.length - SECRET_DIGITS - CHECKSUM_DIGITS + 4),
    last4: key.slice(-4),
  };
  return { key, facts };
}

/** Whether the text has the form of our secrets of this kind. If false, no query is needed. */
export function isSecretShape(prefix: string, text: string): boolean {
  if (!text.startsWith(prefix)) return false;
  if (!SHAPE.test(text.slice(prefix.length))) return false;
  const end = text.length - CHECKSUM_DIGITS;
  const start = end - SECRET_DIGITS;
  return checksum(text.slice(0, start), text.slice(start, end)) === text.slice(end);
}

/** The cell in a secret of this kind, if it names one. */
export const cellIn = (prefix: string, text: string): string | undefined =>
  isSecretShape(prefix, text) ? SHAPE.exec(text.slice(prefix.length))?.[1] : undefined;

/** A key of another cell is unknown here, and that is not its fault. */
export function assertOurCell(self: string | undefined, named: string | undefined): void {
  if (self === undefined || named === undefined || named === self) return;
  throw new ApiError("wrong_cell", {
    detail: `This key belongs to the cell ${named}, and this is ${self}: the proxy in front sent it to the wrong one.`,
    extra: { cell: named },
  });
}

/** 192 random bits cannot be guessed, so a plain hash is sufficient. */
export const hashSecret = (text: string): Buffer => createHash("sha256").update(text).digest();

const checksum = (prefix: string, secret: string): string =>
  toBase62(BigInt(crc32(`${prefix}${secret}`)), CHECKSUM_DIGITS);

function toBase62(value: bigint, digits: number): string {
  let rest = value;
  let text = "";
  for (let index = 0; index < digits; index += 1) {
    text = (ALPHABET[Number(rest % 62n)] ?? "") + text;
    rest /= 62n;
  }
  return text;
}
