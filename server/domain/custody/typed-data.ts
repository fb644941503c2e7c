/** EIP-712 hashes of the two EIP-3009 messages an agent's wallet signs. */
import { hashTypedData, hexToBytes, type Address, type Hex } from "viem";
import type { NetworkFacts } from "../networks.ts";
import type { Authorization } from "../settlement/types.ts";

export interface Cancellation {
  chainId: number;
  asset: Address;
  nonce: Hex;
}

const TRANSFER = [
  { name: "from", type: "address" },
  { name: "to", type: "address" },
  { name: "value", type: "uint256" },
  { name: "validAfter", type: "uint256" },
  { name: "validBefore", type: "uint256" },
  { name: "nonce", type: "bytes32" },
] as const;
const CANCEL = [
  { name: "authorizer", type: "address" },
  { name: "nonce", type: "bytes32" },
] as const;

const domainOf = (network: NetworkFacts) => ({
  name: network.usdc.name,
  version: network.usdc.version,
  chainId: network.chainId,
  verifyingContract: network.usdc.address,
});

export function authorizationHash(network: NetworkFacts, message: Authorization): Uint8Array {
  const { from, to, value, validAfter, validBefore, nonce } = message;
  return hexToBytes(
    hashTypedData({
      domain: domainOf(network),
      types: { TransferWithAuthorization: TRANSFER },
      primaryType: "TransferWithAuthorization",
      message: { from, to, value, validAfter, validBefore, nonce },
    }),
  );
}

export function cancelHash(network: NetworkFacts, authorizer: Address, nonce: Hex): Uint8Array {
  return hexToBytes(
    hashTypedData({
      domain: domainOf(network),
      types: { CancelAuthorization: CANCEL },
      primaryType: "CancelAuthorization",
      message: { authorizer, nonce },
    }),
  );
}
