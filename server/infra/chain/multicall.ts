/**
 * Multicall3's `aggregate3` packed and read by hand: on the hot path the generic ABI coder costs more
 * than everything else around a chain read. A test compares it with viem's coder.
 */
import { toFunctionSelector, type Address, type Hex } from "viem";

export interface AggregateCall {
  readonly target: Address;
  readonly data: Hex;
}
export interface AggregateResult {
  readonly success: boolean;
  readonly data: Hex;
}

const SELECTOR = toFunctionSelector("aggregate3((address,bool,bytes)[])").slice(2);
const WORD = 64;
const word = (value: number): string => value.toString(16).padStart(WORD, "0");
const WORD_TRUE = word(1);
const WORD_32 = word(32);
const WORD_96 = word(96);

/** Every call may fail on its own. */
export function encodeAggregate(calls: readonly AggregateCall[]): Hex {
  let offsets = "";
  let tuples = "";
  const headChars = calls.length * WORD;
  for (const { target, data } of calls) {
    offsets += word((headChars + tuples.length) / 2);
    const digits = data.slice(2);
    const padding = (WORD - (digits.length % WORD)) % WORD;
    tuples += `${"0".repeat(24)}${target.slice(2)}${WORD_TRUE}${WORD_96}${word(digits.length / 2)}${digits}${"0".repeat(padding)}`;
  }
  return `0x${SELECTOR}${WORD_32}${word(calls.length)}${offsets}${tuples}`;
}

/** Throws when the answer is not that many results: then it came from no Multicall3. */
export function decodeAggregate(answer: Hex, count: number): AggregateResult[] {
  const listAt = 2 + numberAt(answer, 2) * 2;
  if (numberAt(answer, listAt) !== count) throw new Error("unexpected answer of Multicall3");
  const headAt = listAt + WORD;
  return Array.from({ length: count }, (_, index) => {
    const tupleAt = headAt + numberAt(answer, headAt + index * WORD) * 2;
    const bytesAt = tupleAt + numberAt(answer, tupleAt + WORD) * 2;
    const length = numberAt(answer, bytesAt) * 2;
    const data = answer.slice(bytesAt + WORD, bytesAt + WORD + length);
    if (data.length !== length) throw new Error("short answer of Multicall3");
    return { success: numberAt(answer, tupleAt) === 1, data: `0x${data}` as const };
  });
}

function numberAt(text: string, at: number): number {
  const value = Number.parseInt(text.slice(at, at + WORD), 16);
  if (!Number.isSafeInteger(value)) throw new Error("unexpected answer of Multicall3");
  return value;
}
