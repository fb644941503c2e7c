/** A request whose idempotency key has no answer yet: it runs elsewhere, died, or ended as unknown. */
import type { PaymentRow } from "./store.ts";
import { inProgress } from "./idempotency.ts";
import type { Payments } from "./pay.ts";
import type { PaymentOutcome } from "./types.ts";

export interface RunningDependencies {
  payments: Pick<Payments, "outcome" | "voidReserved">;
  findPayment(key: { agentId: string; paymentId: string }): Promise<PaymentRow | undefined>;
  settleWaitMs: number;
}

/** A request that has run this much longer than its longest wait is one whose process died. */
const ABANDONED_AFTER_MS = 15_000;

/**
 * Answers by the payment's state. "startAnew": nothing was signed and the key is free again.
 * Throws `idempotency_in_progress` while the first request may still answer itself.
 */
export async function resolveRunning(
  deps: RunningDependencies,
  args: { agentId: string; paymentId: string | null },
): Promise<{ payment: PaymentRow; outcome: PaymentOutcome } | "startAnew"> {
  const { agentId, paymentId } = args;
  const payment = paymentId === null ? undefined : await deps.findPayment({ agentId, paymentId });
  if (!payment) throw inProgress(paymentId);
  const key = { agentId, paymentId: payment.id };
  const isAbandoned = payment.ageSeconds * 1000 > deps.settleWaitMs + ABANDONED_AFTER_MS;
  if (!isAbandoned && (payment.status === "reserved" || payment.status === "submitted"))
    throw inProgress(paymentId);
  if (payment.status === "reserved") {
    const detail = "The process stopped before it signed.";
    if (await deps.payments.voidReserved(key, "not_signed", detail)) return "startAnew";
  }
  return { payment, outcome: await deps.payments.outcome(key, deps.settleWaitMs) };
}
