/**
 * Keccak-256 in WebAssembly, which takes a tenth of the time of JavaScript, and EIP-55 checksum addresses, which every
 * payment needs. Tests compare both with viem's.
 */
import { createKeccak, type IHasher } from "hash-wasm";
import { keccak256, type Address, type Hex } from "viem";
import { LastKnown } from "./shared-answers.ts";

let hasher: IHasher | undefined;

/** Ready during the start of the server; hashes before that are computed in JavaScript. */
export const whenReady: Promise<void> = (async () => {
  hasher = await createKeccak(256);
})();

export const keccak = (bytes: Uint8Array): Uint8Array =>
  hasher ? hasher.init().update(bytes).digest("binary") : keccak256(bytes, "bytes");

/** The hash of hexadecimal data, such as a signed transaction. */
export const keccakOfHex = (text: Hex): Hex =>
  `0x${Buffer.from(keccak(Buffer.from(text.slice(2), "hex"))).toString("hex")}`;

/** A cache: payers and payees recur. */
const spellings = new LastKnown<Address>(4_096);
const digits = Buffer.alloc(40);
const LETTER_A = 97;
const TO_CAPITAL = 32;

/** The EIP-55 form of an address in lower case. */
export const checksummedAddress = (lower: Address): Address =>
  spellings.get(lower) ?? spellings.keep(lower, spell(lower));

/** A letter is upper case if the hash has 8 or more at its position. */
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
