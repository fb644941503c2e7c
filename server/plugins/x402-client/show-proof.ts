/**
 * Reads PAYMENT-RESPONSE: what the seller claims about the payment. It is never proof: the chain says
 * whether an authorization was used, and by which transaction.
 */
import { decodePaymentResponseHeader } from "@x402/core/http";
import type { Hex } from "viem";
import { isRecord, readForeignJson } from "../../core/json.ts";
import { OutboundError } from "../../infra/outbound/errors.ts";
import { type OutboundRequest, type OutboundResponse } from "../../infra/outbound/outbound.ts";
import { isRedirect } from "./ask.ts";
import type { TargetRequest } from "./types.ts";

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

/** Shows a signed authorization to the target, and judges what came back. */

export type Shown =
  | { kind: "delivered"; response: OutboundResponse }
  | {
      kind: "failed";
      /** `refused`: a second 402, which is final. `timeout` and `broken` may be worth one more try. */
      how: "refused" | "rejected" | "timeout" | "broken";
      response: OutboundResponse | undefined;
      why: string;
    };

export async function showProof(
  ask: (request: OutboundRequest) => Promise<OutboundResponse>,
  target: TargetRequest,
  proof: Record<string, string>,
): Promise<Shown> {
  try {
    return judge(await ask({ ...target, headers: { ...target.headers, ...proof } }));
  } catch (error) {
    if (!(error instanceof OutboundError)) throw error;
    const how = error.failure === "timeout" ? "timeout" : "broken";
    return { kind: "failed", how, response: undefined, why: error.message };
  }
}

function judge(response: OutboundResponse): Shown {
  const { status } = response;
  const failed = (how: "refused" | "rejected" | "broken", why: string): Shown => ({
    kind: "failed",
    how,
    response,
    why,
  });
  if (status === 402) return failed("refused", "The target did not accept the payment");
  if (isRedirect(status)) return failed("rejected", "The target redirected the paid request");
  if (status >= 500) return failed("broken", `The target answered ${status}`);
  if (status >= 400) return failed("rejected", `The target answered ${status}`);
  return { kind: "delivered", response };
}
