/**
 * Takes the money for a resource, whatever web framework serves it: the protocol library's
 * resource-server core with a facilitator behind it (ours in-process, or anybody's by URL).
 * A price is settled before anything is served; of a maximum, what was used is settled when the work is done and
 * before its answer goes out. That one payment gets one answer is the facilitator's promise.
 */
import { type FacilitatorClient, x402ResourceServer } from "@x402/core/server";
import type {
  PaymentPayload,
  PaymentRequired,
  PaymentRequirements,
  SettleResponse,
} from "@x402/core/types";
import { bazaarResourceServerExtension } from "@x402/extensions/bazaar";
import { type AgainOptions, Door, soldAs, type VerifyMessage } from "./again.ts";
import {
  asFault,
  FacilitatorFault,
  refusalIn,
  notSettled,
  refused,
  told,
  UNKNOWN_OUTCOME,
  paymentRequired,
  type Receipt,
  type Refused,
  type SettledPayment,
  type PaymentRequiredAnswer,
} from "./answers.ts";
import { asSold, discovery, sponsoringFor } from "./extensions.ts";
import { Meter, type Metered } from "./meter.ts";
import type { PaymentNetwork } from "./networks.ts";
import { MppCharges, type MppOptions } from "./mpp.ts";
import { facilitatorOf, readProof, UsdcScheme, type ProofVersion } from "./protocol.ts";
import { ReceiptIssuer, type ReceiptOptions } from "./receipts.ts";
import type { PaywallScheme } from "./scheme.ts";
import { OneProcessStore, type PaywallStore } from "./store.ts";

/** USDC as a decimal string; or at most so much, and the handler says what was used. */
export type RoutePrice = string | { upTo: string };

export interface PaidResource {
  price: RoutePrice;
  description?: string;
  mimeType?: string;
  /** Who sells it, for catalogues. */
  serviceName?: string;
  tags?: string[];
  payTo?: string;
  /** CAIP-2 ids; the cashier's networks by default. */
  networks?: string[];
  /** Of a maximum: the work must be done and charged within it. */
  maxTimeoutSeconds?: number;
  /** Announces the resource to catalogues, with an example of the answer. */
  discoverable?: { example?: unknown };
  /** A wallet that has paid may GET the same URL again for a while, by signing in (`sign-in-with-x`). */
  again?: AgainOptions;
}

export interface PaidRequest {
  method: string;
  /** As the outside sees it, with the query. */
  url: string;
  path: string;
  /** The route of the app that answers, where several could. */
  route?: string | undefined;
  headers: Record<string, string | string[] | undefined>;
}

export interface Settled extends SettledPayment {
  kind: "settled";
  receipt: Receipt;
  /** Set when an earlier showing of this proof did the work, and only now the outcome is known. */
  lateFor?: string;
  /** The same with a signed receipt, where there is a signer: of what was delivered, so told after the work succeeded. */
  delivered(): Promise<SettledPayment>;
}
/** Paid earlier, and signed for now. */
export interface LetIn {
  kind: "again";
  headers: Record<string, string>;
  payer: string;
  network: string;
}

export type Charge = PaymentRequiredAnswer | Refused | Settled | Metered | LetIn;

export interface CashierDeps {
  facilitator: FacilitatorClient;
  networks: readonly PaymentNetwork[];
  schemes: readonly PaywallScheme[];
  payTo: string;
  /** What must be known beyond one request (`again` needs one). Without it, in this process: then a proof whose outcome stayed unknown is not known after a restart. */
  store?: PaywallStore | undefined;
  /** Signs offers and receipts (`offer-and-receipt`), with the key of `payTo` where it is at hand. Off without it. */
  receipts?: ReceiptOptions | undefined;
  /** Asks contract accounts whether they signed; without it only ordinary accounts sign in. */
  verifyMessage?: VerifyMessage | undefined;
  /** Asks by MPP too (`WWW-Authenticate: Payment`), in the same 402. Off without it. */
  mpp?: MppOptions | undefined;
  /** What went wrong beside a payment that is none the worse for it. */
  onFault?: (error: unknown, what: string) => void;
}

/** A proof that was read, and fits one entry of the terms. */
export interface Presented {
  resource: PaidResource;
  request: PaidRequest;
  /** The key of the resource in the store. */
  sold: string;
  payload: PaymentPayload;
  terms: PaymentRequirements;
  required: PaymentRequired;
  version: ProofVersion;
}

