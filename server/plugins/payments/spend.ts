/** `POST /api/agents/spend`: pay, wait for the proof, answer; the same key gets the same answer. */
import { getAddress } from "viem";
import { ApiError } from "../../errors.ts";
import { formatAtomic } from "../../core/money.ts";
import { inProgress, keyReused, type Answer, type Idempotency } from "./idempotency.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import type { Payments } from "./pay.ts";
import { resolveRunning, type RunningDependencies } from "./resume-unanswered.ts";
import type { PaymentOutcome, PayRequest } from "./types.ts";

export interface SpendDependencies extends RunningDependencies {
  payments: Payments;
  idempotency: Idempotency;
  remainingOf(agentId: string): Promise<bigint>;
  networkOf(chainId: number): string;
}

export class Spend {
  readonly #deps: SpendDependencies;

  constructor(deps: SpendDependencies) {
    this.#deps = deps;
  }

  async run(request: Omit<PayRequest, "relay" | "kind">): Promise<Answer> {
    const { idempotency } = request;
    // Before anything else: an answer that exists is told even while the chain is down.
    const found = await this.#deps.idempotency.lookup(idempotency);
    if (found.kind === "answered") return found.answer;
    if (found.kind === "running") {
      const answer = await this.#answerRunning(request, found.paymentId);
      if (answer) return answer;
    }
    const result = await this.#deps.payments.authorize({ ...request, kind: "spend", relay: true });
    switch (result.kind) {
      case "denied":
        throw result.error;
      case "replay":
        return this.#deps.idempotency.replay(result.statusCode, result.response);
      case "in_progress":
        throw inProgress(result.paymentId);
      case "key_reused":
        throw keyReused();
      default:
        break;
    }
    const key = { agentId: request.payer.id, paymentId: result.paymentId };
    const outcome = await this.#deps.payments.outcome(key, this.#deps.settleWaitMs);
    const paid = {
      ...key,
      recipient: request.to,
      amountAtomic: request.amountAtomic,
      chainId: request.chainId,
      remainingAtomic: result.remainingAtomic,
    };
    return this.#answer(paid, outcome, idempotency, false);
  }

  async #answerRunning(
    request: Omit<PayRequest, "relay" | "kind">,
    paymentId: string | null,
  ): Promise<Answer | undefined> {
    const agentId = request.payer.id;
    const resolved = await resolveRunning(this.#deps, { agentId, paymentId });
    if (resolved === "startAnew") return undefined;
    const { payment, outcome } = resolved;
    const paid = {
      paymentId: payment.id,
      recipient: request.to,
      amountAtomic: payment.amountAtomic,
      chainId: Number(payment.chainId),
      remainingAtomic: await this.#deps.remainingOf(agentId),
    };
    return this.#answer(paid, outcome, request.idempotency, true);
  }

  async #answer(
    paid: {
      paymentId: string;
      recipient: `0x${string}`;
      amountAtomic: bigint;
      chainId: number;
      remainingAtomic: bigint;
    },
    outcome: PaymentOutcome,
    idempotency: IdempotencyRef | undefined,
    replayed: boolean,
  ): Promise<Answer> {
    if (outcome.status === "settled") {
      const answer: Answer = {
        statusCode: 200,
        replayed,
        body: {
          success: true,
          txHash: outcome.txHash,
          paymentId: paid.paymentId,
          recipient: getAddress(paid.recipient),
          amount: formatAtomic(paid.amountAtomic),
          network: this.#deps.networkOf(paid.chainId),
          settledAt: outcome.settledAt.toISOString(),
          remaining: formatAtomic(paid.remainingAtomic),
        },
      };
      await this.#deps.idempotency.completeWith(idempotency, answer);
      return answer;
    }
    const error = outcomeError(paid.paymentId, outcome);
    // Unknown is not an answer to keep: the same key hears the outcome once the chain has proved it.
    if (outcome.status === "failed")
      await this.#deps.idempotency.completeWithError(idempotency, error);
    throw error;
  }
}

export function outcomeError(
  paymentId: string,
  outcome: Exclude<PaymentOutcome, { status: "settled" }>,
): ApiError {
  if (outcome.status === "pending")
    return new ApiError("payment_status_unknown", {
      extra: { paymentId, txHash: outcome.txHash },
    });
  return new ApiError("settlement_failed", {
    detail: `The payment did not happen: ${outcome.message} The budget is free again.`,
    extra: { paymentId, txHash: outcome.txHash, reason: outcome.reason },
  });
}
