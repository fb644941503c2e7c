/** Reads PAYMENT-RESPONSE: what the seller claims about the payment. Never proof of anything. */
import { decodePaymentResponseHeader } from "@x402/core/http";
import type { Hex } from "viem";
import { isRecord } from "./json.ts";

export interface ClaimedReceipt {
  success: boolean;
  /** Where to look first on chain; only the chain says whether it is true. */
  txHash: Hex | undefined;
  reason: string | undefined;
}

export function readReceipt(
  headers: Record<string, string | string[] | undefined>,
): ClaimedReceipt | undefined {
  const header = headers["payment-response"] ?? headers["x-payment-response"];
  if (typeof header !== "string") return undefined;
  let value: unknown;
  try {
    value = decodePaymentResponseHeader(header);
  } catch {
    return undefined;
  }
  if (!isRecord(value)) return undefined;
  const { transaction, success, errorReason } = value;
  return {
    success: success === true,
    txHash:
      typeof transaction === "string" && /^0x[0-9a-fA-F]{64}$/.test(transaction)
        ? (transaction.toLowerCase() as Hex)
        : undefined,
    reason: typeof errorReason === "string" ? errorReason.slice(0, 200) : undefined,
  };
}
