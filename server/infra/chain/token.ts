/** Calldata of standard functions a payment check needs, and whether a token is the one of our table. */
import { domainSeparator, toFunctionSelector, type Address, type Hex } from "viem";
import { addressWord, bytesTail, selectorDigits, uintWord } from "../../core/abi.ts";
import { tokenDomainOf } from "../../core/networks.ts";
import type { ChainClient } from "./clients.ts";
import { classifyChainError } from "./errors.ts";

const BALANCE_OF = selectorDigits("balanceOf(address)");
const IS_VALID_SIGNATURE = selectorDigits("isValidSignature(bytes32,bytes)");
const DOMAIN_SEPARATOR = toFunctionSelector("DOMAIN_SEPARATOR()");

export const balanceOf = (account: string): Hex => `0x${BALANCE_OF}${addressWord(account)}`;

export const isValidSignature = (digest: Hex, signature: Hex): Hex =>
  `0x${IS_VALID_SIGNATURE}${digest.slice(2)}${uintWord(64)}${bytesTail(signature)}`;

/** `actual` is missing where the address holds no such token. */
export type DomainCheck = { ok: true } | { ok: false; expected: Hex; actual: Hex | undefined };

/**
 * Compares the token's DOMAIN_SEPARATOR() with ours: a mismatch would make every signature worthless. Throws
 * where the chain gave no answer to compare.
 */
export async function checkTokenDomain({ network, rpc }: ChainClient): Promise<DomainCheck> {
  const expected = domainSeparator({ domain: tokenDomainOf(network) });
  const actual = await askDomain(rpc, network.usdc.address);
  return actual === expected ? { ok: true } : { ok: false, expected, actual };
}

async function askDomain(rpc: ChainClient["rpc"], token: Address): Promise<Hex | undefined> {
  try {
    const call = { to: token, data: DOMAIN_SEPARATOR };
    const answer = await rpc.call<Hex>("eth_call", [call, "latest"]);
    return answer.length === 66 ? answer : undefined;
  } catch (error) {
    if (classifyChainError(error).kind === "reverted") return undefined;
    throw error;
  }
}
