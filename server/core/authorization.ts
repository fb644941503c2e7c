/**
 * The transfer authorization, the one object behind every payment: a transfer that its payer signed and that anybody,
 * or a named account, may relay.
 */
import type { Address, Hex } from "viem";

/** A signed approval of the token for Permit2 (EIP-2612 permit), sent together with its payment. */
export interface TokenPermit {
  /** Integers are decimal strings, because this is stored as JSON. */
  readonly amount: string;
  readonly deadline: string;
  readonly signature: Hex;
}

/** What identifies a payment channel of the scheme `batch-settlement`. Addresses in lower case. */
export interface ChannelConfig {
  readonly payer: Address;
  /** Signs vouchers by a plain key. Zero: the payer does. */
  readonly payerAuthorizer: Address;
  readonly receiver: Address;
  /** Signs claims and refunds. */
  readonly receiverAuthorizer: Address;
  readonly token: Address;
  /** Seconds. */
  readonly withdrawDelay: number;
  readonly salt: Hex;
}

/** A voucher and how much of it is claimed. Integers are decimal strings. */
export interface ChannelClaim {
  readonly channel: ChannelConfig;
  readonly ceiling: string;
  readonly signature: Hex;
  /** What the channel will have paid in all. */
  readonly total: string;
}

/**
 * The members of an authorization that only its scheme needs (EIP-3009 has none). Stored with the authorization and
 * read only by the scheme of that name.
 */
export type SchemeTerms =
  | { readonly scheme: "exact-permit2"; readonly permit?: TokenPermit }
  | {
      readonly scheme: "upto";
      /** The signed maximum; `value` is the amount that is charged. */
      readonly maximum: string;
      /** The one account that may send it. Lower case. */
      readonly facilitator: Address;
      readonly permit?: TokenPermit;
    }
  /** A payment into a channel of `batch-settlement`. `to` is the channel contract. */
  | {
      readonly scheme: "channel-eip3009";
      readonly channelId: Hex;
      readonly config: ChannelConfig;
      readonly salt: Hex;
    }
  | {
      readonly scheme: "channel-permit2";
      readonly channelId: Hex;
      readonly config: ChannelConfig;
      readonly permit?: TokenPermit;
    }
  /** Not payments: what a facilitator sends for the receiver of channels. */
  | {
      readonly scheme: "channel-claim";
      readonly claims: readonly ChannelClaim[];
      /** The claim that shows whether it happened: all of them happen, or none. */
      readonly lead: { readonly channelId: Hex; readonly total: string };
    }
  | {
      readonly scheme: "channel-settle";
      /** Claimed for this receiver when it was requested: settled when that much is settled. */
      readonly claimed: string;
    }
  | {
      readonly scheme: "channel-refund";
      readonly channelId: Hex;
      readonly config: ChannelConfig;
      readonly refundNonce: string;
      readonly claims: readonly ChannelClaim[];
      readonly claimSignature?: Hex;
    }
  /** Not a payment: what is left in a channel of ours goes back to its payer, after the channel's delay. */
  | {
      readonly scheme: "channel-withdraw";
      readonly step: "begin" | "finish";
      readonly channelId: Hex;
      readonly config: ChannelConfig;
      /** The one account that may send it: the channel's payerAuthorizer. */
      readonly facilitator: Address;
    }
  /** Not a payment: an ERC-20 allowance. `to` is the spender contract, `value` the amount. */
  | {
      readonly scheme: "allowance";
      /** The token's permit nonce of the payer, as a decimal string. */
      readonly count: string;
    };

/** What is sent for either side of channels. It is stored as a settlement, and is no payment. */
export const CHANNEL_ORDERS = [
  "channel-claim",
  "channel-settle",
  "channel-refund",
  "channel-withdraw",
] as const satisfies readonly SchemeTerms["scheme"][];

export const isChannelOrder = (terms: SchemeTerms | null | undefined): boolean =>
  terms != null && (CHANNEL_ORDERS as readonly string[]).includes(terms.scheme);

/**
 * Permit2 keeps its own nonces, shared by all its spenders, so the prefix keeps them apart from the token's. A token
 * permit is identified by its digest, because several may be signed for one permit nonce; what is done with a channel, by
 * the token's nonce of the deposit, or a hash of what it does.
 */
export type Nonce = Hex | `permit2:${Hex}` | `eip2612:${Hex}` | `channel:${Hex}`;

/** The members of an authorization that are needed to find out on the chain whether it is used. */
export interface AuthorizationRef {
  asset: string;
  from: string;
  nonce: string;
  terms?: SchemeTerms | null | undefined;
}

/** A transfer authorization. Addresses may have any case; they are stored in lower case. */
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

/** Makes a payment exactly once: unique in Postgres, and on the chain by the contract's record of used nonces. */
export type SettlementKey = Pick<Authorization, "chainId" | "asset" | "from" | "nonce">;
