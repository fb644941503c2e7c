/** The header that carries a signed authorization to the seller, in the seller's version. */
import { encodePaymentSignatureHeader } from "@x402/core/http";
import type { PaymentPayload, PaymentRequirements, ResourceInfo } from "@x402/core/types";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { isRecord } from "../../core/json.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { Offer, OfferedTerms } from "./offer.ts";

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
