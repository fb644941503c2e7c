/** The EIP-712 domain of our tokens, and the rarer of the two EIP-3009 messages a wallet signs. */
import { hashTypedData, hexToBytes, type Address, type Hex } from "viem";
import type { NetworkFacts } from "../../core/networks.ts";

export interface Cancellation {
  chainId: number;
  asset: Address;
  nonce: Hex;
}

const CANCEL = [
  { name: "authorizer", type: "address" },
  { name: "nonce", type: "bytes32" },
] as const;

export interface TokenDomain {
  readonly name: string;
  readonly version: string;
  readonly chainId: number;
  readonly verifyingContract: Address;
}

/** Always from our own table, never from what a seller says. */
export const tokenDomainOf = (network: NetworkFacts): TokenDomain => ({
  name: network.usdc.name,
  version: network.usdc.version,
  chainId: network.chainId,
  verifyingContract: network.usdc.address,
});

export function cancelHash(network: NetworkFacts, authorizer: Address, nonce: Hex): Uint8Array {
  return hexToBytes(
    hashTypedData({
      domain: tokenDomainOf(network),
      types: { CancelAuthorization: CANCEL },
      primaryType: "CancelAuthorization",
      message: { authorizer, nonce },
    }),
  );
}
