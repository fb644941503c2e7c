import { createHash, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";

/**
 * Agent keys: `purser_`, 192 random bits in 33 base-62 digits, then a CRC-32 in 6 more. The checksum
 * refuses typos and truncated pastes without asking the database, and lets secret scanners be sure.
 */
export const API_KEY_PREFIX = "purser_";
const SECRET_BYTES = 24;
const SECRET_DIGITS = 33;
const CHECKSUM_DIGITS = 6;
const SHAPE = new RegExp(`^${API_KEY_PREFIX}[0-9A-Za-z]{${SECRET_DIGITS + CHECKSUM_DIGITS}}$`);
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

export interface NewApiKey {
  /** Shown once, never stored. */
  apiKey: string;
  keyHash: Buffer;
  /** What a person may recognize it by. */
  prefix: string;
  last4: string;
}

export function createApiKey(): NewApiKey {
  const secret = toBase62(BigInt(`0x${randomBytes(SECRET_BYTES).toString("hex")}`), SECRET_DIGITS);
  const apiKey = `${API_KEY_PREFIX}${secret}${checksum(secret)}`;
  return {
    apiKey,
    keyHash: hashApiKey(apiKey),
    prefix: apiKey.slice(0, API_KEY_PREFIX.length + 4),
    last4: apiKey.slice(-4),
  };
}

/** Could this be one of ours? False means: certainly not, no query needed. */
export function isApiKeyShape(text: string): boolean {
  if (!SHAPE.test(text)) return false;
  const secret = text.slice(API_KEY_PREFIX.length, -CHECKSUM_DIGITS);
  return checksum(secret) === text.slice(-CHECKSUM_DIGITS);
}

/** A key has 192 random bits, so a plain hash cannot be searched backwards. */
export const hashApiKey = (apiKey: string): Buffer => createHash("sha256").update(apiKey).digest();

const checksum = (secret: string): string =>
  toBase62(BigInt(crc32(`${API_KEY_PREFIX}${secret}`)), CHECKSUM_DIGITS);

function toBase62(value: bigint, digits: number): string {
  let rest = value;
  let text = "";
  for (let index = 0; index < digits; index += 1) {
    text = (ALPHABET[Number(rest % 62n)] ?? "") + text;
    rest /= 62n;
  }
  return text;
}
