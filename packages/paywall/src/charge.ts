/** The facilitator behind a paywall failed us: nothing is served, and nothing is claimed about money. */
import { encodePaymentRequiredHeader, encodePaymentResponseHeader } from "@x402/core/http";
import { type FacilitatorClient, x402ResourceServer } from "@x402/core/server";
import {
  type PaymentPayload,
  type PaymentRequired,
  type PaymentRequirements,
  SettleError,
  type SettleResponse,
} from "@x402/core/types";
import { bazaarResourceServerExtension, declareDiscoveryExtension } from "@x402/extensions/bazaar";
import type { PaymentNetwork } from "./networks.ts";
import { readProof, v1Body, UsdcScheme } from "./protocol.ts";
import type { PaywallScheme } from "./scheme.ts";

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

/**
 * Takes the money for a resource, whatever web framework serves it: the protocol library's
 * resource-server core with a facilitator behind it (ours in-process, or anybody's by URL).
 * Settles before anything is served; that one payment gets one answer is the facilitator's promise.
 */

export interface PaidResource {
  /** USDC as a decimal string. */
  price: string;
  description?: string;
  mimeType?: string;
  /** Who sells it, for catalogues. */
  serviceName?: string;
  tags?: string[];
  payTo?: string;
  /** CAIP-2 ids; the cashier's networks by default. */
  networks?: string[];
  maxTimeoutSeconds?: number;
  /** Announces the resource to catalogues, with an example of the answer. */
  discoverable?: { example?: unknown };
}

export interface PaidRequest {
  method: string;
  /** As the outside sees it, with the query. */
  url: string;
  path: string;
  headers: Record<string, string | string[] | undefined>;
}

export interface Receipt {
  payer: string | undefined;
  transaction: string;
  network: string;
  amount: string;
}

export type Charge =
  | { kind: "unpaid"; headers: Record<string, string>; body: object; required: PaymentRequired }
  | { kind: "refused"; headers: Record<string, string>; body: object }
  | { kind: "settled"; headers: Record<string, string>; receipt: Receipt };

export interface CashierDeps {
  facilitator: FacilitatorClient;
  networks: readonly PaymentNetwork[];
  schemes: readonly PaywallScheme[];
  payTo: string;
}

const MAX_TIMEOUT_SECONDS = 120;

export class Cashier {
  readonly #server: x402ResourceServer;
  readonly #deps: CashierDeps;
  #ready: Promise<void> | undefined;

  constructor(deps: CashierDeps) {
    this.#deps = deps;
    this.#server = new x402ResourceServer(deps.facilitator);
    for (const own of deps.schemes) {
      const scheme = new UsdcScheme(own, deps.networks);
      for (const network of deps.networks) this.#server.register(network.id, scheme);
    }
    this.#server.registerExtension(bazaarResourceServerExtension);
  }

