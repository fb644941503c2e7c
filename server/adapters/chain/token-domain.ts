import { domainSeparator, parseAbi, type Hex } from "viem";
import type { NetworkFacts } from "../../domain/networks.ts";
import type { ChainClient } from "./clients.ts";

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
