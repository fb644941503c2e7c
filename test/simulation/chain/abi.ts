/** Reads and writes calldata by hand. Written apart from the server's encoders, so that a mistake there shows here. */
import { toEventSelector, toFunctionSelector, type Hex } from "viem";
import { Revert } from "./execution.ts";

const WORD = 64;
const ADDRESS_PAD = "0".repeat(24);

export const selector = (signature: string): string => toFunctionSelector(signature).slice(2);
export const event = (signature: string): Hex => toEventSelector(signature);

export const word = (value: bigint | number): string => value.toString(16).padStart(WORD, "0");
export const addressWord = (address: string): string => ADDRESS_PAD + address.slice(2);
export const topic = (address: string): Hex => `0x${addressWord(address)}`;
export const bytes = (digits: string): string =>
  word(digits.length / 2) + digits.padEnd(Math.ceil(digits.length / WORD) * WORD, "0");
export const TRUE = word(1);

/** `Error(string)`. */
export const revertWith = (text: string): Revert =>
  new Revert(`08c379a0${word(32)}${bytes(Buffer.from(text).toString("hex"))}`);

export function require(condition: boolean, text: string): void {
  if (!condition) throw revertWith(text);
}

/** Checked like Solidity's decoder: what is no value of its type reverts without a reason. */
export class Args {
  readonly #digits: string;
  readonly #start: number;

  constructor(digits: string, start = 0) {
    this.#digits = digits;
    this.#start = start;
  }

  word(index: number): string {
    return this.#at(this.#start + index * WORD);
  }

  uint(index: number): bigint {
    return BigInt(`0x${this.word(index)}`);
  }

  address(index: number): Hex {
    const found = this.word(index);
    if (!found.startsWith(ADDRESS_PAD)) throw new Revert("");
    return `0x${found.slice(24)}`;
  }

  uint8(index: number): number {
    const found = this.uint(index);
    if (found > 255n) throw new Revert("");
    return Number(found);
  }

  bool(index: number): boolean {
    const found = this.uint(index);
    if (found > 1n) throw new Revert("");
    return found === 1n;
  }

  bytes(index: number): string {
    const at = this.#start + this.#place(index);
    const length = this.#small(at) * 2;
    const found = this.#digits.slice(at + WORD, at + WORD + length);
    if (found.length !== length) throw new Revert("");
    return found;
  }

  /** The members of a dynamic array of dynamic tuples. */
  tuples(index: number): Args[] {
    const at = this.#start + this.#place(index);
    const count = this.#small(at);
    const first = at + WORD;
    return Array.from(
      { length: count },
      (_, each) => new Args(this.#digits, first + this.#small(first + each * WORD) * 2),
    );
  }

  /** The members of an array of bytes. */
  texts(index: number): string[] {
    return this.tuples(index).map((at) => at.#text());
  }

  #text(): string {
    const length = this.#small(this.#start) * 2;
    const found = this.#digits.slice(this.#start + WORD, this.#start + WORD + length);
    if (found.length !== length) throw new Revert("");
    return found;
  }

  #place(index: number): number {
    return this.#small(this.#start + index * WORD) * 2;
  }

  #small(at: number): number {
    const value = Number.parseInt(this.#at(at), 16);
    if (value > this.#digits.length) throw new Revert("");
    return value;
  }

  #at(at: number): string {
    const found = this.#digits.slice(at, at + WORD);
    if (found.length !== WORD) throw new Revert("");
    return found;
  }
}
