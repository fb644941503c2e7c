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
/** Two bytes for each pair of characters. */
const RANDOM_BYTES = 16;

/** Every request has an id, so random bytes are generated for many ids at once. */
const pool = Buffer.alloc(256 * RANDOM_BYTES);
let used = pool.length;

/** All pairs of characters, one per 10 bits. */
const PAIRS = Array.from(
  { length: 1024 },
  (_, index) => ALPHABET.charAt(index >> 5) + ALPHABET.charAt(index & 31),
);
const PAIR_BITS = 1024;

let spelledMs = -1;
let spelled = "";

/** Cached: all ids of one millisecond share it. */
function timeNow(): string {
  const nowMs = Date.now();
  if (nowMs === spelledMs) return spelled;
  let rest = nowMs;
  let time = "";
  for (let index = 0; index < TIME_CHARS; index += 2) {
    time = (PAIRS[rest % PAIR_BITS] ?? "") + time;
    rest = Math.floor(rest / PAIR_BITS);
  }
  spelledMs = nowMs;
  spelled = time;
  return time;
}

/** `agt_` + 26 characters: 48 bits of milliseconds, then 80 random bits (Crockford base 32). */
export function newId(prefix: IdPrefix): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  let id = `${prefix}_${timeNow()}`;
  for (const end = used + RANDOM_BYTES; used < end; used += 2)
    id += PAIRS[pool.readUInt16LE(used) & 1023] ?? "";
  return id;
}
