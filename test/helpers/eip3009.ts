// The typed data that a payer signs for USDC (EIP-3009), written here once, apart from the server's own.
import type { Hex } from "viem";

export const TRANSFER_TYPES = {
  TransferWithAuthorization: [
    { name: "from", type: "address" },
    { name: "to", type: "address" },
    { name: "value", type: "uint256" },
    { name: "validAfter", type: "uint256" },
    { name: "validBefore", type: "uint256" },
    { name: "nonce", type: "bytes32" },
  ],
} as const;

/** An authorization as in a request, with its numbers as a wallet signs them. */
export const transferOf = (
  authorization: Record<"from" | "to" | "nonce", Hex> &
    Record<"value" | "validAfter" | "validBefore", string>,
) => ({
  types: TRANSFER_TYPES,
  primaryType: "TransferWithAuthorization" as const,
  message: {
    ...authorization,
    value: BigInt(authorization.value),
    validAfter: BigInt(authorization.validAfter),
    validBefore: BigInt(authorization.validBefore),
  },
});
