import { randomFillSync } from "node:crypto";

/** What an id names; the prefix makes a pasted id recognizable in a log. */
export type IdPrefix =
  | "own"
  | "ses"
  | "agt"
  | "key"
  | "pay"
  | "aud"
  | "opr"
  | "lst"
  | "nom"
  | "apr"
  | "fet"
  | "tx"
  | "evt"
  | "ocl"
  | "oar"
  | "mky"
  | "rfd"
  | "ntf"
  | "whk"
  | "dlv"
  | "eml"
  | "req";

const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";
const TIME_CHARS = 10;
const RANDOM_CHARS = 16;

/** Every request has an id: random bytes are fetched for many at once. */
const pool = Buffer.alloc(256 * RANDOM_CHARS);
let used = pool.length;

/** `agt_` + 26 characters: 48 bits of milliseconds, then 80 random bits (Crockford base 32). */
export function newId(prefix: IdPrefix): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  let time = "";
  let rest = Date.now();
  for (let index = 0; index < TIME_CHARS; index += 1) {
    time = ALPHABET.charAt(rest % 32) + time;
    rest = Math.floor(rest / 32);
  }
  let random = "";
  for (const end = used + RANDOM_CHARS; used < end; used += 1)
    random += ALPHABET.charAt((pool[used] ?? 0) & 31);
  return `${prefix}_${time}${random}`;
}
