/**
 * Calldata of the few calls the engine makes, written by hand: a batch of 100 is encoded in well under a
 * millisecond, where a general encoder takes tens.
 */
import { toFunctionSelector, type Address, type Hex } from "viem";
import type { Authorization } from "../../core/authorization.ts";

const selector = (signature: string): string => toFunctionSelector(signature).slice(2);

const TRANSFER_VRS = selector(
  "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)",
);
const TRANSFER_BYTES = selector(
  "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)",
);
const CANCEL_VRS = selector("cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)");
const CANCEL_BYTES = selector("cancelAuthorization(address,bytes32,bytes)");
const AUTHORIZATION_STATE = selector("authorizationState(address,bytes32)");
const BALANCE_OF = selector("balanceOf(address)");
const AGGREGATE3 = selector("aggregate3((address,bool,bytes)[])");
const GET_BLOCK_NUMBER = selector("getBlockNumber()");
const GET_BLOCK_TIMESTAMP = selector("getCurrentBlockTimestamp()");
const ERROR_STRING = "08c379a0";

const ECDSA_HEX_LENGTH = 130;
const word = (value: bigint | number): string => value.toString(16).padStart(64, "0");
const addressWord = (address: string): string => address.slice(2).toLowerCase().padStart(64, "0");
const padded = (hex: string): string => hex.padEnd(Math.ceil(hex.length / 64) * 64, "0");

export const isEcdsaSized = (signature: Hex): boolean => signature.length - 2 === ECDSA_HEX_LENGTH;

/** v, r, s as three words; nodes and tokens want v as 27 or 28. */
function vrs(signature: Hex): string {
  const v = Number.parseInt(signature.slice(130, 132), 16);
  return word(v < 27 ? v + 27 : v) + signature.slice(2, 130);
}

const tail = (signature: Hex): string => {
  const bytes = signature.slice(2);
  return word(bytes.length / 2) + padded(bytes);
};

/** `transferWithAuthorization`: the (v, r, s) form costs less gas, the bytes form serves smart wallets. */
export function transferCalldata(authorization: Authorization, signature: Hex): Hex {
  const head =
    addressWord(authorization.from) +
    addressWord(authorization.to) +
    word(authorization.value) +
    word(authorization.validAfter) +
    word(authorization.validBefore) +
    authorization.nonce.slice(2);
  return isEcdsaSized(signature)
    ? `0x${TRANSFER_VRS}${head}${vrs(signature)}`
    : `0x${TRANSFER_BYTES}${head}${word(7 * 32)}${tail(signature)}`;
}

export function cancelCalldata(authorizer: Address, nonce: Hex, signature: Hex): Hex {
  const head = addressWord(authorizer) + nonce.slice(2);
  return isEcdsaSized(signature)
    ? `0x${CANCEL_VRS}${head}${vrs(signature)}`
    : `0x${CANCEL_BYTES}${head}${word(3 * 32)}${tail(signature)}`;
}

export const authorizationStateCalldata = (authorizer: string, nonce: string): Hex =>
  `0x${AUTHORIZATION_STATE}${addressWord(authorizer)}${nonce.slice(2)}`;
export const balanceOfCalldata = (account: string): Hex => `0x${BALANCE_OF}${addressWord(account)}`;
export const BLOCK_NUMBER_CALLDATA: Hex = `0x${GET_BLOCK_NUMBER}`;
export const BLOCK_TIMESTAMP_CALLDATA: Hex = `0x${GET_BLOCK_TIMESTAMP}`;

export interface Call {
  target: string;
  data: Hex;
  /** Its failure fails the whole aggregate. */
  mustSucceed?: boolean;
}

/** Multicall3 `aggregate3` with `allowFailure` on every call: one that reverts does not harm its neighbours. */
export function aggregateCalldata(calls: readonly Call[]): Hex {
  let offset = calls.length * 32;
  const offsets: string[] = [];
  const tuples: string[] = [];
  for (const call of calls) {
    const bytes = call.data.slice(2);
    const data = padded(bytes);
    offsets.push(word(offset));
    const allowFailure = call.mustSucceed === true ? 0 : 1;
    tuples.push(
      addressWord(call.target) + word(allowFailure) + word(96) + word(bytes.length / 2) + data,
    );
    offset += 4 * 32 + data.length / 2;
  }
  return `0x${AGGREGATE3}${word(32)}${word(calls.length)}${offsets.join("")}${tuples.join("")}`;
}

export interface CallResult {
  success: boolean;
  data: Hex;
}

/** Decodes `(bool success, bytes returnData)[]`. Throws on anything that is not that. */
export function decodeAggregate(result: Hex): CallResult[] {
  const hex = result.slice(2);
  const number = (atByte: number): number => {
    const text = hex.slice(atByte * 2, atByte * 2 + 64);
    if (text.length !== 64) throw new Error("malformed multicall result");
    return Number(BigInt(`0x${text}`));
  };
  const start = number(0) + 32;
  return Array.from({ length: number(start - 32) }, (_, index) => {
    const tuple = start + number(start + index * 32);
    const bytes = tuple + number(tuple + 32);
    const length = number(bytes);
    return {
      success: number(tuple) === 1,
      data: `0x${hex.slice((bytes + 32) * 2, (bytes + 32 + length) * 2)}` as const,
    };
  });
}

/** The text of `Error(string)`, or nothing: out of gas and custom errors carry none. */
export function revertText(data: Hex): string | undefined {
  if (data.slice(2, 10) !== ERROR_STRING) return undefined;
  const length = Number(BigInt(`0x${data.slice(74, 138) || "0"}`));
  return Buffer.from(data.slice(138, 138 + length * 2), "hex").toString("utf8");
}
