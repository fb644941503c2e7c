/**
 * What became of a payment whose proof the seller has: the chain decides, the seller's own report is only a hint.
 * - The seller delivered: the outcome on chain is awaited, and the content is returned either way.
 * - It broke off, or failed: an unused authorization is canceled on chain, so that the budget returns and the
 *   seller cannot collect later. If it cannot be canceled, it is left to expire. If it was used, the agent gets an
 *   error that the payment settled without delivery.
 */
import type { Hex } from "viem";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { formatAtomic } from "../../core/money.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";
import { paymentSchemeOf } from "../../schemes/index.ts";
import { examine, receiptIn, type KeptEvidence } from "../payments/evidence.ts";
import type { PaymentKey, PaymentResult } from "../payments/idempotency.ts";
import type { CancelOutcome } from "../settlement/types.ts";
import { deliveredMembers, paidBody, unknownError, type PaidFacts } from "./answers.ts";
import { confirmThroughChannel } from "./channel.ts";
import { isBrokenOff, readReceipt, sellersAnswer, type UpstreamContent } from "./content.ts";
import type { ProofResponse } from "./deliver.ts";
import type { AuthorizedPayment, Confirmed, FetchDeps, Job, SignedPayment } from "./job.ts";

type Failure = Extract<ProofResponse, { kind: "failed" }>;

/** Undefined: the request is to be made again, because a seller's channel was ahead of ours. */
export async function confirm(
  job: Job,
  payment: SignedPayment,
  response: ProofResponse,
): Promise<Confirmed | undefined> {
  if (payment.through) return confirmThroughChannel(job, payment, response);
  if (response.kind === "failed") return takeBack(job, payment, response);
  return isBrokenOff(response.seen)
    ? confirmBrokenOff(job, payment, response.seen)
    : confirmDelivered(job, payment, response.seen);
}

async function confirmDelivered(
  job: Job,
  payment: AuthorizedPayment,
  seen: UpstreamContent,
): Promise<Confirmed> {
  const { settlement, settleWaitMs } = job.deps;
  const receipt = readReceipt(seen);
  const isForNothing = receipt.charged === 0n && paymentSchemeOf(payment.authorization).isMetered;
  // The receipt only hints where to look, or that there is nothing to wait for.
  const waitMs = isForNothing ? 0 : settleWaitMs;
  const outcome = await settlement.wait(payment.key.paymentId, waitMs, {
    look: true,
    txHash: receipt.txHash,
  });
  if (outcome.status === "pending" && isForNothing)
    return handedOver(job, payment, seen, "uncharged");
  if (outcome.status === "pending")
    return undecided(job, payment, seen, "The target delivered but has not collected its payment");
  // Failed or expired: the target delivered, and provably cannot collect any more.
  return handedOver(job, payment, seen, outcome.status === "settled" ? outcome : null);
}

/** An incomplete response is returned. If its payment is not collected yet, it is canceled. */
async function confirmBrokenOff(
  job: Job,
  payment: AuthorizedPayment,
  seen: UpstreamContent,
): Promise<Confirmed> {
  const outcome = await cancel(job.deps, payment);
  switch (outcome.status) {
    case "settled":
      return handedOver(job, payment, seen, outcome);
    case "canceled":
    case "expired":
      return handedOver(job, payment, seen, null);
    default:
      return undecided(
        job,
        payment,
        seen,
        "The target closed the connection and may have collected its payment",
      );
  }
}

/**
 * null: proven not paid. "uncharged": the seller reports that it charges nothing of the maximum, but it still
 * could.
 */
