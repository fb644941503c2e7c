/** What a caller is told: the protocol's headers and bodies. */
import { encodePaymentRequiredHeader, encodePaymentResponseHeader } from "@x402/core/http";
import {
  type PaymentRequired,
  type PaymentRequirements,
  SettleError,
  type SettleResponse,
} from "@x402/core/types";
import { receiptHeader } from "./mpp.ts";
import { v1Body, type ProofVersion } from "./protocol.ts";

/** The facilitator behind a paywall failed us: nothing is served, and nothing is claimed about money. */
export class FacilitatorFault extends Error {
  override name = "FacilitatorFault";
  /** What Fastify's own error handler answers with. */
  readonly statusCode: 502 | 503;

  constructor(statusCode: 502 | 503, message: string, options?: ErrorOptions) {
    super(message, options);
    this.statusCode = statusCode;
  }
}

/** Our own errors (`ApiError`) say themselves what they are to be answered with, and pass through. */
export function asFault(error: unknown, statusCode: 502 | 503, message: string): Error {
  if (error instanceof Error && typeof (error as { status?: unknown }).status === "number")
    return error;
  return new FacilitatorFault(statusCode, message, { cause: error });
}

export const UNKNOWN_OUTCOME =
  "It is not known whether the payment settled. Send the same proof again.";

export interface Receipt {
  payer: string | undefined;
  /** Empty where nothing was settled. */
  transaction: string;
  network: string;
  /** Atomic units. */
  amount: string;
}

/** Of something paid: what became of the payment, in the protocol's words and as headers of the answer. */
export interface SettledPayment {
  response: SettleResponse;
  headers: Record<string, string>;
}

export interface PaymentRequiredAnswer {
  kind: "unpaid";
  headers: Record<string, string>;
  body: object;
  required: PaymentRequired;
}
export interface Refused extends SettledPayment {
  kind: "refused";
  body: object;
}

export function paymentRequired(required: PaymentRequired): PaymentRequiredAnswer {
  return {
    kind: "unpaid",
    headers: { "payment-required": encodePaymentRequiredHeader(required) },
    body: v1Body(required),
    required,
  };
}

export const refused = (response: SettleResponse, version: ProofVersion): Refused => ({
  kind: "refused",
  ...told(response, version),
  body: refusal(response),
});

/** Also on failure, so that the payer learns what became of the signed authorization. */
export function told(response: SettleResponse, version: ProofVersion): SettledPayment {
  if (version === "mpp") return { response, headers: receiptHeader(response) };
  const encoded = encodePaymentResponseHeader(response);
  const headers: Record<string, string> = { "payment-response": encoded };
  if (version === 1) headers["x-payment-response"] = encoded;
  return { response, headers };
}

const refusal = (settled: SettleResponse): object => ({
  x402Version: 2,
  success: false,
  error: settled.errorMessage ?? settled.errorReason ?? "The payment was not settled.",
  errorReason: settled.errorReason,
  transaction: settled.transaction,
  network: settled.network,
});

export const notSettled = (
  { network }: PaymentRequirements,
  errorReason: string,
  errorMessage: string,
  payer?: string,
): SettleResponse => ({
  success: false,
  errorReason,
  errorMessage,
  transaction: "",
  network,
  ...(payer === undefined ? {} : { payer }),
});

/** A facilitator by URL may report a refusal as an HTTP error with the outcome in its body. */
export function refusalIn(error: unknown): SettleResponse | undefined {
  if (!(error instanceof SettleError) || error.errorReason === undefined) return undefined;
  const { errorReason, errorMessage, transaction, network } = error;
  return {
    success: false,
    transaction,
    network,
    errorReason,
    ...(errorMessage === undefined ? {} : { errorMessage }),
  };
}
