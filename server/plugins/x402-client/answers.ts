/** The responses of x402-fetch. */
import { createHash } from "node:crypto";
import { type Address, type Hex, getAddress } from "viem";
import { plainWords } from "../../core/foreign-text.ts";
import { formatAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { ApiError } from "../../errors.ts";
import type { Verdict } from "../guardrails/types.ts";
import { LONGEST } from "../listings/listing-text.ts";
import { presentEvidence, type KeptEvidence } from "../payments/evidence.ts";
import type { FreeResponse } from "../payments/idempotency.ts";
import {
  explained,
  offersForAnswer,
  quotedReasons,
  type ChosenTerms,
  type ReadOffer,
} from "./choose.ts";
import {
  contentMembers,
  isBrokenOff,
  isRedirect,
  untrusted,
  type UpstreamContent,
} from "./content.ts";
import type { TargetRequest } from "./request.ts";
import type { Offer } from "./terms.ts";

export interface PaidFacts {
  network: string;
  payTo: Address;
  amountAtomic: bigint;
  paymentId: string;
  /** Null: proven not paid, although the target delivered. */
  txHash: Hex | null;
  /** The signed maximum, where less may be charged. */
  most?: { scheme: string; maximumAtomic: bigint };
  /** Set when the target reports that it charges nothing; it still could until this time. */
  chargeableUntil?: Date;
  /** What the seller signed. */
  evidence?: KeptEvidence;
  /** It was paid through this channel, without a transaction. */
  channel?: { id: Hex; balance: string; charged: string };
  /** The agent's task in which it counts. */
  task?: string | undefined;
}

type Body = Record<string, unknown>;

export function freeBody(target: TargetRequest, seen: UpstreamContent, remaining: bigint): Body {
  const isNothing = isBrokenOff(seen) && seen.bytes === 0;
  const delivered = seen.status < 400 && !isNothing;
  return {
    success: true,
    paid: false,
    amountPaid: "0",
    txHash: null,
    ...contentMembers(target, seen),
    network: null,
    payTo: null,
    paymentId: null,
    delivered,
    ...(delivered
      ? noteOn(seen)
      : {
          note: `The target returned ${seen.status}${isNothing ? " and closed the connection" : ""} and did not request payment. Nothing was paid or delivered.`,
        }),
    remaining: formatAtomic(remaining),
  };
}

export const signedInBody = (
  target: TargetRequest,
  seen: UpstreamContent,
  remaining: bigint,
): Body => ({
  note: "Fetched again with the wallet's signature. Nothing was paid.",
  ...freeBody(target, seen, remaining),
  signedIn: true,
});

/** The stored digest of a free response. */
export const digestOf = ({ status, bytes, text, dataBase64 }: UpstreamContent): FreeResponse => ({
  status,
  bytes,
  sha256: createHash("sha256")
    .update(text ?? Buffer.from(dataBase64 ?? "", "base64"))
    .digest("hex"),
});

export function paidBody(
  target: TargetRequest,
  seen: UpstreamContent,
  paid: PaidFacts,
  remaining: bigint,
): Body {
  const isPaid = paid.channel ? paid.amountAtomic > 0n : paid.txHash !== null;
  return {
    success: true,
    paid: isPaid,
    amountPaid: isPaid ? formatAtomic(paid.amountAtomic) : "0",
    txHash: paid.txHash,
    ...(paid.channel && { channel: paid.channel }),
    ...contentMembers(target, seen),
    network: paid.network,
    payTo: getAddress(paid.payTo),
    paymentId: paid.paymentId,
    delivered: true,
    ...receiptOf(paid),
    ...noteOn(seen),
    ...chargeableMembers(paid),
    ...(paid.task !== undefined && { task: paid.task }),
    ...(seen.paymentResponse === undefined
      ? {}
      : untrusted({ paymentResponse: seen.paymentResponse })),
    remaining: formatAtomic(remaining),
  };
}

/** The seller's report after the payment: the charged part of a maximum, and its signed receipt. */
function receiptOf({ most, txHash, amountAtomic, evidence }: PaidFacts): Body {
  const charged = most && {
    scheme: most.scheme,
    amount: txHash === null ? "0" : formatAtomic(amountAtomic),
    maximum: formatAtomic(most.maximumAtomic),
  };
  const signed = evidence && { evidence: presentEvidence(evidence) };
  return charged || signed ? { receipt: { ...charged, ...signed } } : {};
}

function chargeableMembers({ most, chargeableUntil }: PaidFacts): Body {
  if (!most || !chargeableUntil) return {};
  const until = chargeableUntil.toISOString();
  return {
    note: `The target charged nothing. It could still charge up to ${formatAtomic(most.maximumAtomic)} USDC until ${until}, so that amount stays reserved until then.`,
    budgetReturnsAt: until,
  };
}

const CUT: Record<NonNullable<UpstreamContent["truncatedBy"]>, string> = {
  size: "The response is longer than the service returns (`maxBytes` of a dry run). This is its beginning.",
  connection: "The target closed the connection early. This is the part that arrived.",
  timeout: "The target did not finish in time. This is the part that arrived.",
  encoding: "The response's compression is broken. This is the part that could be decompressed.",
};

/** A note for the agent if a response is not complete. */
function noteOn({ status, truncatedBy }: UpstreamContent): { note?: string } {
  if (isRedirect(status))
    return {
      note: "The target redirects (`headers.location`). Purser did not follow: fetch that URL yourself if you trust it.",
    };
  return truncatedBy === undefined ? {} : { note: CUT[truncatedBy] };
}

/** A quote returns terms, not content: for a response other than 402, only its status. */
export function freeQuoteBody(
  target: TargetRequest,
  { status }: Pick<UpstreamContent, "status">,
  quote: { remaining: bigint; maxBytes: number },
): Body {
  const isFree = status < 400;
  return {
    success: true,
    dryRun: true,
    paid: false,
    amountPaid: "0",
    txHash: null,
    data: null,
    source: target.url.href,
    status,
    contentType: null,
    omittedHeaders: target.omittedHeaders,
    network: null,
    payTo: null,
    paymentId: null,
    delivered: false,
    maxBytes: quote.maxBytes,
    remaining: formatAtomic(quote.remaining),
    // An error status does not show the price.
    price: isFree ? "0" : null,
  };
}

/** The seller's description of what it sells. */
function describedBy({ resource }: Pick<Offer, "resource">, chosen: ChosenTerms): Body {
  const described = resource ?? chosen.terms.raw;
  const text = (name: string, longest: number): string | null =>
    plainWords(described[name], longest) || null;
  return {
    serviceName: text("serviceName", LONGEST.name),
    description: text("description", LONGEST.description),
    mimeType: text("mimeType", LONGEST.mimeType),
  };
}

/** The terms that we read and checked, without the seller's other fields. */
const checkedTerms = ({ terms, network, amountAtomic, payTo, asset }: ChosenTerms): Body => ({
  scheme: terms.scheme,
  network: network.id,
  amount: amountAtomic.toString(),
  asset: getAddress(asset),
  payTo: getAddress(payTo),
  maxTimeoutSeconds: terms.maxTimeoutSeconds,
  extra: { name: network.usdc.name, version: network.usdc.version },
});

export function dryRunBody(
  target: TargetRequest,
  chosen: ChosenTerms,
  quote: {
    verdict: Verdict;
    offer: Offer;
    offers: readonly ReadOffer[];
    networks: readonly NetworkFacts[];
    maxBytes: number;
  },
): Body {
  const { verdict, offer, offers, networks, maxBytes } = quote;
  const reasons = quotedReasons(offers);
  return {
    success: true,
    dryRun: true,
    paid: false,
    amountPaid: "0",
    txHash: null,
    data: null,
    source: target.url.href,
    status: 402,
    contentType: null,
    omittedHeaders: target.omittedHeaders,
    network: chosen.network.id,
    payTo: getAddress(chosen.payTo),
    paymentId: null,
    delivered: false,
    maxBytes,
    remaining: formatAtomic(verdict.remainingAtomic),
    price: formatAtomic(chosen.amountAtomic),
    ...(chosen.isMaximum && { maximum: true }),
    requirement: checkedTerms(chosen),
    offers: offersForAnswer(offers, networks, chosen),
    ...untrusted({ ...describedBy(offer, chosen), ...(reasons.length > 0 && { reasons }) }),
    verdict: {
      allowed: verdict.allowed,
      code: verdict.code,
      detail: verdict.error?.message ?? null,
      choice: explained(offers, chosen),
      rules: verdict.trace,
      policy: verdict.policy,
      availableAt: verdict.availableAt,
      nextReleaseAt: verdict.nextReleaseAt,
    },
  };
}

/**
 * The same as members of an error, so that delivered content is not lost; `status` of the error is the error's
 * own.
 */
export function deliveredMembers(target: TargetRequest, seen: UpstreamContent): Body {
  const { status, ...content } = contentMembers(target, seen);
  const { headers, contentType, truncated, bytes, paymentResponse } = seen;
  return {
    delivered: true,
    ...content,
    upstreamStatus: status,
    ...untrusted({
      status,
      headers,
      contentType,
      truncated,
      bytes,
      ...(paymentResponse === undefined ? {} : { paymentResponse }),
    }),
  };
}

/** Signed, and the outcome is unknown: the response names the payment and promises nothing. */
export function unknownError(paymentId: string, why: string, more: Body = {}): ApiError {
  return new ApiError("payment_status_unknown", {
    detail: `${why}. The payment was signed and is not confirmed yet: retry with the same Idempotency-Key, or read the payment.`,
    extra: { paymentId, ...more },
  });
}

/**
 * For a later request with the key that finds the payment void: no response was stored, and none is needed.
 */
export const neverPaidError = (paymentId: string): ApiError =>
  new ApiError("settlement_failed", {
    extra: { paymentId, paid: false, amountPaid: "0", txHash: null },
  });
