/** The header that carries a signed authorization to the seller, in the seller's version. */
import { decodePaymentResponseHeader, encodePaymentSignatureHeader } from "@x402/core/http";
import type { PaymentPayload, PaymentRequirements, ResourceInfo } from "@x402/core/types";
import type { Hex } from "viem";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { isRecord, readForeignJson } from "../../core/foreign-text.ts";
import { OutboundError } from "../../infra/outbound/guard.ts";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";
import { schemeOf } from "../../schemes/index.ts";
import { isRedirect, type Offer, type OfferedTerms } from "./offer.ts";
import type { TargetRequest } from "./request.ts";

export interface ProofRequest {
  offer: Pick<Offer, "x402Version" | "resource" | "extensions">;
  terms: OfferedTerms;
  authorization: SignedAuthorization;
  paymentId: string;
}

/** Servers refuse requests whose headers exceed 16 KiB, so what is only repeated gives way. */
const MAX_PROOF_BYTES = 12 * 1024;
const PAYMENT_IDENTIFIER = "payment-identifier";

export function proofHeaders(request: ProofRequest): Record<string, string> {
  const { offer, terms } = request;
  const payload = schemeOf(request.authorization).proofPayload(request.authorization);
  if (offer.x402Version === 1)
    return {
      "x-payment": encode({
        x402Version: 1,
        scheme: terms.scheme,
        network: terms.network,
        payload,
      }),
    };
  const core = {
    x402Version: 2,
    accepted: terms.raw as unknown as PaymentRequirements,
    payload,
  };
  const identifier = paymentIdentifier(offer.extensions, request.paymentId);
  const full = encode({
    ...core,
    ...(offer.resource ? { resource: offer.resource as unknown as ResourceInfo } : {}),
    ...(offer.extensions ? { extensions: { ...offer.extensions, ...identifier } } : {}),
  });
  const proof =
    full.length <= MAX_PROOF_BYTES
      ? full
      : encode(identifier ? { ...core, extensions: identifier } : core);
  return { "payment-signature": proof };
}

const encode = (payload: object): string =>
  encodePaymentSignatureHeader(payload as unknown as PaymentPayload);

/** A seller that offers payment identifiers gets ours, so that its retries and ours are one payment. */
function paymentIdentifier(
  extensions: Record<string, unknown> | undefined,
  paymentId: string,
): Record<string, unknown> | undefined {
  const declared = extensions?.[PAYMENT_IDENTIFIER];
  if (!isRecord(declared) || !isRecord(declared["info"])) return undefined;
  return { [PAYMENT_IDENTIFIER]: { ...declared, info: { ...declared["info"], id: paymentId } } };
}

/**
 * Reads PAYMENT-RESPONSE: what the seller claims about the payment. It is never proof: the chain says
 * whether an authorization was used, and by which transaction.
 */

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
