/**
 * Reads PAYMENT-RESPONSE: what the seller claims about the payment. It is never proof: the chain says
 * whether an authorization was used, and by which transaction.
 */
import { decodePaymentResponseHeader } from "@x402/core/http";
import type { Hex } from "viem";
import { isRecord, readForeignJson } from "../foreign-json.ts";

export interface ClaimedReceipt {
  /** Where to look first. */
  txHash?: Hex;
  /** Why the seller's facilitator did not settle, if it says so. */
  reason?: string;
}

export function readReceipt(
  headers: Record<string, string | string[] | undefined>,
): ClaimedReceipt {
  const header = headers["payment-response"] ?? headers["x-payment-response"];
  if (typeof header !== "string") return {};
  const claimed = readForeignJson(() => decodePaymentResponseHeader(header));
  if (!claimed.ok || !isRecord(claimed.value)) return {};
  const { transaction, errorReason } = claimed.value;
  return {
    ...(typeof transaction === "string" &&
      /^0x[0-9a-fA-F]{64}$/.test(transaction) && { txHash: transaction.toLowerCase() as Hex }),
    // It ends up in a sentence of ours: only the protocol's kind of words.
    ...(typeof errorReason === "string" &&
      /^[\w .:-]{1,120}$/.test(errorReason) && { reason: errorReason }),
  };
}
