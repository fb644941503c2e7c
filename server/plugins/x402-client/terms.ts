/** What a target asks for: its offer, in x402 or as MPP challenges, before any of it is chosen. */
import type { Hex } from "viem";
import type { PaymentChallenge } from "../../../packages/paywall/src/mpp-wire.ts";

/** One entry of `accepts` in the fields of x402 version 2, or one MPP challenge in the same fields. */
export interface OfferedTerms {
  protocol: "x402" | "mpp";
  scheme: string;
  network: string;
  /** As written by the seller, not parsed yet. */
  amount: string;
  asset: string;
  payTo: string;
  maxTimeoutSeconds: number;
  extra: Record<string, unknown>;
  /** The entry as the seller wrote it: a proof must repeat it unchanged. */
  raw: Record<string, unknown>;
  /** Its index in `accepts` as the seller sent it, from 0. */
  index?: number;
  /** MPP only: the challenge that the credential repeats, and the nonce that it prescribes. */
  challenge?: PaymentChallenge;
  nonce?: Hex;
  /** x402 only: what binds a payment to the seller's route, if the seller announces that. */
  binding?: RouteBinding;
  /** Why it cannot be paid, if reading it already showed that. */
  refused?: ChallengeFault;
}

/** Binds a payment to the seller's route (route-binding.ts). */
export interface RouteBinding {
  /** The nonce of a payment with these extensions. */
  nonce: Hex;
  /** The extensions of the proof: all of them, because the nonce is their hash too. */
  extensions: Record<string, unknown>;
}

export interface Offer {
  x402Version: 1 | 2;
  /** Only well-formed entries, in the seller's order. */
  accepts: OfferedTerms[];
  resource: Record<string, unknown> | undefined;
  extensions: Record<string, unknown> | undefined;
  /** The seller's error text, if any. */
  error: string | undefined;
}

/** Why a challenge cannot be paid. */
export const CHALLENGE_FAULTS = {
  challenge_unreadable: "Its WWW-Authenticate: Payment (MPP) cannot be read.",
  challenge_too_long: "Its payment challenge is too long for a header.",
  challenge_unsupported:
    "This wallet supports only MPP challenges with the method evm and the intent charge.",
  challenge_repeated: "Several of its payment challenges have the same id.",
  challenge_credential_types:
    "Its payment challenge does not accept an EIP-3009 authorization, the only kind that this wallet signs.",
  challenge_splits:
    "It splits the payment among several payees, which one authorization cannot do.",
  challenge_other_host: "Its payment challenge names a different host from the requested one.",
  challenge_other_body: "Its payment challenge is for a different body from the one sent.",
  challenge_expired: "Its payment challenge has expired or is about to expire.",
} as const;

export interface ChallengeFault {
  code: keyof typeof CHALLENGE_FAULTS;
  /** The same, quoting the seller's text. */
  quoting: string;
}
