import { randomFillSync } from "node:crypto";

/** The kind of object; the prefix makes an id recognizable in a log. */
type IdPrefix =
  | "own"
  | "ses"
  | "agt"
  | "key"
  | "pay"
  | "aud"
  | "opr"
  | "prc"
  | "lst"
  | "nom"
  | "fnd"
  | "apr"
  | "bud"
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
  | "psh"
  | "dny"
  | "flt"
  | "wto"
  | "tsk"
  | "mov"
  | "req";

const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";
const TIME_CHARS = 10;
const RANDOM_CHARS = 16;

/** Every request has an id, and the system's random bytes cost more than the id: they are taken for many ids at once. */
const pool = Buffer.alloc(256 * RANDOM_CHARS);
let used = pool.length;

/** `agt_` + 26 characters: 50 bits of milliseconds, then 80 random bits (Crockford base 32). */
export function newId(prefix: IdPrefix): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  let time = "";
  for (let rest = Date.now(); time.length < TIME_CHARS; rest = Math.floor(rest / 32))
    time = ALPHABET.charAt(rest % 32) + time;
  let random = "";
  for (const byte of pool.subarray(used, used + RANDOM_CHARS)) random += ALPHABET.charAt(byte % 32);
  used += RANDOM_CHARS;
  return `${prefix}_${time}${random}`;
}
