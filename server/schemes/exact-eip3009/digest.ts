/**
 * What a wallet signs: the EIP-712 digests of an EIP-3009 transfer and of its cancellation. The transfer's is
 * packed by hand: the generic encoder takes longer than the signature check it feeds. A test compares it
 * with viem's on random authorizations.
 */
import {
  domainSeparator,
  hashTypedData,
  hexToBytes,
  keccak256,
  toBytes,
  type Address,
  type Hex,
} from "viem";
import type { Authorization } from "../../core/authorization.ts";
import { tokenDomainOf, type NetworkFacts, type TokenDomain } from "../../core/networks.ts";

const TYPE_HASH = keccak256(
  toBytes(
    "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)",
  ),
  "bytes",
);
const CANCEL = [
  { name: "authorizer", type: "address" },
  { name: "nonce", type: "bytes32" },
] as const;
const WORD = 32;

/** Strangers choose name and version: the cache must stay small whatever they send. */
const MAX_CACHED_DOMAINS = 256;
const domains = new Map<string, Uint8Array>();

function separatorOf(domain: TokenDomain): Uint8Array {
  const key = JSON.stringify([
    domain.name,
    domain.version,
    domain.chainId,
    domain.verifyingContract,
  ]);
  const known = domains.get(key);
  if (known) return known;
  const separator = hexToBytes(domainSeparator({ domain }));
  if (domains.size < MAX_CACHED_DOMAINS) domains.set(key, separator);
  return separator;
}

/** 32 bytes to sign or to recover from. */
export function transferDigest(
  domain: TokenDomain,
  message: Omit<Authorization, "chainId" | "asset">,
): Uint8Array {
  const struct = Buffer.alloc(7 * WORD);
  struct.set(TYPE_HASH, 0);
  struct.write(message.from.slice(2), WORD + 12, "hex");
  struct.write(message.to.slice(2), 2 * WORD + 12, "hex");
  writeWord(struct, message.value, 3);
  writeWord(struct, message.validAfter, 4);
  writeWord(struct, message.validBefore, 5);
  struct.write(message.nonce.slice(2), 6 * WORD, "hex");

  const signed = Buffer.alloc(2 + 2 * WORD);
  signed[0] = 0x19;
  signed[1] = 0x01;
  signed.set(separatorOf(domain), 2);
  signed.set(keccak256(struct, "bytes"), 2 + WORD);
  return keccak256(signed, "bytes");
}

function writeWord(target: Buffer, value: bigint, index: number): void {
  if (value <= 0xffff_ffff_ffff_ffffn) target.writeBigUInt64BE(value, index * WORD + 24);
  else target.write(value.toString(16).padStart(64, "0"), index * WORD, "hex");
}

export const cancelDigest = (network: NetworkFacts, authorizer: Address, nonce: Hex): Uint8Array =>
  hexToBytes(
    hashTypedData({
      domain: tokenDomainOf(network),
      types: { CancelAuthorization: CANCEL },
      primaryType: "CancelAuthorization",
      message: { authorizer, nonce },
    }),
  );
