/**
 * Reads PAYMENT-RESPONSE: what the seller claims about the payment. It is never proof: whether and by
 * which transaction an authorization was used is asked of the chain, which knows it by its nonce.
 */
import { decodePaymentResponseHeader } from "@x402/core/http";
import { isRecord } from "./json.ts";

/** Why the seller's facilitator did not settle, if it says so. */
export function claimedReason(
  headers: Record<string, string | string[] | undefined>,
): string | undefined {
  const header = headers["payment-response"] ?? headers["x-payment-response"];
  if (typeof header !== "string") return undefined;
  try {
    const claimed: unknown = decodePaymentResponseHeader(header);
    const reason = isRecord(claimed) ? claimed["errorReason"] : undefined;
    // It ends up in a sentence of ours: only the protocol's kind of words.
    return typeof reason === "string" && /^[\w .:-]{1,120}$/.test(reason) ? reason : undefined;
  } catch {
    return undefined;
  }
}
