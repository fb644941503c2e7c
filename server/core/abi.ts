/**
 * Hand-written ABI encoding for the hot path: a batch of 100 calls is encoded in well under a millisecond, where a
 * general encoder takes tens. Tests compare all of it with viem's coder.
 */
import { toFunctionSelector, type Hex } from "viem";

export interface ContractCall {
  readonly target: string;
  readonly data: Hex;
}

/** The result of one call of an aggregate. */
export interface CallResult {
  readonly success: boolean;
  readonly data: Hex;
}

/** A log in the form of JSON-RPC. */
export interface RpcLog {
  address: Hex;
  topics: Hex[];
  data: Hex;
  transactionHash: Hex;
  blockNumber: Hex;
  blockHash: Hex;
}

/** The single uint that a call returned; undefined if it failed or returned anything else. */
export const uintOf = (result: CallResult | undefined): bigint | undefined =>
  result?.success === true && /^0x[0-9a-f]{64}$/i.test(result.data)
    ? BigInt(result.data)
    : undefined;

/** Hexadecimal digits without `0x`, ready for concatenation. */
export const selectorDigits = (signature: string): string => toFunctionSelector(signature).slice(2);
export const uintWord = (value: bigint | number): string => value.toString(16).padStart(64, "0");
export const addressWord = (address: string): string =>
  address.slice(2).toLowerCase().padStart(64, "0");

/** An address as an indexed argument of an event. */
export const addressTopic = (address: string): Hex => `0x${addressWord(address)}`;
/** The arguments r and s, and v, of a 65-byte signature. */
export const rsWords = (signature: Hex): string => signature.slice(2, 130);
export const vWord = (signature: Hex): string => signature.slice(130).padStart(64, "0");

/** The ABI encoding of `bytes`: the length, then the content padded to whole words. */
export function bytesTail(value: Hex): string {
  const digits = value.slice(2);
  return uintWord(digits.length / 2) + digits.padEnd(Math.ceil(digits.length / 64) * 64, "0");
}
