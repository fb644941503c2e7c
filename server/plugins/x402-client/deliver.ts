/**
 * Delivers a signed authorization to the seller: the header that carries it, in the seller's protocol and version,
 * and the request, which is repeated only where that cannot pay or act twice.
 */
import { encodePaymentSignatureHeader } from "@x402/core/http";
import type { PaymentPayload, PaymentRequirements, ResourceInfo } from "@x402/core/types";
import { getAddress } from "viem";
import {
  payerOf,
  toBase64Url,
  type PaymentChallenge,
} from "../../../packages/paywall/src/mpp-wire.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { isRecord } from "../../core/foreign-text.ts";
import { OutboundError } from "../../infra/outbound/guard.ts";
import {
  payloadOf,
  readCorrection,
  type Correction,
} from "../../schemes/batch-settlement/paying.ts";
import { paymentSchemeOf } from "../../schemes/index.ts";
import type { ThroughChannel } from "../channels/wallet.ts";
import { parseOffer } from "./ask.ts";
import {
  contentOfResponse,
  isBrokenOff,
  keptForm,
  storedContent,
  type UpstreamContent,
} from "./content.ts";
import type { Job, SignedPayment } from "./job.ts";
import { isSafe, SECOND_TRY_MS, type SendRequest, type TargetRequest } from "./request.ts";

/** Servers reject headers over 16 KiB, so optional repeated parts are left out above this size. */
const MAX_PROOF_BYTES = 12 * 1024;
const PAYMENT_IDENTIFIER = "payment-identifier";

function proofHeaders(payment: SignedPayment): Record<string, string> {
  const { offer, accepted: terms } = payment;
  const authorization = payment.through ? undefined : payment.authorization;
  if (terms.challenge && authorization) return credential(terms.challenge, authorization);
  const payload = payment.through
    ? payloadOf(payment.through.order, payment.through.signed)
    : paymentSchemeOf(payment.authorization).proofPayload(payment.authorization);
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
  const resource = offer.resource ? { resource: offer.resource as unknown as ResourceInfo } : {};
  const { binding } = terms;
  // With an approval the nonce is the approval's, so the payment is not bound to the route.
  if (binding && binding.nonce === authorization?.nonce)
    return {
      "payment-signature": encode({ ...core, ...resource, extensions: binding.extensions }),
    };
  const identifier = paymentIdentifier(offer.extensions, payment.key.paymentId);
  const full = encode({
    ...core,
    ...resource,
    ...(offer.extensions ? { extensions: { ...offer.extensions, ...identifier } } : {}),
  });
  const proof =
    full.length <= MAX_PROOF_BYTES
      ? full
      : encode(identifier ? { ...core, extensions: identifier } : core);
  return { "payment-signature": proof };
}

/**
 * MPP credential: the challenge repeated, with the signed authorization. An agent's own `Authorization` header
 * is never forwarded, so this overwrites nothing.
 */
function credential(
  challenge: PaymentChallenge,
  signed: SignedAuthorization,
): Record<string, string> {
  const { signature, authorization } = paymentSchemeOf(signed).proofPayload(signed) as {
    signature: string;
    authorization: object;
  };
  const proof = toBase64Url({
    challenge,
    payload: { type: "authorization", ...authorization, signature },
    source: payerOf(signed.chainId, getAddress(signed.from)),
  });
  return { [challenge.header?.toLowerCase() ?? "authorization"]: `Payment ${proof}` };
}

const encode = (payload: object): string =>
  encodePaymentSignatureHeader(payload as unknown as PaymentPayload);

/**
 * A seller that supports payment identifiers gets ours, so that retries on both sides count as one payment.
 */
function paymentIdentifier(
  extensions: Record<string, unknown> | undefined,
  paymentId: string,
): Record<string, unknown> | undefined {
  const declared = extensions?.[PAYMENT_IDENTIFIER];
  if (!isRecord(declared) || !isRecord(declared["info"])) return undefined;
  return { [PAYMENT_IDENTIFIER]: { ...declared, info: { ...declared["info"], id: paymentId } } };
}

export type ProofResponse =
  | { kind: "delivered"; seen: UpstreamContent }
  | {
      kind: "failed";
      /** `refused`: a second 402, which is final. `timeout` and `broken` may be retried once. */
      how: "refused" | "rejected" | "timeout" | "broken";
      seen?: UpstreamContent;
      why: string;
      /** What the seller says about the payment channel, in a 402. */
      correction?: Correction;
      /** Proven that nothing of the request can have arrived. */
      neverSent?: true;
    };

