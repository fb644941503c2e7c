/** Calldata of the token's functions a payment check needs, packed by hand. */
import { toFunctionSelector, type Address, type Hex } from "viem";
import type { SignedAuthorization } from "../../domain/settlement/types.ts";

const BALANCE_OF = toFunctionSelector("balanceOf(address)");
const AUTHORIZATION_STATE = toFunctionSelector("authorizationState(address,bytes32)");
const TRANSFER_VRS = toFunctionSelector(
  "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)",
);
const TRANSFER_BYTES = toFunctionSelector(
  "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)",
);
const IS_VALID_SIGNATURE = toFunctionSelector("isValidSignature(bytes32,bytes)");

const ECDSA_CHARS = 132;
const address = (value: Address): string => `${"0".repeat(24)}${value.slice(2)}`;
const uint = (value: bigint | number): string => value.toString(16).padStart(64, "0");

export const balanceOf = (account: Address): Hex => `${BALANCE_OF}${address(account)}`;

export const authorizationState = (authorizer: Address, nonce: Hex): Hex =>
  `${AUTHORIZATION_STATE}${address(authorizer)}${nonce.slice(2)}`;

export const isValidSignature = (digest: Hex, signature: Hex): Hex =>
  `${IS_VALID_SIGNATURE}${digest.slice(2)}${uint(64)}${bytes(signature)}`;

/** 65 bytes go as v, r, s, which every token of this kind has; other signatures as bytes. */
export function transferWithAuthorization(authorization: SignedAuthorization): Hex {
  const { from, to, value, validAfter, validBefore, nonce, signature } = authorization;
  const head = `${address(from)}${address(to)}${uint(value)}${uint(validAfter)}${uint(validBefore)}${nonce.slice(2)}`;
  if (signature.length === ECDSA_CHARS) {
    const v = Number.parseInt(signature.slice(130), 16);
    return `${TRANSFER_VRS}${head}${uint(v)}${signature.slice(2, 130)}`;
  }
  return `${TRANSFER_BYTES}${head}${uint(7 * 32)}${bytes(signature)}`;
}

function bytes(value: Hex): string {
  const digits = value.slice(2);
  return `${uint(digits.length / 2)}${digits.padEnd(Math.ceil(digits.length / 64) * 64, "0")}`;
}
