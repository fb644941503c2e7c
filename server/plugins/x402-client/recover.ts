/**
 * The seller failed after the proof went out. Whether it was paid is the chain's to say: if the
 * authorization is unused it is canceled there, so that the budget returns and the seller cannot
 * collect later; if it was used, the agent hears that it paid for nothing.
 */
import { ApiError, type ErrorCode } from "../../errors.ts";
import { formatAtomic } from "../../core/money.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import type { CancelOutcome } from "../settlement/types.ts";
import type { Shown } from "./proof.ts";
import { readReceipt } from "./proof.ts";
import type { Delivered, PaymentKey } from "../payments/pay.ts";
import type { ClientDeps } from "./types.ts";
import { unknownError, type PaidFacts } from "./answers.ts";

export interface FailedPayment {
  key: PaymentKey;
  authorization: SignedAuthorization;
  facts: Omit<PaidFacts, "txHash">;
  failure: Extract<Shown, { kind: "failed" }>;
}

export async function recover(
  deps: Pick<ClientDeps, "settlement" | "signCancel" | "settleWaitMs" | "log">,
  failed: FailedPayment,
): Promise<Exclude<Delivered, { kind: "done" }>> {
  const { key, failure } = failed;
  const outcome = await cancel(deps, failed);
  switch (outcome.status) {
    case "settled":
      return { kind: "failed", error: paidForNothing(failed, outcome.txHash) };
    case "canceled":
    case "expired":
      return { kind: "failed", error: nothingPaid(failed) };
    default:
      return { kind: "unknown", error: unknownError(key.paymentId, failure.why) };
  }
}

async function cancel(
  deps: Pick<ClientDeps, "settlement" | "signCancel" | "settleWaitMs" | "log">,
  { key, authorization }: FailedPayment,
): Promise<CancelOutcome> {
  const { chainId, asset, from, nonce } = authorization;
  try {
    const cancelSignature = await deps.signCancel(key.agentId, { chainId, asset, nonce });
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

function paidForNothing({ facts, failure }: FailedPayment, txHash: string): ApiError {
  const amountPaid = formatAtomic(facts.amountAtomic);
  return new ApiError("paid_upstream_failed", {
    detail: `${failure.why}, but the payment of ${amountPaid} USDC settled. Do not pay again; contact the seller with the transaction hash.`,
    extra: { ...outline({ facts, failure }), paid: true, amountPaid, txHash },
  });
}

function nothingPaid({ facts, failure }: FailedPayment): ApiError {
  const codes: Record<typeof failure.how, ErrorCode> = {
    refused: "settlement_failed",
    timeout: "upstream_timeout",
    rejected: "upstream_error",
    broken: "upstream_error",
  };
  const reason = failure.response && readReceipt(failure.response.headers).reason;
  return new ApiError(codes[failure.how], {
    detail: `${failure.why}${reason === undefined ? "" : ` (${reason})`}. Nothing was paid: the authorization was never used and is worthless now, and the budget is free again.`,
    extra: { ...outline({ facts, failure }), paid: false, amountPaid: "0", txHash: null },
  });
}

const outline = ({ facts, failure }: Pick<FailedPayment, "facts" | "failure">) => ({
  paymentId: facts.paymentId,
  network: facts.network,
  payTo: facts.payTo,
  delivered: false,
  upstreamStatus: failure.response?.status ?? null,
});
