/**
 * Secrets that we issue and recognize by their hash: a prefix for the kind, 192 random bits in 33 base-62 digits, and a
 * CRC-32 in 6 more. The checksum refuses typos and truncated pastes without a database query, and makes secret scanners
 * reliable.
 */
import { createHash, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";

const SECRET_BYTES = 24;
const SECRET_DIGITS = 33;
const CHECKSUM_DIGITS = 6;
const DIGITS = /^[0-9A-Za-z]{39}$/;
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** No prefix of one kind is the start of another kind's secret: the digits after it contain no underscore. */
export const API_KEY_PREFIX = "purser_";
export const ACCESS_TOKEN_PREFIX = "purser_at_";
export const REFRESH_TOKEN_PREFIX = "purser_rt_";
export const CODE_PREFIX = "purser_ac_";
export const MERCHANT_KEY_PREFIX = "purser_mk_";

export function createSecret(prefix: string): string {
  const secret = toBase62(BigInt(`0x${randomBytes(SECRET_BYTES).toString("hex")}`), SECRET_DIGITS);
  return `${prefix}${secret}${checksum(prefix, secret)}`;
}

/** A new key, with the parts to store and the full text to show once. */
export function createKey(prefix: string) {
  const key = createSecret(prefix);
  const facts = {
    keyHash: hashSecret(key),
    prefix: key.slice(0, prefix.length + 4),
    last4: key.slice(-4),
  };
  return { key, facts };
}

/** Whether the text has the form of our secrets of this kind. If false, no query is needed. */
export function isSecretShape(prefix: string, text: string): boolean {
  if (!text.startsWith(prefix)) return false;
  const digits = text.slice(prefix.length);
  if (!DIGITS.test(digits)) return false;
  return checksum(prefix, digits.slice(0, SECRET_DIGITS)) === digits.slice(SECRET_DIGITS);
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