/** Sends the proof to the target once, and classifies the response. */
async function sendProof(
  send: SendRequest,
  target: TargetRequest,
  { proof, through }: { proof: Record<string, string>; through: ThroughChannel | undefined },
): Promise<ProofResponse> {
  try {
    const response = await send({ ...target, headers: { ...target.headers, ...proof } });
    const result = classify(contentOfResponse(response));
    if (result.kind === "delivered" || !through || response.status !== 402) return result;
    const parsed = parseOffer(response.headers["payment-required"], response.body);
    const correction = parsed.ok ? readCorrection(parsed.offer, through.id) : undefined;
    return { ...result, ...(correction && { correction }) };
  } catch (error) {
    if (!(error instanceof OutboundError)) throw error;
    const how = error.failure === "timeout" ? "timeout" : "broken";
    const neverSent = error.neverSent && error.failure !== "blocked";
    return { kind: "failed", how, why: error.message, ...(neverSent && { neverSent: true }) };
  }
}

/** A redirect counts as a response: the content may be elsewhere, and the agent decides whether to follow. */
function classify(seen: UpstreamContent): ProofResponse {
  const { status, bytes, truncatedBy } = seen;
  const failed = (
    how: "refused" | "rejected" | "timeout" | "broken",
    why: string,
  ): ProofResponse => ({
    kind: "failed",
    how,
    seen,
    why,
  });
  if (status === 402) return failed("refused", "The target did not accept the payment");
  if (status >= 500) return failed("broken", `The target returned ${status}`);
  if (status >= 400) return failed("rejected", `The target returned ${status}`);
  // Headers arrived, and nothing after them.
  if (isBrokenOff(seen) && bytes === 0)
    return failed(
      truncatedBy === "timeout" ? "timeout" : "broken",
      `The target returned ${status} and closed the connection`,
    );
  return { kind: "delivered", seen };
}

/**
 * Sends the proof once, and a second time only if the target cannot act twice: after a safe method (GET, HEAD),
 * or if nothing of the first request can have arrived.
 * The first real response is kept, unless the second attempt delivers.
 */
export async function sendAtMostTwice(
  send: (target: TargetRequest) => Promise<ProofResponse>,
  target: TargetRequest,
  secondTryMs: number,
): Promise<ProofResponse> {
  const first = await send(target);
  if (first.kind === "delivered") return first;
  const isWorthIt = first.how === "timeout" || first.how === "broken";
  if (!isWorthIt || !(isSafe(target) || first.neverSent === true)) return first;
  const again = await send({ ...target, timeoutMs: Math.min(target.timeoutMs, secondTryMs) });
  if (again.kind === "delivered") return again;
  return first.seen === undefined && again.seen !== undefined
    ? { ...first, seen: again.seen }
    : first;
}

/** Shows the seller the signed authorization, and returns its response. */
export function deliver({ entry, target }: Job, payment: SignedPayment): Promise<ProofResponse> {
  const proof = proofHeaders(payment);
  const { through } = payment;
  const send = (request: TargetRequest) => sendProof(entry.send, request, { proof, through });
  return sendAtMostTwice(send, target, SECOND_TRY_MS);
}

/** Stores the seller's response, so that a later request which finishes this payment requests no other. */
export async function noteResponse(
  { deps }: Job,
  { call, key }: SignedPayment,
  response: ProofResponse,
): Promise<void> {
  if (!response.seen) return;
  await call
    .note({ shown: { ...response, seen: keptForm(response.seen) } })
    .catch((err: unknown) =>
      deps.log.warn({ err, ...key }, "a seller's response was not recorded"),
    );
}

/** The seller's response that an earlier request stored with the key, if it did. */
export function notedResponse(storedNote: unknown): ProofResponse | undefined {
  const response = isRecord(storedNote)
    ? (storedNote["shown"] as ProofResponse | undefined)
    : undefined;
  return response?.seen ? { ...response, seen: storedContent(response.seen) } : response;
}

/** A request that may have had an effect is not sent again. The chain decides what became of its payment. */
export const lostResponse = ({ method }: TargetRequest): ProofResponse => ({
  kind: "failed",
  how: "broken",
  why: `The ${method} may have reached the target, but its response was lost. It is not sent again`,
});
