import { randomBytes } from "node:crypto";

/** What an id names; the prefix makes a pasted id recognizable in a log. */
export type IdPrefix = "own" | "ses" | "agt" | "key" | "pay" | "aud" | "lst" | "tx" | "evt" | "req";

const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";

/** `agt_` + 26 characters: 48 bits of milliseconds, then 80 random bits (Crockford base 32). */
export function newId(prefix: IdPrefix): string {
  let value = (BigInt(Date.now()) << 80n) | BigInt(`0x${randomBytes(10).toString("hex")}`);
  let text = "";
  for (let index = 0; index < 26; index += 1) {
    text = ALPHABET[Number(value & 31n)] + text;
    value >>= 5n;
  }
  return `${prefix}_${text}`;
}
