/** The headers and bodies of the responses to a paid request. */
import { encodePaymentRequiredHeader, encodePaymentResponseHeader } from "@x402/core/http";
import {
  type PaymentRequired,
  type PaymentRequirements,
  SettleError,
  type SettleResponse,
} from "@x402/core/types";
import { receiptHeader } from "./mpp-wire.ts";
import { v1Body, type ProofVersion } from "./protocol.ts";

/** The facilitator failed: nothing is served, and the response claims nothing about the payment. */
export class FacilitatorFault extends Error {
  override name = "FacilitatorFault";
  /** Fastify's own error handler reads this as the HTTP status. */
  readonly statusCode: 502 | 503;

  constructor(statusCode: 502 | 503, message: string, options?: ErrorOptions) {
    super(message, options);
    this.statusCode = statusCode;
  }
}

/** Errors that already have an HTTP status (Purser's own `ApiError`) pass through unchanged. */
export function asFault(error: unknown, statusCode: 502 | 503, message: string): Error {
  if (error instanceof FacilitatorFault) return error;
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

/** The outcome of a payment: the settlement response, and the headers that report it. */
export interface SettledPayment {
  response: SettleResponse;
  headers: Record<string, string>;
}

/** A response that may be sent again for the same proof. */
export interface KeptResponse {
  status: number;
  headers: Record<string, number | string | string[] | undefined>;
  payload: string | Buffer;
}

export interface Settled extends SettledPayment {
  kind: "settled";
  receipt: Receipt;
  /** The response to this proof: no work is done for it. */
  kept?: KeptResponse;
  /**
   * Set when an earlier request with this proof did the work, and its payment settled only with this request.
   */
  lateFor?: string;
  /**
   * The same outcome with a signed receipt, where there is a signer. A receipt confirms delivery, so it is
   * made after the work succeeded.
   */
  delivered(): Promise<SettledPayment>;
}
/** Paid by an earlier request; this request is authorized by a signature. */
export interface PaidEarlier {
  kind: "again";
  headers: Record<string, string>;
  payer: string;
  network: string;
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
  ...settledPayment(response, version),
  body: refusalBody(response),
});

/** Sent on failure too, so that the payer learns the outcome of the authorization it signed. */
export function settledPayment(response: SettleResponse, version: ProofVersion): SettledPayment {
  if (version === "mpp") return { response, headers: receiptHeader(response) };
  const encoded = encodePaymentResponseHeader(response);
  const headers: Record<string, string> = { "payment-response": encoded };
  if (version === 1) headers["x-payment-response"] = encoded;
  return { response, headers };
}

const refusalBody = (settled: SettleResponse): object => ({
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

/** A facilitator reached by URL may report a refusalBody as an HTTP error with the outcome in its body. */
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