async function handedOver(
  job: Job,
  payment: AuthorizedPayment,
  seen: UpstreamContent,
  collected: { txHash: Hex; amountAtomic: bigint } | "uncharged" | null,
): Promise<Confirmed> {
  const { authorization, key } = payment;
  const isPaid = collected !== null && collected !== "uncharged";
  const txHash = isPaid ? collected.txHash : null;
  const evidence = await evidenceOf(job, payment, seen, txHash);
  const scheme = paymentSchemeOf(authorization);
  const maximumAtomic = scheme.mostOf?.(authorization);
  const facts: PaidFacts = {
    ...payment.facts,
    task: job.input.task,
    txHash,
    ...(isPaid && { amountAtomic: collected.amountAtomic }),
    ...(maximumAtomic !== undefined && { most: { scheme: scheme.name, maximumAtomic } }),
    ...(collected === "uncharged" && { chargeableUntil: endOf(authorization) }),
    ...(evidence && { evidence }),
  };
  // The uncharged part of a maximum is free again.
  const remaining =
    maximumAtomic === undefined ? payment.remainingAtomic : await job.deps.remainingOf(key.agentId);
  return {
    result: { kind: "done", body: paidBody(job.target, seen, facts, remaining) },
    delivery: { upstreamStatus: seen.status, delivered: true },
    payment: isPaid ? "settled" : "none",
    seen,
    evidence,
  };
}

function undecided(
  { target }: Job,
  { key, authorization }: AuthorizedPayment,
  seen: UpstreamContent,
  why: string,
): Confirmed {
  const error = unknownError(key.paymentId, why, {
    ...deliveredMembers(target, seen),
    ...(isUncancelable(authorization) && { budgetReturnsAt: endOf(authorization).toISOString() }),
  });
  return {
    result: { kind: "unknown", error },
    delivery: { upstreamStatus: seen.status, delivered: true },
    payment: "open",
    seen,
  };
}

/** The seller failed after it had the proof. */
async function takeBack(
  job: Job,
  payment: AuthorizedPayment,
  failure: Failure,
): Promise<Confirmed> {
  const outcome = await cancel(job.deps, payment);
  const result = failedResult(payment, failure, outcome);
  const txHash = outcome.status === "settled" ? outcome.txHash : null;
  return {
    result,
    delivery: { upstreamStatus: failure.seen?.status ?? null, delivered: false },
    payment: "none",
    // Paid without delivery: the seller's signed documents matter most here.
    evidence: await evidenceOf(job, payment, failure.seen, txHash),
  };
}

function failedResult(
  payment: AuthorizedPayment,
  failure: Failure,
  outcome: CancelOutcome,
): PaymentResult {
  const { paymentId } = payment.key;
  const details = { ...sellersAnswer(failure.seen), upstreamStatus: failure.seen?.status ?? null };
  switch (outcome.status) {
    case "settled":
      return { kind: "failed", error: paidForNothing(payment, failure, outcome) };
    case "canceled":
    case "expired":
      return { kind: "failed", error: nothingPaid(payment, failure) };
    case "lapsing":
      return {
        kind: "unknown",
        error: unknownError(
          paymentId,
          `${failure.why}. ${isUncancelable(payment.authorization) ? "Purser cannot cancel this kind of payment" : "Purser does not cancel this payment because the payee left several earlier payments uncollected"}: the budget becomes free when the authorization expires`,
          { budgetReturnsAt: outcome.until.toISOString(), delivered: false, ...details },
        ),
      };
    default:
      return {
        kind: "unknown",
        error: unknownError(paymentId, failure.why, { delivered: false, ...details }),
      };
  }
}

async function cancel(
  deps: FetchDeps,
  { key, authorization }: AuthorizedPayment,
): Promise<CancelOutcome> {
  const { chainId, asset, from, nonce, terms } = authorization;
  if (isUncancelable(authorization)) return checkOnce(deps, key, authorization);
  try {
    const cancellation = { chainId, asset, nonce, terms };
    const cancelSignature = await deps.custody.signCancel(key.agentId, cancellation);
    return await deps.settlement.requestCancel({
      key: { chainId, asset, from, nonce },
      cancelSignature,
      timeoutMs: deps.settleWaitMs,
    });
  } catch (error) {
    // Not canceled now; the authorization expires soon, and the engine watches it until then.
    deps.log.warn({ err: error, ...key }, "authorization not canceled");
    return { status: "pending" };
  }
}

/**
 * Time to find a collection by a seller that failed; otherwise it may still collect until the authorization
 * expires.
 */
const LOOK_MS = 3_000;

/**
 * For payments that cannot be canceled: checks on chain whether it was used; otherwise it is left to expire.
 */
