/** Typed data and signatures as the contracts check them, with a memory: the same ones are checked again and again. */
import secp256k1 from "secp256k1";
import { keccak } from "../../../server/core/keccak.ts";
import type { Hex } from "viem";

const HALF_ORDER = "7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0";
const MOST_REMEMBERED = 50_000;

/** Of hexadecimal digits, without 0x on either side. */
export function hash(digits: string): string {
  return Buffer.from(keccak(Buffer.from(digits, "hex"))).toString("hex");
}
export const hashText = (text: string): string => hash(Buffer.from(text).toString("hex"));

export const typedHash = (domainSeparator: string, struct: string): string =>
  hash(`1901${domainSeparator}${struct}`);

const separators = new Map<string, string>();

/** Of the typed data's domain. */
export function separator(
  fields: { name: string; version?: string },
  chainId: number,
  contract: string,
): string {
  const key = `${fields.name} ${fields.version} ${chainId} ${contract}`;
  const known = separators.get(key) ?? makeSeparator(fields, chainId, contract);
  separators.set(key, known);
  return known;
}

function makeSeparator(
  fields: { name: string; version?: string },
  chainId: number,
  contract: string,
): string {
  const version = fields.version === undefined ? "" : "string version,";
  const type = `EIP712Domain(string name,${version}uint256 chainId,address verifyingContract)`;
  return hash(
    hashText(type) +
      hashText(fields.name) +
      (fields.version === undefined ? "" : hashText(fields.version)) +
      chainId.toString(16).padStart(64, "0") +
      contract.slice(2).padStart(64, "0"),
  );
}

export const isHighS = (s: string): boolean => s > HALF_ORDER;

const signers = new Map<string, Hex | "nobody">();

/** Undefined if no key made this signature, as `ecrecover` sees it: any s, and v 27 or 28. */
export function recover(digest: string, r: string, s: string, v: number): Hex | undefined {
  if (v !== 27 && v !== 28) return undefined;
  const key = `${digest}${r}${s}${v}`;
  let signer = signers.get(key);
  if (signer === undefined) {
    signer = recoverNow(digest, r + s, v - 27) ?? "nobody";
    if (signers.size >= MOST_REMEMBERED) signers.clear();
    signers.set(key, signer);
  }
  return signer === "nobody" ? undefined : signer;
}

function recoverNow(digest: string, rs: string, parity: number): Hex | undefined {
  try {
    const point = secp256k1.ecdsaRecover(
      Buffer.from(rs, "hex"),
      parity,
      Buffer.from(digest, "hex"),
      false,
    );
    return `0x${Buffer.from(keccak(point.subarray(1)).subarray(12)).toString("hex")}`;
  } catch {
    // No point of the curve.
    return undefined;
  }
}
