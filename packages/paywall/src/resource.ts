/** What is sold, the request for it, and the proof of payment that came with the request. */
import type { PaymentPayload, PaymentRequired, PaymentRequirements } from "@x402/core/types";
import type { ProofVersion } from "./protocol.ts";
import { CHANNEL_SCHEME } from "./voucher.ts";

/** USDC as a decimal string; or a maximum, where the handler sets the amount that was used. */
export type RoutePrice = string | ({ fixed?: FixedPrice } & (UpTo | ThroughChannel));

/**
 * The price of this request where it is known before the work. Payers that cannot sign a maximum (`exact`, MPP) pay it in
 * full before the handler runs. Undefined: such payers cannot pay for it.
 */
type FixedPrice = string | ((request: PaidRequest) => string | undefined);
interface UpTo {
  upTo: string;
  channel?: string;
}
interface ThroughChannel {
  /** Through a payment channel: what a request costs, unless the handler charges less. */
  channel: string;
  upTo?: string;
}

export interface PaidResource {
  price: RoutePrice;
  description?: string;
  mimeType?: string;
  /** The seller's name, for catalogues. */
  serviceName?: string;
  tags?: string[];
  payTo?: string;
  /** CAIP-2 ids; the cashier's networks by default. */
  networks?: string[];
  /** With a maximum, the work must be done and charged within this time. */
  maxTimeoutSeconds?: number;
  /** Announces the resource to catalogues, with an example of the response. */
  discoverable?: { example?: unknown };
  /** A wallet that has paid may GET the same URL again for this time by signing in (`sign-in-with-x`). */
  again?: AgainOptions;
}

export interface AgainOptions {
  /** How long a wallet may fetch the resource again after it paid: "30m", "1h", "7d". */
  for: string;
}

export interface PaidRequest {
  method: string;
  /** The public URL, with the query. */
  url: string;
  path: string;
  /** The matched route, where several routes could answer the same URL. */
  route?: string | undefined;
  /** Parsed or not. A response through a channel is sent again only to a request with the same body. */
  body?: unknown;
  headers: Record<string, string | string[] | undefined>;
}

/** A proof that was decoded and matches one entry of the terms. */
export interface PresentedPayment {
  resource: PaidResource;
  request: PaidRequest;
  /** The key of the resource in the store. */
  resourceKey: string;
  payload: PaymentPayload;
  terms: PaymentRequirements;
  required: PaymentRequired;
  version: ProofVersion;
}

/** Whether the handler sets the amount that was used, at least for payers that sign a maximum. */
export const isMetered = ({ price }: Pick<PaidResource, "price">): boolean =>
  typeof price !== "string";

/** What payers sign for with a scheme of this kind: a maximum, or the whole price. Undefined: not offered. */
export const priceOf = (
  { price }: Pick<PaidResource, "price">,
  request: PaidRequest,
  scheme: { name?: string; isMetered?: boolean },
): string | undefined => {
  if (typeof price === "string") return scheme.isMetered ? undefined : price;
  if (scheme.name === CHANNEL_SCHEME) return price.channel;
  if (scheme.isMetered) return price.upTo;
  return typeof price.fixed === "function" ? price.fixed(request) : price.fixed;
};
