/** Calldata of the token's functions a payment check needs, packed by hand. */
import { type Address, type Hex, domainSeparator, parseAbi, toFunctionSelector } from "viem";
import type { NetworkFacts } from "../../core/networks.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import type { ChainClient } from "./clients.ts";

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

const TOKEN_ABI = parseAbi(["function DOMAIN_SEPARATOR() view returns (bytes32)"]);

/** The token's EIP-712 domain, from our own table. */
export const tokenDomain = (network: NetworkFacts) => ({
  name: network.usdc.name,
  version: network.usdc.version,
  chainId: network.chainId,
  verifyingContract: network.usdc.address,
});

export type DomainCheck = { ok: true } | { ok: false; expected: Hex; actual: Hex };

/** Compares the token's DOMAIN_SEPARATOR() with ours: a mismatch would make every signature worthless. */
export async function checkTokenDomain({ network, client }: ChainClient): Promise<DomainCheck> {
  const expected = domainSeparator({ domain: tokenDomain(network) });
  const actual = await client.readContract({
    address: network.usdc.address,
    abi: TOKEN_ABI,
    functionName: "DOMAIN_SEPARATOR",
  });
  return actual === expected ? { ok: true } : { ok: false, expected, actual };
}
