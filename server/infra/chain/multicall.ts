/**
 * Multicall3's `aggregate3` packed and read by hand: on the hot path the generic ABI coder costs more
 * than everything else around a chain read. A test compares it with viem's coder.
 */
import type { Hex } from "viem";
import {
  addressWord,
  bytesTail,
  selectorDigits,
  uintWord,
  type CallResult,
  type ContractCall,
} from "../../core/abi.ts";

export interface AggregateCall extends ContractCall {
  /** Its failure fails the whole aggregate; otherwise a call that reverts does not harm its neighbours. */
  readonly mustSucceed?: boolean;
}

const SELECTOR = selectorDigits("aggregate3((address,bool,bytes)[])");
const WORD = 64;
const ALLOW_FAILURE = uintWord(1);
const MUST_SUCCEED = uintWord(0);
const WORD_32 = uintWord(32);
const WORD_96 = uintWord(96);

export function encodeAggregate(calls: readonly AggregateCall[]): Hex {
  let offsets = "";
  let tuples = "";
  const headChars = calls.length * WORD;
  for (const { target, data, mustSucceed } of calls) {
    offsets += uintWord((headChars + tuples.length) / 2);
    const failure = mustSucceed === true ? MUST_SUCCEED : ALLOW_FAILURE;
    tuples += addressWord(target) + failure + WORD_96 + bytesTail(data);
  }
  return `0x${SELECTOR}${WORD_32}${uintWord(calls.length)}${offsets}${tuples}`;
}

/** Throws when the answer is not that many results: then it came from no Multicall3. */
export function decodeAggregate(answer: Hex, count: number): CallResult[] {
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
