/** Results and outcomes in the words of the wire. */
import type { SettleAnswer, VerifyAnswer } from "../../schemas/facilitator.ts";
import type { CheckResult } from "./check.ts";
import { REASONS } from "../../schemes/reasons.ts";

export function verifyAnswer(result: CheckResult): VerifyAnswer {
  if (result.isValid) {
    const { payer, amountAtomic } = result.payment;
    return { isValid: true, payer, amount: amountAtomic.toString() };
  }
  const { reason, message, payer } = result;
  return {
    isValid: false,
    error: message,
    invalidReason: reason,
    invalidMessage: message,
    ...(payer !== undefined && { payer }),
  };
}

export interface PaymentNames {
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
