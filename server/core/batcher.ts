/**
 * Encodes calls for our own batcher contract (infra/chain/batcher/Batcher.sol): the same transfers of one token as
 * through Multicall3, with less calldata because repeated values and zeros are left out. Other calls use Multicall3.
 */
import type { Address, Hex } from "viem";
import { selectorDigits, uintWord, type ContractCall } from "./abi.ts";

/** The same on every network and for every deployer. A test compares both constants with the artifact. */
export const BATCHER_ADDRESS: Address = "0x081B89b0623cFA348f21E8052F010d6Deb952CAa";
/** keccak256 of the deployed code. */
export const BATCHER_CODE_HASH: Hex =
  "0x90d3a5a636e68f61b7290719a01f64ee5e820676014e440257d1a0af704bf453";

const TRANSFER = selectorDigits(
  "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)",
);
const RELAY = selectorDigits("relay(bytes)");
const WORD = 64;
const CALL_CHARS = 2 + 8 + 9 * WORD;
const HEAD_BYTES = 156;
const MAX_GAS = 2n ** 32n - 1n;
const HALF = 1n << 255n;
/** The words of the call that transfers of a batch may share: payee, value, validAfter, validBefore. */
const SHARED = [1, 2, 3, 4] as const;

const bytesOf = (value: bigint, bytes: number): string =>
  bytes === 0 ? "" : value.toString(16).padStart(2 * bytes, "0");

const relayOf = (digits: string): Hex =>
  `0x${RELAY}${uintWord(32)}${uintWord(digits.length / 2)}${digits.padEnd(Math.ceil(digits.length / WORD) * WORD, "0")}`;

/** An empty batch and its result, which show that the contract is deployed. */
export const NO_TRANSFERS: Hex = relayOf("0".repeat(2 * HEAD_BYTES));
export const NO_ANSWERS: Hex = `0x${uintWord(32)}${uintWord(0)}`;

/**
 * Batcher calldata that makes exactly these calls, each with at most `gasEach`. Undefined if one of them is not a
 * transfer signed by a plain key (EOA), or is of another token.
 */
export function packTransfers(calls: readonly ContractCall[], gasEach: bigint): Hex | undefined {
  const [first] = calls;
  if (!first || gasEach > MAX_GAS) return undefined;
  const token = first.target.toLowerCase();
  const transfers: string[][] = [];
  for (const { target, data } of calls) {
    const words = wordsOf(data);
    if (!words || target.toLowerCase() !== token) return undefined;
    transfers.push(words);
  }
  const fields = SHARED.map((place) => {
    const values = transfers.map((words) => BigInt(`0x${words[place]}`));
    const base = values.reduce((low, value) => (value < low ? value : low));
    const extra = values.map((value) => value - base);
    const most = extra.reduce((high, value) => (value > high ? value : high));
    return { base, extra, bytes: most === 0n ? 0 : Math.ceil(most.toString(16).length / 2) };
  });
  let digits = token.slice(2) + bytesOf(gasEach, 4);
  for (const { bytes } of fields) digits += bytesOf(BigInt(bytes), 1);
  for (const { base } of fields) digits += uintWord(base);
  for (const [index, words] of transfers.entries()) {
    const [from = "", , , , , nonce = "", v = "", r = "", s = ""] = words;
    const packedS = BigInt(`0x${s}`) + (v.endsWith("1c") ? HALF : 0n);
    digits += from.slice(24) + nonce + r + uintWord(packedS);
    for (const { extra, bytes } of fields) digits += bytesOf(extra[index] ?? 0n, bytes);
  }
  return relayOf(digits.toLowerCase());
}

const ADDRESS_WORD = /^0{24}/;
const V_WORD = /^0{62}1[bc]$/;

/** The nine words of a transfer, if it has the form that the batcher makes. */
function wordsOf(data: Hex): string[] | undefined {
  const digits = data.toLowerCase();
  if (digits.length !== CALL_CHARS || !digits.startsWith(TRANSFER, 2)) return undefined;
  const words = Array.from({ length: 9 }, (_, index) =>
    digits.slice(10 + index * WORD, 10 + (index + 1) * WORD),
  );
  const [from = "", to = "", , , , , v = "", , s = ""] = words;
  const isPackable =
    ADDRESS_WORD.test(from) && ADDRESS_WORD.test(to) && V_WORD.test(v) && BigInt(`0x${s}`) < HALF;
  return isPackable ? words : undefined;
}
