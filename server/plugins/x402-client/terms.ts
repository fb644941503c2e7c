/** What a target asks for: its offer, in x402 or as MPP challenges, before any of it is chosen. */
import { createHash, randomBytes } from "node:crypto";
import type { Hex } from "viem";
import type { PaymentChallenge } from "../../../packages/paywall/src/mpp-wire.ts";
import { isRecord } from "../../core/foreign-text.ts";
import { findScheme, TOKEN_SCHEME } from "../../schemes/index.ts";
import { canonicalJson } from "../guardrails/types.ts";

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

/**
 * Binds a payment to the seller's route. Servers of mppx may require it (`routeBinding: "required"`), and accept it
 * otherwise: the nonce of the authorization is the hash of the terms, the resource and the seller's extension `mppx`
 * with a salt of ours. With the salt the nonce is new for each payment, as a random one is.
 */
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

const EXTENSION = "mppx";
/** It is stored with the payment and repeated in a header, and servers reject headers over 16 KiB. */
const MAX_BOUND_BYTES = 4 * 1024;

/** Undefined where the seller announces no such binding, or the scheme has no nonce of this kind. */
export function bindRoute(
  { scheme, extra, raw }: OfferedTerms,
  { resource, extensions }: Pick<Offer, "resource" | "extensions">,
): RouteBinding | undefined {
  const declared = extensions?.[EXTENSION];
  const info = isRecord(declared) ? declared["info"] : undefined;
  if (!resource || !isRecord(declared) || !isRecord(info)) return undefined;
  if (findScheme(scheme, extra) !== TOKEN_SCHEME) return undefined;
  const nonce = randomBytes(32).toString("hex");
  const salted = { [EXTENSION]: { ...declared, info: { ...info, nonce } } };
  const parts = [raw, resource, salted].map(canonicalJson);
  if (Buffer.byteLength(parts.join("")) > MAX_BOUND_BYTES) return undefined;
  const hashed = parts.map((part) => Buffer.from(part).toString("base64url")).join("|");
  return {
    nonce: `0x${createHash("sha256").update(hashed).digest("hex")}`,
    extensions: salted,
  };
}
