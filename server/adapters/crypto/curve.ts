import secp256k1 from "secp256k1";
import { bytesToHex, keccak256, type Address, type Hex } from "viem";

/**
 * secp256k1 for keys we hold: the native library, or its own pure-JS fallback where that has no build.
 * Signatures are deterministic (RFC 6979) and low-s, as USDC demands.
 */
export function addressOf(privateKey: Uint8Array): Address {
  const publicKey = secp256k1.publicKeyCreate(privateKey, false);
  return `0x${keccak256(publicKey.subarray(1)).slice(-40)}`;
}

/** 65 bytes r, s, v. */
export function sign(hash: Uint8Array, privateKey: Uint8Array): Hex {
  const { signature, recid } = secp256k1.ecdsaSign(hash, privateKey);
  const bytes = new Uint8Array(65);
  bytes.set(signature);
  bytes[64] = 27 + recid;
  return bytesToHex(bytes);
}

export const isPrivateKey = (bytes: Uint8Array): boolean => secp256k1.privateKeyVerify(bytes);