async function checkOnce(
  { settlement, settleWaitMs }: FetchDeps,
  key: PaymentKey,
  authorization: SignedAuthorization,
): Promise<CancelOutcome> {
  const timeoutMs = Math.min(settleWaitMs, LOOK_MS);
  const found = await settlement.wait(key.paymentId, timeoutMs, { look: true });
  if (found.status === "settled") return found;
  if (found.status !== "pending") return { status: "expired" };
  return { status: "lapsing", until: endOf(authorization) };
}

/** After this time no one can use it. */
const endOf = ({ validBefore }: SignedAuthorization): Date => new Date(Number(validBefore) * 1_000);

const isUncancelable = (authorization: SignedAuthorization): boolean =>
  paymentSchemeOf(authorization).cancelDigest === undefined;

function paidForNothing(
  payment: AuthorizedPayment,
  failure: Failure,
  { txHash, amountAtomic }: { txHash: Hex; amountAtomic: bigint },
): ApiError {
  const amountPaid = formatAtomic(amountAtomic);
  const next =
    failure.how === "timeout"
      ? " In later calls use a longer timeoutMs: a seller settles before it answers."
      : "";
  return new ApiError("paid_upstream_failed", {
    detail: `${failure.why}, but the payment of ${amountPaid} USDC settled. Do not pay again; contact the seller with the transaction hash.${next}`,
    extra: { ...outline(payment, failure), paid: true, amountPaid, txHash },
  });
}

function nothingPaid(payment: AuthorizedPayment, failure: Failure): ApiError {
  const codes: Record<Failure["how"], ErrorCode> = {
    refused: "settlement_failed",
    timeout: "upstream_timeout",
    rejected: "upstream_error",
    broken: "upstream_error",
  };
  return new ApiError(codes[failure.how], {
    detail: `${failure.why}. Nothing was paid: the authorization was not used and is no longer valid, and the budget is free again.`,
    extra: {
      ...outline(payment, failure),
      paid: false,
      amountPaid: "0",
      txHash: null,
      ...(isFinal(failure) && { retryable: false, suggestion: REFUSED }),
    },
  });
}

/** Without a report of a settlement, it is the payment itself that the target refused. */
const isFinal = ({ how, seen }: Failure): boolean =>
  how === "refused" && seen?.paymentResponse === undefined;

const REFUSED =
  "The target refused the payment itself, so the same call is likely to be refused again, unless the reason in `thirdParty` is temporary. Contact the seller.";

const outline = ({ facts }: AuthorizedPayment, { seen }: Failure) => ({
  paymentId: facts.paymentId,
  network: facts.network,
  payTo: facts.payTo,
  delivered: false,
  upstreamStatus: seen?.status ?? null,
  ...sellersAnswer(seen),
});

/** Checks what the seller signed against the confirmed payment. Undefined if nothing was paid. */
async function evidenceOf(
  { deps, target }: Job,
  { offer, offered, authorization, facts, accepted, fromMs, key }: AuthorizedPayment,
  seen: UpstreamContent | undefined,
  txHash: Hex | null,
): Promise<KeptEvidence | undefined> {
  if (txHash === null) return undefined;
  const signed = { offer: offered, receipt: receiptIn(seen?.paymentResponse) };
  return examine(signed, {
    url: target.mcp ? receiptUrlOf(offer.resource, target.url) : target.url,
    wallet: authorization.from,
    networkNames: [facts.network, accepted.network],
    payTo: facts.payTo,
    terms: accepted,
    txHash,
    fromMs,
    toMs: Date.now(),
  }).catch((err: unknown) => {
    deps.log.warn({ err, ...key }, "a seller's receipt was not checked");
    return undefined;
  });
}

/** A tool has no URL of its own: its receipt uses the URL that the server's paid terms contain. */
function receiptUrlOf(resource: Record<string, unknown> | undefined, requested: URL): URL {
  const url = resource?.["url"];
  if (typeof url !== "string" || !URL.canParse(url)) return requested;
  const named = new URL(url);
  named.hash = "";
  return named;
}
