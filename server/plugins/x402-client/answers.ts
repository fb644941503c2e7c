/** The answers of x402-fetch as they go out. */
import { type Address, type Hex, getAddress } from "viem";
import { plainWords, readForeignJson } from "../../core/foreign-text.ts";
import { formatAtomic } from "../../core/money.ts";
import { ApiError } from "../../errors.ts";
import type { OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { Verdict } from "../guardrails/types.ts";
import { LONGEST } from "../listings/words.ts";
import type { ChosenTerms, Offer } from "./offer.ts";
import type { TargetRequest } from "./request.ts";

export interface PaidFacts {
  network: string;
  payTo: Address;
  amountAtomic: bigint;
  paymentId: string;
  /** Null: provably not paid, although the target delivered. */
  txHash: Hex | null;
}

type Body = Record<string, unknown>;

export function freeBody(
  target: TargetRequest,
  response: OutboundResponse,
  remaining: bigint,
): Body {
  return {
    success: true,
    paid: false,
    amountPaid: "0",
    txHash: null,
    ...contentMembers(target, response),
    network: null,
    payTo: null,
    paymentId: null,
    delivered: response.status < 400,
    remaining: formatAtomic(remaining),
  };
}

export function paidBody(
  target: TargetRequest,
  response: OutboundResponse,
  paid: PaidFacts,
  remaining: bigint,
): Body {
  const isPaid = paid.txHash !== null;
  return {
    success: true,
    paid: isPaid,
    amountPaid: isPaid ? formatAtomic(paid.amountAtomic) : "0",
    txHash: paid.txHash,
    ...contentMembers(target, response),
    network: paid.network,
    payTo: getAddress(paid.payTo),
    paymentId: paid.paymentId,
    delivered: true,
    remaining: formatAtomic(remaining),
  };
}

/** A quote tells terms, not content: of an answer that is no 402 only that it was none. */
export function freeQuoteBody(
  target: TargetRequest,
  response: OutboundResponse,
  remaining: bigint,
): Body {
  const isFree = response.status < 400;
  return {
    ...freeBody(target, { ...response, headers: {}, body: Buffer.alloc(0) }, remaining),
    dryRun: true,
    delivered: false,
    // Refused, or there is nothing: what it costs is not known.
    price: isFree ? "0" : null,
  };
}

/** What strangers wrote stands apart from our own words, and says so. */
export const untrusted = (words: Body): { thirdParty: Body } => ({
  thirdParty: { untrusted: true, ...words },
});

/** What the seller calls what it sells. */
function describedBy({ resource }: Pick<Offer, "resource">, chosen: ChosenTerms): Body {
  const described = resource ?? chosen.terms.raw;
  const words = (name: string, longest: number): string | null =>
    plainWords(described[name], longest) || null;
  return {
    serviceName: words("serviceName", LONGEST.name),
    description: words("description", LONGEST.description),
    mimeType: words("mimeType", LONGEST.mimeType),
  };
}

/** The terms as we read and checked them; what else the seller wrote in the entry is not here. */
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
  verdict: Verdict,
  offer: Offer,
): Body {
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
    network: chosen.network.id,
    payTo: getAddress(chosen.payTo),
    paymentId: null,
    delivered: false,
    remaining: formatAtomic(verdict.remainingAtomic),
    price: formatAtomic(chosen.amountAtomic),
    requirement: checkedTerms(chosen),
    ...untrusted(describedBy(offer, chosen)),
    verdict: {
      allowed: verdict.allowed,
      code: verdict.code,
      detail: verdict.error?.message ?? null,
      rules: verdict.trace,
      policy: verdict.policy,
      availableAt: verdict.availableAt,
      nextReleaseAt: verdict.nextReleaseAt,
    },
  };
}

/** What the target sent, as data; also beside an error, so that nothing delivered is lost. */
export function contentMembers(target: TargetRequest, response: OutboundResponse): Body {
  return {
    ...readContent(response.headers["content-type"], response.body),
    source: target.url.href,
    status: response.status,
  };
}

/** Signed, and not yet decided: the only honest answer names the payment and promises nothing. */
export function unknownError(paymentId: string, why: string, more: Body = {}): ApiError {
  return new ApiError("payment_status_unknown", {
    detail: `${why}. The payment was signed and the chain has not decided it yet: retry with the same Idempotency-Key, or read the payment.`,
    extra: { paymentId, ...more },
  });
}

/** A payment found dead by a later request with its key: no answer was kept, and none is needed. */
export const neverPaidError = (paymentId: string): ApiError =>
  new ApiError("settlement_failed", {
    extra: { paymentId, paid: false, amountPaid: "0", txHash: null },
  });

/** The target's answer as a member of ours. Upstream content is only ever data. */

export interface Content {
  data?: unknown;
  dataBase64?: string;
  contentType: string | null;
}

const JSON_TYPE = /^application\/(?:[\w.+-]+\+)?json$/;
const TEXT_TYPE =
  /^(?:text\/[\w.+-]+|application\/(?:[\w.+-]+\+xml|xml|javascript|x-www-form-urlencoded|yaml|x-ndjson|graphql))$/;

export function readContent(header: string | string[] | undefined, body: Buffer): Content {
  const contentType = plainWords(Array.isArray(header) ? header[0] : header, 200) || null;
  if (body.length === 0) return { data: null, contentType };
  const mediaType = (contentType ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (JSON_TYPE.test(mediaType)) {
    const read = readForeignJson(() => JSON.parse(body.toString("utf8")) as unknown);
    // Called JSON, and is not, or too deep to pass on as a value: the text is passed on as it came.
    if (read.ok) return { data: read.value, contentType };
  }
  if (mediaType === "" || TEXT_TYPE.test(mediaType) || JSON_TYPE.test(mediaType)) {
    const text = decodeText(body);
    if (text !== undefined) return { data: text, contentType };
  }
  return { dataBase64: body.toString("base64"), contentType };
}

/** Text that is not UTF-8 stays bytes rather than becoming replacement characters. */
function decodeText(body: Buffer): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    return undefined;
  }
}
