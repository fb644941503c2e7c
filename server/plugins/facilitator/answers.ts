/** Settle responses of the x402 protocol. */
import { ApiError } from "../../errors.ts";
import type { SettleAnswer } from "../../schemas/facilitator.ts";
import { REASONS, type Payment, type Refusal } from "../../schemes/scheme.ts";
import type { SettlementRow } from "../settlement/types.ts";

/** Maps the engine's reason to the protocol's reason code. */
export function protocolReason(
  outcome: { status: "failed" | "expired"; reason: string },
  { scheme }: Payment,
): string {
  if (outcome.reason === "authorization_canceled") return scheme.reasonUsed;
  if (outcome.status === "expired") return scheme.reasonExpired;
  return outcome.reason;
}

export const names = (payment: Payment, row: Pick<SettlementRow, "id">): PaymentNames => ({
  network: payment.networkName,
  payer: payment.payer,
  amount: payment.amountAtomic.toString(),
  paymentId: row.id,
});

/** The protocol's response when a gas budget is used up: whose, and until when. */
export const gasRefusal = (payment: Payment, error: unknown): SettleAnswer | undefined =>
  error instanceof ApiError && error.code === "gas_budget_exhausted"
    ? notSettled({ network: payment.networkName, payer: payment.payer }, error.code, {
        message: error.message,
      })
    : undefined;

export const refusal = (network: string, { reason, message, payer }: Refusal): SettleAnswer =>
  notSettled({ network, ...(payer !== undefined && { payer }) }, reason, { message });

interface PaymentNames {
  /** As the requirements wrote it. */
  network: string;
  payer?: string;
  amount?: string;
  paymentId?: string;
}

export const settled = (names: PaymentNames, txHash: string): SettleAnswer => ({
  success: true,
  txHash,
  transaction: txHash,
  ...names,
});

export function notSettled(
  names: PaymentNames,
  reason: string,
  options: { message?: string; txHash?: string } = {},
): SettleAnswer {
  const txHash = options.txHash ?? "";
  const message = options.message ?? REASONS[reason as keyof typeof REASONS] ?? reason;
  return {
    success: false,
    txHash,
    transaction: txHash,
    ...names,
    errorReason: reason,
    errorMessage: message,
    error: message,
  };
}
