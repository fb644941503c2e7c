/** The one encoder of the token's EIP-3009 functions: what a check rehearses is, byte for byte, what is sent. */
import type { Address, Hex } from "viem";
import { addressWord, bytesTail, selectorDigits, uintWord } from "../../core/abi.ts";
import type { Authorization } from "../../core/authorization.ts";

const TRANSFER_VRS = selectorDigits(
  "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)",
);
const TRANSFER_BYTES = selectorDigits(
  "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)",
);
const CANCEL_VRS = selectorDigits("cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)");
const CANCEL_BYTES = selectorDigits("cancelAuthorization(address,bytes32,bytes)");
const AUTHORIZATION_STATE = selectorDigits("authorizationState(address,bytes32)");

/**
 * 65 bytes with v 27 or 28: what a key signs. The (v, r, s) form of the call takes it for less gas, and the
 * token puts the same 65 bytes together again should the payer be a contract. Every other signature goes
 * as bytes, untouched: with a v of 0 or 1 only its wallet knows what it means (approved hashes, for example).
 * An ordinary account's v of 0 or 1 is made 27 or 28 where the payer is recovered, and nowhere else.
 */
export const isKeySignature = (signature: Hex): boolean =>
  signature.length === 132 && /1[bc]$/i.test(signature);

const vrs = (signature: Hex): string =>
  uintWord(Number.parseInt(signature.slice(130), 16)) + signature.slice(2, 130);

export function transferCalldata(authorization: Authorization, signature: Hex): Hex {
  const head =
    addressWord(authorization.from) +
    addressWord(authorization.to) +
    uintWord(authorization.value) +
    uintWord(authorization.validAfter) +
    uintWord(authorization.validBefore) +
    authorization.nonce.slice(2);
  return isKeySignature(signature)
    ? `0x${TRANSFER_VRS}${head}${vrs(signature)}`
    : `0x${TRANSFER_BYTES}${head}${uintWord(7 * 32)}${bytesTail(signature)}`;
}

export function cancelCalldata(authorizer: Address, nonce: Hex, signature: Hex): Hex {
  const head = addressWord(authorizer) + nonce.slice(2);
  return isKeySignature(signature)
    ? `0x${CANCEL_VRS}${head}${vrs(signature)}`
    : `0x${CANCEL_BYTES}${head}${uintWord(3 * 32)}${bytesTail(signature)}`;
}

export const authorizationStateCalldata = (authorizer: string, nonce: string): Hex =>
  `0x${AUTHORIZATION_STATE}${addressWord(authorizer)}${nonce.slice(2)}`;
