/** The one object every movement of money is: an EIP-3009 authorization. */
import type { Address, Hex } from "viem";

/** An authorization as far as the chain must know it to say whether it is used. */
export interface AuthorizationRef {
  asset: string;
  from: string;
  nonce: string;
}

/** An EIP-3009 transfer authorization. Addresses may come in any case; they are stored in lower case. */
export interface Authorization extends AuthorizationRef {
  chainId: number;
  asset: Address;
  from: Address;
  to: Address;
  value: bigint;
  validAfter: bigint;
  validBefore: bigint;
  nonce: Hex;
}

export interface SignedAuthorization extends Authorization {
  signature: Hex;
}

/** Unique in Postgres and, by `authorizationState`, on chain: what makes a payment exactly once. */
export type SettlementKey = Pick<Authorization, "chainId" | "asset" | "from" | "nonce">;
