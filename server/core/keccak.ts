/**
 * Keccak-256 in WebAssembly, a tenth of what it takes in JavaScript, and what is made of it for every payment: the
 * spelling of an address that carries its checksum. Tests compare both with viem's.
 */
import { createKeccak, type IHasher } from "hash-wasm";
import { keccak256, type Address, type Hex } from "viem";
import { LastKnown } from "./shared-answers.ts";

let hasher: IHasher | undefined;

/** It is made ready while the server starts; what is hashed before that is hashed in JavaScript. */
export const whenReady: Promise<void> = (async () => {
  hasher = await createKeccak(256);
})();

export const keccak = (bytes: Uint8Array): Uint8Array =>
  hasher ? hasher.init().update(bytes).digest("binary") : keccak256(bytes, "bytes");

/** Of what is written in hexadecimal digits: a whole batch's transaction, for example. */
export const keccakOfHex = (text: Hex): Hex =>
  `0x${Buffer.from(keccak(Buffer.from(text.slice(2), "hex"))).toString("hex")}`;

/** Payers and payees come again. */
const spellings = new LastKnown<Address>(4_096);
const digits = Buffer.alloc(40);
const LETTER_A = 97;
const TO_CAPITAL = 32;

/** As EIP-55 writes this address, which comes in lower case. */
export const checksummedAddress = (lower: Address): Address =>
  spellings.get(lower) ?? spellings.keep(lower, spell(lower));

/** A letter is a capital where the hash of the digits has 8 or more in its place. */
function spell(lower: Address): Address {
  digits.write(lower.slice(2), "latin1");
  const hash = keccak(digits);
  for (let index = 0; index < digits.length; index += 1) {
    const pair = hash[index >> 1] ?? 0;
    const digit = digits[index] ?? 0;
    const isHigh = (index % 2 === 0 ? pair >> 4 : pair & 15) >= 8;
    if (isHigh && digit >= LETTER_A) digits[index] = digit - TO_CAPITAL;
  }
  return `0x${digits.toString("latin1")}`;
}
