/**
 * Signatures: ECDSA, and the envelopes of smart wallets. The package secp256k1 is native, and uses its own JavaScript
 * on platforms without a build (slower, with the same results; a test compares the two). Signatures are
 * deterministic (RFC 6979) and low-s, as USDC requires.
 */
import secp256k1 from "secp256k1";
import {
  bytesToHex,
  isAddressEqual,
  isErc6492Signature,
  parseErc6492Signature,
  zeroAddress,
  type Address,
  type Hex,
} from "viem";
import { keccak } from "./keccak.ts";
import { LastKnown } from "./shared-answers.ts";

export function addressOf(privateKey: Uint8Array): Address {
  return addressOfPublicKey(secp256k1.publicKeyCreate(privateKey, false).subarray(1));
}

/** From the 64 bytes x and y. Lower case. */
export function addressOfPublicKey(point: Uint8Array): Address {
  const hash = keccak(point);
  return `0x${Buffer.from(hash.buffer, hash.byteOffset + 12, 20).toString("hex")}`;
}

/** 65 bytes: r, s, v. */
export function sign(hash: Uint8Array, privateKey: Uint8Array): Hex {
  const { signature, recid } = secp256k1.ecdsaSign(hash, privateKey);
  const bytes = new Uint8Array(65);
  bytes.set(signature);
  bytes[64] = 27 + recid;
  return bytesToHex(bytes);
}

export const isPrivateKey = (bytes: Uint8Array): boolean => secp256k1.privateKeyVerify(bytes);

type Curve = Pick<typeof secp256k1, "ecdsaRecover">;

/** Half of the curve's order, as hexadecimal digits: strings of equal length compare like numbers. */
const HALF_ORDER = "7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0";
const ZERO = "0".repeat(64);
const HIGH_BIT = 8;

/** An EOA signature in its canonical form. */
interface EcdsaSignature {
  /** r and s, 64 bytes. */
  readonly compact: Uint8Array;
  readonly yParity: 0 | 1;
  /** r, s, v with v 27 or 28, as the token's contract requires. */
  readonly hex: Hex;
}

/**
 * Parses 65 bytes (r, s, v) or 64 (EIP-2098). Undefined for anything else, and for a high s, which the token refuses
 * because it would allow a second signature of the same message.
 */
export function parseEcdsa(signature: string): EcdsaSignature | undefined {
  const isLong = signature.length === 132;
  if (!isLong && signature.length !== 130) return undefined;
  if (!/^0x[0-9a-fA-F]+$/.test(signature)) return undefined;
  const digits = signature.slice(2).toLowerCase();
  let rs = digits.slice(0, 128);
  let yParity: 0 | 1;
  if (isLong) {
    const v = Number.parseInt(digits.slice(128), 16);
    if (v !== 0 && v !== 1 && v !== 27 && v !== 28) return undefined;
    yParity = v === 1 || v === 28 ? 1 : 0;
  } else {
    const first = Number.parseInt(digits.charAt(64), 16);
    yParity = first >= HIGH_BIT ? 1 : 0;
    rs = `${digits.slice(0, 64)}${(first % HIGH_BIT).toString()}${digits.slice(65)}`;
  }
  const s = rs.slice(64);
  if (s === ZERO || s > HALF_ORDER) return undefined;
  return {
    compact: Buffer.from(rs, "hex"),
    yParity,
    hex: `0x${rs}${yParity === 1 ? "1c" : "1b"}`,
  };
}

/** The address in lower case; undefined if no key could have made this signature. */
export function recoverSigner(
  digest: Uint8Array,
  signature: EcdsaSignature,
  curve: Curve = secp256k1,
): Address | undefined {
  let publicKey: Uint8Array;
  try {
    publicKey = curve.ecdsaRecover(signature.compact, signature.yParity, digest, false);
  } catch {
    // For example, r is not a point of the curve: no valid signature.
    return undefined;
  }
  return addressOfPublicKey(publicKey.subarray(1));
}

const signers = new LastKnown<Address | "nobody">(4_096);

/**
 * The same with a cache: a digest and signature always have the same signer, and a payment that is settled was mostly
 * verified before. Nothing that depends on the chain is cached.
 */
export function signerOf(digest: Uint8Array, signature: EcdsaSignature): Address | undefined {
  const bytes = Buffer.concat([digest, signature.compact]).toString("latin1");
  const key = `${bytes}${signature.yParity}`;
  const signer =
    signers.get(key) ?? signers.keep(key, recoverSigner(digest, signature) ?? "nobody");
  return signer === "nobody" ? undefined : signer;
}

/** The canonical signature if this account's key made it; undefined for a contract's signature, and for a wrong one. */
export function signatureOfKey(
  digest: Uint8Array,
  signature: string,
  account: Address,
): Hex | undefined {
  const parsed = parseEcdsa(signature);
  return parsed && signerOf(digest, parsed) === account ? parsed.hex : undefined;
}

/**
 * 65 bytes with v 27 or 28: a plain key's signature, although the account may have code. With v 0 or 1, only the wallet
 * knows what it means (approved hashes, for example).
 */
export const isKeySignature = (signature: Hex): boolean => /^0x.{128}1[bc]$/i.test(signature);

/**
 * Converts a KMS signature: DER, s high or low, and without the recovery bit. Undefined if it is not this address's
 * signature of this digest.
 */
export function fromDer(der: Uint8Array, digest: Uint8Array, address: Address): Hex | undefined {
  let compact: Uint8Array;
  try {
    compact = secp256k1.signatureNormalize(secp256k1.signatureImport(der));
  } catch {
    return undefined;
  }
  for (const v of ["1b", "1c"]) {
    const signature = parseEcdsa(`0x${Buffer.from(compact).toString("hex")}${v}`);
    if (signature && recoverSigner(digest, signature) === address.toLowerCase())
      return signature.hex;
  }
  return undefined;
}

/** Enough for a wallet's signature with its deployment; a longer one would only waste gas. */
const MAX_SIGNATURE_CHARS = 64_000;

/** Gas for deploying a smart wallet before its first payment. */
export const DEPLOYMENT_GAS = 1_500_000n;

/** How an undeployed wallet is created (ERC-6492). */
export interface Deployment {
  readonly factory: Address;
  readonly data: Hex;
}

interface WalletSignature {
  /** The signature that the wallet itself verifies. */
  readonly inner: Hex;
  readonly deployment: Deployment | undefined;
}

/**
 * Unwraps an ERC-6492 signature; without an envelope, the signature is returned as it is. Undefined: not a signature.
 */
export function unwrapSignature(signature: string): WalletSignature | undefined {
  if (signature.length > MAX_SIGNATURE_CHARS) return undefined;
  if (!/^0x(?:[0-9a-fA-F]{2})+$/.test(signature)) return undefined;
  if (!isErc6492Signature(signature as Hex))
    return { inner: signature as Hex, deployment: undefined };
  try {
    const { address, data, signature: inner } = parseErc6492Signature(signature as Hex);
    if (!address || !data || isAddressEqual(address, zeroAddress)) return undefined;
    // A nested envelope could only serve to evade the list of allowed factories.
    if (isErc6492Signature(inner)) return undefined;
    return { inner, deployment: { factory: address, data } };
  } catch {
    // Ends like an ERC-6492 envelope, but does not decode: not a signature.
    return undefined;
  }
}
