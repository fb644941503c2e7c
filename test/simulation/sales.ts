// What outside payers, sellers and agents that buy from them did, and what they were answered: the invariants compare it
// with the chain.
import type { Address, Hex } from "viem";
import type { Block } from "./chain/chain.ts";

/** An outside payer's payment, and what the sellers that presented it were answered. */
export interface Presented {
  who: string;
  from: Address;
  to: Address;
  amountAtomic: bigint;
  nonce: string;
  claims: Claim[];
  /** The payer has the money, signed well, and nobody interferes: undisturbed it must be paid in time. */
  isGood: boolean;
  /** When it was first presented. */
  atMs: number;
}

export interface Claim {
  /** The same for requests with the same key, and different for all others. */
  caller: string;
  body: Record<string, unknown>;
  /** No answer arrived. */
  isLost: boolean;
  /** The newest block when the answer arrived. */
  block: number;
}

/** What an agent wanted to buy once, with one key. */
export interface Fetched {
  who: string;
  from: Address;
  to: Address;
  /** What the seller asked for, each time. No other purchase has one of these amounts. */
  prices: bigint[];
  /** Every final answer: there are several when the agent asked again after the first. */
  answers: { isPaid: boolean; amount: string; txHash: string | null; text: string }[];
  /** How often the seller was shown a proof. */
  proofs: number;
  /** The request may be sent again. */
  isSafe: boolean;
}

/** A merchant's payment, and what it was answered about refunds of it. */
export interface Refunded {
  who: string;
  /** Of the settlement. */
  id: string;
  /** The merchant, which pays the refunds. */
  from: Address;
  to: Address;
  amountAtomic: bigint;
  answers: { nonce: Hex; isPaid: boolean; txHash: string | null }[];
}

export interface Charge {
  ceiling: bigint;
  amount: bigint;
  /** Of the channel, with this charge. */
  total: bigint;
  /** Its seller forgot it before it was claimed. */
  isForgotten?: boolean;
}

/** What an agent bought from one seller through a channel. */
export interface ChannelSale {
  who: string;
  /** What the seller is like. */
  kind: "honest" | "sloppy" | "forgetful" | "greedy" | "liar";
  from: Address;
  to: Address;
  /** The most that one request costs. No other sale has it. */
  priceAtomic: bigint;
  delaySeconds: number;
  /** The seller refused a voucher that it had been shown before. */
  isRefusedAgain: boolean;
  /** What the seller charged, by request. */
  charges: Map<string, Charge[]>;
  /** Requests that are sent once: if the response is lost, only a later request shows what was charged. */
  once: Set<string>;
  /** Every final answer to the agent, by request. */
  answers: Map<string, ChannelAnswer[]>;
}

/** `isPaid` is undefined where the answer is that nobody knows. */
export interface ChannelAnswer {
  isPaid: boolean | undefined;
  amount: string;
  text: string;
}

export const useKey = (from: string, nonce: string): string => `${from} ${nonce}`.toLowerCase();

export class Sales {
  readonly presented: Presented[] = [];
  readonly fetched: Fetched[] = [];
  readonly refunded: Refunded[] = [];
  readonly channels: ChannelSale[] = [];
  /** An owner has closed channels. */
  isClosing = false;
  /** Deposits that sellers have served for and not sent yet; undefined while they send each at once. */
  keptDeposits: (() => void)[] | undefined;
  /** Every transaction that used an authorization in a block, also in one that was removed later. */
  readonly uses = new Map<string, Set<Hex>>();
  /** A payment was relayed after it had been refused: the service corrects what it said. */
  isRelayedLater = false;
  /** Somebody of this list disturbs the service itself. */
  isDisturbed = false;

  note({ mined }: Block): void {
    for (const { transaction, effects } of mined)
      for (const effect of effects) {
        if (effect.kind !== "used") continue;
        const key = useKey(effect.from, effect.nonce);
        this.uses.set(key, (this.uses.get(key) ?? new Set()).add(transaction.hash));
      }
  }
}
