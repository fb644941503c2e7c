/** The one object every movement of money is: a transfer that its payer signed and anybody, or a named account, may relay. */
import type { Address, Hex } from "viem";

/** A signed allowance of the token to Permit2 (EIP-2612) that travels with the payment it is for. */
export interface TokenPermit {
  /** Integers as decimal strings: it is stored as JSON. */
  readonly amount: string;
  readonly deadline: string;
  readonly signature: Hex;
}

/**
 * What an authorization is beside the members all have; none of it is EIP-3009's. Stored with it, and the scheme of
 * that name alone reads it.
 */
export type SchemeTerms =
  | { readonly scheme: "exact-permit2"; readonly permit?: TokenPermit }
  | {
      readonly scheme: "upto";
      /** What was signed; `value` is what is charged of it. */
      readonly maximum: string;
      /** The one account that may send it. Lower case. */
      readonly facilitator: Address;
      readonly permit?: TokenPermit;
    }
  /** No payment: what a contract may take of the payer from now on. `to` is that contract, `value` how much. */
  | {
      readonly scheme: "allowance";
      /** The token's own count of the payer's permits: a decimal string. */
      readonly count: string;
    };

/**
 * Permit2 keeps nonces of its own, shared by all who spend through it: no key of one is a key of the other. A permit of
 * the token is named by its digest, since several may be signed for one count.
 */
export type Nonce = Hex | `permit2:${Hex}` | `eip2612:${Hex}`;

/** An authorization as far as the chain needs it to show whether it is used. */
export interface AuthorizationRef {
  asset: string;
  from: string;
  nonce: string;
  terms?: SchemeTerms | null | undefined;
}

/** A transfer authorization. Addresses may come in any case; they are stored in lower case. */
export interface Authorization extends AuthorizationRef {
  chainId: number;
  asset: Address;
  from: Address;
  to: Address;
  value: bigint;
  validAfter: bigint;
  validBefore: bigint;
  nonce: Nonce;
}

export interface SignedAuthorization extends Authorization {
  signature: Hex;
}

/** Unique in Postgres and, by the contract's own record of nonces, on chain: what makes a payment exactly once. */
export type SettlementKey = Pick<Authorization, "chainId" | "asset" | "from" | "nonce">;