  /** Asks the facilitator what it supports; a failure is asked again by the next request. */
  ready(): Promise<void> {
    this.#ready ??= this.#server.initialize().catch((error: unknown) => {
      this.#ready = undefined;
      throw asFault(error, 503, "The facilitator cannot be asked what it supports.");
    });
    return this.#ready;
  }

  /** What an unpaid request is told. */
  async required(
    resource: PaidResource,
    request: PaidRequest,
    error = "Payment required",
  ): Promise<PaymentRequired> {
    await this.ready();
    const accepts = await this.#accepts(resource);
    return this.#server.createPaymentRequiredResponse(
      accepts,
      {
        url: request.url,
        description: resource.description ?? "",
        mimeType: resource.mimeType ?? "application/json",
        ...(resource.serviceName === undefined ? {} : { serviceName: resource.serviceName }),
        ...(resource.tags === undefined ? {} : { tags: resource.tags }),
      },
      error,
      this.#extensions(resource, request),
    );
  }

  /**
   * Charges for one request. `beforeSettle` runs once the proof fits the terms and before money
   * moves: what can fail is done there, so that a failure costs the caller nothing.
   */
  async charge(
    resource: PaidResource,
    request: PaidRequest,
    beforeSettle: () => Promise<void>,
  ): Promise<Charge> {
    const required = await this.required(resource, request);
    const proof = readProof(request.headers, required.accepts);
    if (proof.kind === "none") return unpaid(required);
    if (proof.kind === "malformed") return unpaid({ ...required, error: proof.reason });
    const { payload, version } = proof;
    const terms = this.#match(required, payload);
    if (typeof terms === "string") return unpaid({ ...required, error: terms });
    await beforeSettle();
    const settled = await this.#settle(payload, terms, required);
    const headers = receiptHeaders(settled, version);
    if (!settled.success) return { kind: "refused", headers, body: refusal(settled) };
    return {
      kind: "settled",
      headers,
      receipt: {
        payer: settled.payer,
        transaction: settled.transaction,
        network: settled.network,
        amount: settled.amount ?? terms.amount,
      },
    };
  }

  async #accepts(resource: PaidResource): Promise<PaymentRequirements[]> {
    const networks = this.#deps.networks.filter(
      ({ id }) => resource.networks?.includes(id) ?? true,
    );
    const entries = networks
      .flatMap(({ id }) => this.#deps.schemes.map(({ name }) => ({ scheme: name, network: id })))
      .filter(({ scheme, network }) => this.#server.getSupportedKind(2, network, scheme));
    if (entries.length === 0)
      throw new FacilitatorFault(503, "The facilitator supports none of the networks asked for.");
    return this.#server.buildPaymentRequirementsFromOptions(
      entries.map((entry) => ({
        ...entry,
        payTo: resource.payTo ?? this.#deps.payTo,
        price: resource.price,
        maxTimeoutSeconds: resource.maxTimeoutSeconds ?? MAX_TIMEOUT_SECONDS,
      })),
      undefined,
    );
  }

  #extensions(resource: PaidResource, request: PaidRequest): Record<string, unknown> | undefined {
    if (!resource.discoverable) return undefined;
    const { example } = resource.discoverable;
    const declared = declareDiscoveryExtension(
      example === undefined ? {} : { output: { example } },
    );
    return this.#server.enrichExtensions(declared, {
      method: request.method,
      path: request.path,
      adapter: { getPath: () => request.path, getMethod: () => request.method },
    });
  }

  /** The advertised entry the proof is for, or why there is none. */
  #match(required: PaymentRequired, payload: PaymentPayload): PaymentRequirements | string {
    const terms = this.#server.findMatchingRequirements(required.accepts, payload);
    if (!terms) return "No matching payment requirements";
    const extensions = this.#server.validateExtensions(required, payload);
    return extensions.valid ? terms : extensions.invalidReason;
  }

  async #settle(
    payload: PaymentPayload,
    terms: PaymentRequirements,
    required: PaymentRequired,
  ): Promise<SettleResponse> {
    try {
      return await this.#server.settlePayment(
        asSold(payload, required),
        terms,
        required.extensions,
        undefined,
        undefined,
        "before-handler",
      );
    } catch (error) {
      // A facilitator by URL may report a refusal as an HTTP error with the outcome in its body.
      if (error instanceof SettleError && error.errorReason !== undefined)
        return { ...refusalOf(error), success: false };
      throw asFault(
        error,
        502,
        "Whether the payment was settled is not known. Show the same proof again.",
      );
    }
  }
}

/**
 * What is paid and by whom is the payer's word; what is sold is ours, so the extensions of whoever shows the proof
 * are dropped.
 */
function asSold(
  { x402Version, accepted, payload }: PaymentPayload,
  { resource, extensions }: PaymentRequired,
): PaymentPayload {
  return {
    x402Version,
    accepted,
    payload,
    resource,
    ...(extensions === undefined ? {} : { extensions }),
  };
}

const refusalOf = ({ errorReason, errorMessage, transaction, network }: SettleError) => ({
  transaction,
  network,
  ...(errorReason === undefined ? {} : { errorReason }),
  ...(errorMessage === undefined ? {} : { errorMessage }),
});

function unpaid(required: PaymentRequired): Charge {
  return {
    kind: "unpaid",
    headers: { "payment-required": encodePaymentRequiredHeader(required) },
    body: v1Body(required),
    required,
  };
}

/** Also on failure, so that the payer learns what became of the signed authorization. */
function receiptHeaders(settled: SettleResponse, version: 1 | 2): Record<string, string> {
  const encoded = encodePaymentResponseHeader(settled);
  return version === 1
    ? { "payment-response": encoded, "x-payment-response": encoded }
    : { "payment-response": encoded };
}

const refusal = (settled: SettleResponse): object => ({
  x402Version: 2,
  success: false,
  error: settled.errorMessage ?? settled.errorReason ?? "The payment was not settled.",
  errorReason: settled.errorReason,
  transaction: settled.transaction,
  network: settled.network,
});