const MAX_TIMEOUT_SECONDS = 120;

export class Cashier {
  readonly #server: x402ResourceServer;
  readonly #deps: CashierDeps;
  readonly #meter: Meter;
  readonly #issuer: ReceiptIssuer | undefined;
  readonly #door: Door | undefined;
  readonly #mpp: MppCharges | undefined;
  #ready: Promise<void> | undefined;

  constructor(deps: CashierDeps) {
    const { store, receipts, schemes, networks } = deps;
    this.#deps = deps;
    this.#server = new x402ResourceServer(deps.facilitator);
    for (const name of new Set(schemes.map((scheme) => scheme.name))) {
      const alike = schemes.filter((scheme) => scheme.name === name);
      const scheme = new UsdcScheme(name, alike, networks);
      for (const network of networks) this.#server.register(network.id, scheme);
    }
    this.#server.registerExtension(bazaarResourceServerExtension);
    this.#meter = new Meter(store ?? new OneProcessStore(), {
      verify: (shown) => this.#verify(shown),
      conclude: (shown, amount) => this.#conclude(shown, amount),
    });
    this.#issuer = receipts && new ReceiptIssuer(receipts, deps.onFault);
    this.#mpp = deps.mpp && new MppCharges(deps.mpp);
    this.#door = store && new Door(store, deps.verifyMessage);
  }

  /** Asks the facilitator what it supports; a failure is asked again by the next request. */
  ready(): Promise<void> {
    this.#ready ??= this.#server.initialize().catch((error: unknown) => {
      this.#ready = undefined;
      throw asFault(error, 503, "The facilitator's supported payments cannot be read.");
    });
    return this.#ready;
  }

  /** The terms of a resource: what an unpaid request is told, without what is signed or good for one request only. */
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
      this.#extensions(resource, request, accepts),
    );
  }

  /**
   * Charges for one request. `beforeSettle` runs once the proof fits the terms and before money moves: what can fail
   * is done there, so that a failure costs the caller nothing. Of a maximum nothing is settled here: that is `metered`.
   */
  async charge(
    resource: PaidResource,
    request: PaidRequest,
    beforeSettle: () => Promise<void>,
  ): Promise<Charge> {
    const networks = this.#networkIds(resource);
    const { price, payTo = this.#deps.payTo } = resource;
    const sold = soldAs({ price, payTo }, request, networks);
    const isAgain = resource.again !== undefined && request.method === "GET";
    const entered = isAgain ? await this.#door?.enter(request, sold, networks) : undefined;
    if (entered?.isLetIn === true) {
      await beforeSettle();
      return { kind: "again", headers: {}, payer: entered.payer, network: entered.network };
    }
    const required = await this.required(resource, request);
    const refuse = async (error?: string): Promise<PaymentRequiredAnswer> => {
      const told = error ? { ...required, error } : required;
      const answer = paymentRequired(await this.#invite(resource, request, told));
      return this.#mpp?.beside(answer, request) ?? answer;
    };
    const proof =
      this.#mpp?.proofIn(request, required) ?? readProof(request.headers, required.accepts);
    if (proof.kind === "none") return refuse(entered?.reason);
    if (proof.kind === "malformed") return refuse(proof.reason);
    const { payload, version } = proof;
    const terms = this.#match(required, payload);
    if (typeof terms === "string") return refuse(terms);
    const shown: Presented = { resource, request, sold, payload, terms, required, version };
    if (isMetered(resource)) return this.#meter.take(shown, beforeSettle);
    await beforeSettle();
    return this.#conclude(shown, terms.amount);
  }

  /** What is signed, or good for one request, is made only for whoever is to be told. */
  async #invite(
    resource: PaidResource,
    request: PaidRequest,
    required: PaymentRequired,
  ): Promise<PaymentRequired> {
    const isAgain = resource.again && request.method === "GET";
    const more = {
      ...(await this.#issuer?.offers(required)),
      ...(isAgain && this.#door?.challenge(required)),
    };
    if (Object.keys(more).length === 0) return required;
    return { ...required, extensions: { ...required.extensions, ...more } };
  }

  readonly #networkIds = (resource: PaidResource) =>
    this.#deps.networks.map(({ id }) => id).filter((id) => resource.networks?.includes(id) ?? true);

  async #accepts(resource: PaidResource): Promise<PaymentRequirements[]> {
    const { price } = resource;
    const ids = this.#networkIds(resource);
    const entries = this.#deps.schemes
      .filter((scheme) => (scheme.isMetered ?? false) === isMetered(resource))
      .flatMap((scheme) => ids.map((network) => ({ scheme, network })))
      .filter(({ scheme, network }) => {
        const kind = this.#server.getSupportedKind(2, network, scheme.name);
        // Nobody can sign a maximum for an account that is not named.
        return kind && (scheme.isMetered !== true || facilitatorOf(kind.extra) !== undefined);
      });
    if (entries.length === 0)
      throw new FacilitatorFault(503, "The facilitator supports none of the requested networks.");
    return this.#server.buildPaymentRequirementsFromOptions(
      entries.map(({ scheme, network }) => ({
        scheme: scheme.name,
        network,
        payTo: resource.payTo ?? this.#deps.payTo,
        price: typeof price === "string" ? price : price.upTo,
        maxTimeoutSeconds: resource.maxTimeoutSeconds ?? MAX_TIMEOUT_SECONDS,
        extra: scheme.requirementExtra(this.#networkOf(network)),
      })),
      undefined,
    );
  }

  #networkOf(id: string): PaymentNetwork {
    const network = this.#deps.networks.find((known) => known.id === id);
    if (!network) throw new Error(`the cashier does not know the network ${id}`);
    return network;
  }

  #extensions(
    resource: PaidResource,
    request: PaidRequest,
    accepts: readonly PaymentRequirements[],
  ): Record<string, unknown> | undefined {
    const announced = accepts.flatMap(({ network, scheme }) =>
      this.#server.getFacilitatorExtensions(2, network, scheme),
    );
    const declared = sponsoringFor(accepts, announced);
    const { discoverable } = resource;
    if (discoverable) Object.assign(declared, discovery(discoverable.example));
    if (Object.keys(declared).length === 0) return undefined;
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

  /** Undefined where the payment is good. */
  async #verify({ payload, terms, required }: Presented): Promise<SettleResponse | undefined> {
    try {
      const { isValid, invalidReason, invalidMessage, payer } = await this.#server.verifyPayment(
        asSold(payload, required),
        terms,
        required.extensions,
      );
      if (isValid) return undefined;
      const reason = invalidReason ?? "invalid_payload";
      return notSettled(terms, reason, invalidMessage ?? reason, payer);
    } catch (error) {
      throw asFault(error, 503, "The facilitator cannot be reached to verify the payment.");
    }
  }

  /** `amount` in atomic units: of a maximum, what was used; of nothing, nothing is sent. */
  async #conclude(shown: Presented, amount: string): Promise<Settled | Refused> {
    const { terms, version, resource, request } = shown;
    const response = await this.#settle(shown, { ...terms, amount });
    if (!response.success) {
      const answer = refused(response, version);
      // What refuses a credential of MPP asks anew: its challenge is good for one.
      const again =
        version === "mpp" && this.#mpp?.beside(paymentRequired(shown.required), request);
      const asked = again ? again.headers["www-authenticate"] : undefined;
      if (asked === undefined) return answer;
      return { ...answer, headers: { ...answer.headers, "www-authenticate": asked } };
    }
    const { payer } = response;
    if (this.#door && resource.again && payer !== undefined && request.method === "GET")
      await this.#door
        .remember(shown.sold, payer, resource.again)
        .catch((error: unknown) => this.#deps.onFault?.(error, "remembering who has paid"));
    return this.#settled(response, amount, shown);
  }

  #settled(response: SettleResponse, amount: string, { request, version }: Presented): Settled {
    const { payer, transaction, network } = response;
    const receipt = { payer, transaction, network, amount: response.amount ?? amount };
    const delivered = async (): Promise<SettledPayment> =>
      told((await this.#issuer?.receipted(response, request.url)) ?? response, version);
    return { kind: "settled", ...told(response, version), receipt, delivered };
  }

  async #settle(
    { payload, required, resource }: Presented,
    terms: PaymentRequirements,
  ): Promise<SettleResponse> {
    try {
      return await this.#server.settlePayment(
        asSold(payload, required),
        terms,
        required.extensions,
        undefined,
        undefined,
        isMetered(resource) ? "after-handler" : "before-handler",
      );
    } catch (error) {
      const refusal = refusalIn(error);
      if (refusal) return refusal;
      throw asFault(error, 502, UNKNOWN_OUTCOME);
    }
  }
}

export const isMetered = ({ price }: Pick<PaidResource, "price">): boolean =>
  typeof price !== "string";
