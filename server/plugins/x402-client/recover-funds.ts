/**
 * Called when the seller failed after the proof was sent. The chain decides whether it was paid.
 * An unused authorization is canceled on chain, so that the budget returns and the seller cannot collect later.
 * If it cannot be canceled, it is left to expire. If it was used, the agent gets an error that the payment
 * settled without delivery.
 */
import type { Hex } from "viem";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { formatAtomic } from "../../core/money.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";
import { paymentSchemeOf } from "../../schemes/index.ts";
import type { Delivered, PaymentKey } from "../payments/payment-plan.ts";
import type { CancelOutcome } from "../settlement/types.ts";
import { sellersAnswer, unknownError, type PaidFacts } from "./answers.ts";
import type { ProofResponse } from "./proof.ts";
import type { ClientDeps } from "./request.ts";

interface FailedPayment {
  key: PaymentKey;
  authorization: SignedAuthorization;
  facts: Omit<PaidFacts, "txHash">;
  failure: Extract<ProofResponse, { kind: "failed" }>;
}

export async function recoverFunds(
  deps: Pick<ClientDeps, "settlement" | "signCancel" | "settleWaitMs" | "log">,
  failed: FailedPayment,
): Promise<Exclude<Delivered, { kind: "done" }>> {
  const { key, failure } = failed;
  const outcome = await cancel(deps, failed);
  const details = { ...sellersAnswer(failure.seen), upstreamStatus: failure.seen?.status ?? null };
  switch (outcome.status) {
    case "settled":
      return { kind: "failed", error: paidForNothing(failed, outcome) };
    case "canceled":
    case "expired":
      return { kind: "failed", error: nothingPaid(failed) };
    case "lapsing":
      return {
        kind: "unknown",
        error: unknownError(
          key.paymentId,
          `${failure.why}. ${isUncancelable(failed.authorization) ? "Purser cannot cancel this kind of payment" : "Purser does not cancel this payment because the payee left several earlier payments uncollected"}: the budget becomes free when the authorization expires`,
          { budgetReturnsAt: outcome.until.toISOString(), delivered: false, ...details },
        ),
      };
    default:
      return {
        kind: "unknown",
        error: unknownError(key.paymentId, failure.why, { delivered: false, ...details }),
      };
  }
}

export async function cancel(
  deps: Pick<ClientDeps, "settlement" | "signCancel" | "settleWaitMs" | "log">,
  { key, authorization }: Pick<FailedPayment, "key" | "authorization">,
): Promise<CancelOutcome> {
  const { chainId, asset, from, nonce, terms } = authorization;
  if (isUncancelable(authorization)) return checkOnce(deps, key, authorization);
  try {
    const cancelSignature = await deps.signCancel(key.agentId, { chainId, asset, nonce, terms });
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

function paidForNothing(
  { facts, failure }: FailedPayment,
  { txHash, amountAtomic }: { txHash: Hex; amountAtomic: bigint },
): ApiError {
  const amountPaid = formatAtomic(amountAtomic);
  return new ApiError("paid_upstream_failed", {
    detail: `${failure.why}, but the payment of ${amountPaid} USDC settled. Do not pay again; contact the seller with the transaction hash.`,
    extra: {
      ...outline({ facts, failure }),
      ...sellersAnswer(failure.seen),
      paid: true,
      amountPaid,
      txHash,
    },
  });
}

function nothingPaid({ facts, failure }: FailedPayment): ApiError {
  const codes: Record<typeof failure.how, ErrorCode> = {
    refused: "settlement_failed",
    timeout: "upstream_timeout",
    rejected: "upstream_error",
    broken: "upstream_error",
  };
  return new ApiError(codes[failure.how], {
    detail: `${failure.why}. Nothing was paid: the authorization was not used and is no longer valid, and the budget is free again.`,
    extra: {
      ...outline({ facts, failure }),
      ...sellersAnswer(failure.seen),
      paid: false,
      amountPaid: "0",
      txHash: null,
    },
  });
}

const outline = ({ facts, failure }: Pick<FailedPayment, "facts" | "failure">) => ({
  paymentId: facts.paymentId,
  network: facts.network,
  payTo: facts.payTo,
  delivered: false,
  upstreamStatus: failure.seen?.status ?? null,
});

/**
 * Time to find a collection by a seller that failed; otherwise it may still collect until the authorization
 * expires.
 */
const LOOK_MS = 3_000;

/** After this time no one can use it. */
export const endOf = ({ validBefore }: SignedAuthorization): Date =>
  new Date(Number(validBefore) * 1_000);

const isUncancelable = (authorization: SignedAuthorization): boolean =>
  paymentSchemeOf(authorization).cancelDigest === undefined;

/**
 * For payments that cannot be canceled: checks on chain whether it was used; otherwise it is left to expire.
 */
async function checkOnce(
  deps: Pick<ClientDeps, "settlement" | "settleWaitMs">,
  key: PaymentKey,
  authorization: SignedAuthorization,
): Promise<CancelOutcome> {
  const timeoutMs = Math.min(deps.settleWaitMs, LOOK_MS);
  const found = await deps.settlement.wait(key.paymentId, timeoutMs, { look: true });
  if (found.status === "settled") return found;
  if (found.status !== "pending") return { status: "expired" };
  return { status: "lapsing", until: endOf(authorization) };
}

/** When the budget of an open payment returns at the latest. */
export const returningAt = (authorization: SignedAuthorization): { budgetReturnsAt?: string } =>
  isUncancelable(authorization) ? { budgetReturnsAt: endOf(authorization).toISOString() } : {};
