/**
 * Charges for a resource, independent of the web framework: the protocol library's resource-server core with
 * a facilitator behind it (in this process, or any other by URL).
 * A fixed price is settled before anything is served. With a maximum, the amount used is settled after the
 * work and before its response is sent. The facilitator guarantees that one payment gets one response.
 */
import type { FacilitatorClient, x402ResourceServer } from "@x402/core/server";
import type {
  PaymentPayload,
  PaymentRequired,
  PaymentRequirements,
  SettleResponse,
  VerifyResponse,
} from "@x402/core/types";
import { RepeatAccess, resourceKeyOf, type VerifyMessage } from "./again.ts";
import {
  asFault,
  FacilitatorFault,
  refusalIn,
  notSettled,
  refused,
  settledPayment,
  UNKNOWN_OUTCOME,
  paymentRequired,
  type PaidEarlier,
  type Refused,
  type Settled,
  type SettledPayment,
  type PaymentRequiredAnswer,
} from "./answers.ts";
import { ChannelClaims } from "./channel-claims.ts";
import { ChannelFacilitator } from "./channel-facilitator.ts";
import { channelScheme, channelSettings, type ChannelOptions } from "./channel-settings.ts";
import { ChannelCharges, type NotCovered } from "./channels.ts";
import { payloadForFacilitator, discovery, sponsoringFor } from "./extensions.ts";
import { isOneClient, type FacilitatorEntry } from "./facilitator-call.ts";
import { FailoverFacilitatorClient, type FailoverOptions } from "./failover.ts";
import type { FacilitatorHealth } from "./facilitator-endpoint.ts";
import { Meter, type Metered } from "./meter.ts";
import { MppCharges, type MppOptions } from "./mpp.ts";
import { findAmong, PAYMENT_NETWORKS, type PaymentNetwork } from "./networks.ts";
import { facilitatorOf, readProof } from "./protocol.ts";
import { ResourceServer } from "./resource-server.ts";
import { ReceiptIssuer, type ReceiptOptions } from "./receipts.ts";
import type { PaymentKind } from "./payment.ts";
import { priceOf, type PaidRequest, type PaidResource, type PresentedPayment } from "./resource.ts";
import { EXACT_EIP3009, type PaywallScheme, UPTO } from "./scheme.ts";
import { OneProcessStore, type PaywallStore } from "./store.ts";
import { CHANNEL_SCHEME, type Address } from "./voucher.ts";

export type Charge = PaymentRequiredAnswer | Refused | Settled | Metered | PaidEarlier;

interface CashierDeps {
  facilitator: FacilitatorClient;
  networks: readonly PaymentNetwork[];
  schemes: readonly PaywallScheme[];
  payTo: string;
  /**
   * State that is needed beyond one request; required for `again`. Without it the state is in this process
   * only: after a restart a proof with an unknown outcome is not recognized.
   */
  store?: PaywallStore | undefined;
  /** Signs offers and receipts (`offer-and-receipt`) with the key of `payTo`. Off without it. */
  receipts?: ReceiptOptions | undefined;
  /** Checks the signatures of contract accounts; without it only ordinary accounts can sign in. */
  verifyMessage?: VerifyMessage | undefined;
  /** Also requests payment over MPP (`WWW-Authenticate: Payment`) in the same 402. Off without it. */
  mpp?: MppOptions | undefined;
  /** Payment channels (`batch-settlement`), for prices with `channel`. Off without it. */
  channels?: ChannelOptions | undefined;
  /**
   * Where no facilitator and no chain says whether a payment was settled: `withhold` (default) sends nothing and asks the
   * payer to send the same payment again; `deliver` sends the response once, and you may lose its price. With `deliver`
   * each payment is verified before it is settled.
   */
  whenUnknown?: "withhold" | "deliver" | undefined;
  /** Reports faults beside a payment that do not affect it. */
  onFault?: (error: unknown, what: string) => void;
}

export interface CashierOptions
  extends
    Omit<CashierDeps, "facilitator" | "networks" | "schemes">,
    Pick<FailoverOptions, "rpcUrls"> {
  /**
   * Who verifies and settles: a URL, a URL with a key, or a client of the protocol's library (with credentials, or in this
   * process). A list, in order of preference, keeps on selling when one of them fails.
   */
  facilitator: FacilitatorEntry | readonly FacilitatorEntry[];
  /** CAIP-2 ids, or complete network descriptions; browsers pay on the first one. */
  networks: readonly (string | PaymentNetwork)[];
  /**
   * The accepted schemes, best first. Default: `exact` over EIP-3009, and `upto` for routes with a maximum.
   */
  schemes?: readonly PaywallScheme[] | undefined;
}

/** For use without a Fastify app; the Fastify plugin creates its cashier with this too. */
export function cashier(given: CashierOptions): Cashier {
  const { facilitator, rpcUrls, networks, schemes, ...options } = given;
  const { store, onFault } = options;
  return new Cashier({
    ...options,
    facilitator: isOneClient(facilitator)
      ? facilitator
      : new FailoverFacilitatorClient({
          facilitators: [facilitator].flat(),
          rpcUrls,
          store,
          onFault,
        }),
    networks: networks.map(networkFacts),
    schemes: schemes ?? [EXACT_EIP3009, UPTO],
  });
}

export function networkFacts(network: string | PaymentNetwork): PaymentNetwork {
  const facts = typeof network === "string" ? findAmong(network, PAYMENT_NETWORKS) : network;
  if (!facts) throw new Error(`the paywall does not know the network ${JSON.stringify(network)}`);
  return facts;
}

const MAX_TIMEOUT_SECONDS = 120;

export class Cashier {
  readonly #resourceServer: ResourceServer;
  readonly #deps: CashierDeps;
  readonly #meter: Meter;
  readonly #issuer: ReceiptIssuer | undefined;
  readonly #again: RepeatAccess | undefined;
  readonly #mpp: MppCharges | undefined;
  readonly #channels: ChannelCharges | undefined;
  /** Claims what was charged to channels. The Fastify plugin starts and closes it. */
  readonly claims: ChannelClaims | undefined;

  constructor(deps: CashierDeps) {
    const { store, receipts, networks, onFault = () => undefined } = deps;
    const settings = deps.channels && channelSettings(deps.channels);
    const schemes = settings ? [channelScheme(settings), ...deps.schemes] : deps.schemes;
    this.#deps = { ...deps, schemes };
    this.#resourceServer = new ResourceServer(this.#deps);
    if (deps.whenUnknown === "deliver" && !this.#resourceServer.failover)
      throw new Error("whenUnknown needs `facilitator` to be a URL or a list");
    this.#meter = new Meter(store ?? new OneProcessStore(), {
      verify: (payment) => this.#verify(payment),
      settle: (payment, amount) => this.#settlePayment(payment, amount),
    });
    this.#issuer = receipts && new ReceiptIssuer(receipts, deps.onFault);
    this.#mpp = deps.mpp && new MppCharges(deps.mpp);
    this.#again = store && new RepeatAccess(store, deps.verifyMessage);
    if (!settings) return;
    const facilitator = new ChannelFacilitator(deps.facilitator);
    const receiver = deps.payTo as Address;
    const payees = networks.map(({ id, usdc }) => ({ network: id, receiver, token: usdc.address }));
    this.claims = new ChannelClaims({ settings, facilitator, payees, onFault });
    this.#channels = new ChannelCharges({
      settings,
      facilitator,
      claims: this.claims,
      settled: async (response, amount, payment) => {
        if (amount !== "0") await this.#remember(payment, response.payer);
        return this.#settled(response, amount, payment);
      },
    });
  }

  /** Reads what the facilitator supports; after a failure the next request tries again. */
  ready(): Promise<void> {
    return this.#resourceServer.ready();
  }

  get #server(): x402ResourceServer {
    return this.#resourceServer.current;
  }

  /** How each facilitator of a list works; undefined for a client of your own. */
  health(): FacilitatorHealth[] | undefined {
    return this.#resourceServer.failover?.health();
  }

  /** The terms of a resource, without the parts that are signed or valid for one request only. */
  async required(
    resource: PaidResource,
    request: PaidRequest,
    error = "Payment required",
  ): Promise<PaymentRequired> {
    await this.ready();
    const accepts = await this.#accepts(resource, request);
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
   * Charges for one request. `beforeSettle` runs once the proof matches the terms and before money moves:
   * work that may fail is done there, so that a failure costs the caller nothing. It gets the kind of the charge
   * that follows. With a maximum nothing is settled here; the caller settles the returned `metered` charge.
   */
  async charge(
    resource: PaidResource,
    request: PaidRequest,
    beforeSettle: (kind: PaymentKind) => Promise<void>,
  ): Promise<Charge> {
    const networks = this.#networkIds(resource);
    const { price, payTo = this.#deps.payTo } = resource;
    const resourceKey = resourceKeyOf({ price, payTo }, request, networks);
    const isAgain = resource.again !== undefined && request.method === "GET";
    const signIn = isAgain ? await this.#again?.signIn(request, resourceKey, networks) : undefined;
    if (signIn?.isAllowed === true) {
      await beforeSettle("again");
      return { kind: "again", headers: {}, payer: signIn.payer, network: signIn.network };
    }
    const required = await this.required(resource, request);
    const refuse = async (
      error?: string,
      accepts = required.accepts,
    ): Promise<PaymentRequiredAnswer> => {
      const explained = error ? { ...required, accepts, error } : required;
      const answer = paymentRequired(await this.#withOffers(resource, request, explained));
      return this.#mpp?.withChallenges(answer, request) ?? answer;
    };
    const proof =
      this.#mpp?.proofIn(request, required) ?? readProof(request.headers, required.accepts);
    if (proof.kind === "none") return refuse(signIn?.reason);
    if (proof.kind === "malformed") return refuse(proof.reason);
    const { payload, version } = proof;
    const terms = this.#match(required, payload);
    if (typeof terms === "string") return refuse(terms);
    const payment: PresentedPayment = {
      resource,
      request,
      resourceKey,
      payload,
      terms,
      required,
      version,
    };
    if (this.#channels && terms.scheme === CHANNEL_SCHEME) {
      const charge = await this.#channels.begin(payment, () => beforeSettle("metered"));
      if (charge.kind !== "notCovered") return charge;
      return refuse(charge.reason, withState(required.accepts, terms, charge));
    }
    if (this.#isMaximum(terms)) return this.#meter.begin(payment, () => beforeSettle("metered"));
    const refusal = await this.#verifyInAdvance(payment);
    if (refusal) return refused(refusal, version);
    await beforeSettle("inAdvance");
    return this.#settlePayment(payment, terms.amount);
  }

  /**
   * Offers and challenges are signed or valid for one request only, so they are added just for the response
   * to an unpaid request.
   */
  async #withOffers(
    resource: PaidResource,
    request: PaidRequest,
    required: PaymentRequired,
  ): Promise<PaymentRequired> {
    const isAgain = resource.again && request.method === "GET";
    const more = {
      ...(await this.#issuer?.offers(required)),
      ...(isAgain && this.#again?.challenge(required)),
    };
    if (Object.keys(more).length === 0) return required;
    return { ...required, extensions: { ...required.extensions, ...more } };
  }

  readonly #networkIds = (resource: PaidResource) =>
    this.#deps.networks.map(({ id }) => id).filter((id) => resource.networks?.includes(id) ?? true);

  /** Whether the payer signs a maximum of which the amount used is charged. */
  readonly #isMaximum = ({ scheme }: PaymentRequirements): boolean =>
    this.#deps.schemes.some(({ name, isMetered: isMaximum }) => isMaximum && name === scheme);

  async #accepts(resource: PaidResource, request: PaidRequest): Promise<PaymentRequirements[]> {
    const ids = this.#networkIds(resource);
    const entries = this.#deps.schemes
      .flatMap((scheme) => {
        const price = priceOf(resource, request, scheme);
        return price === undefined ? [] : ids.map((network) => ({ scheme, network, price }));
      })
      // Clients that take the first offer pay only for what they use.
      .sort(
        (left, right) => Number(right.scheme.isMetered ?? 0) - Number(left.scheme.isMetered ?? 0),
      )
      .filter(({ scheme, network }) => {
        const kind = this.#server.getSupportedKind(2, network, scheme.name);
        // A payer cannot sign a maximum without the address of the account that may charge it.
        if (scheme.announcedExtra)
          return kind && scheme.announcedExtra({ amount: "1" }, kind.extra ?? {}) !== undefined;
        return kind && (scheme.isMetered !== true || facilitatorOf(kind.extra) !== undefined);
      });
    if (entries.length === 0)
      throw new FacilitatorFault(503, "The facilitator supports none of the requested networks.");
    return this.#server.buildPaymentRequirementsFromOptions(
      entries.map(({ scheme, network, price }) => ({
        scheme: scheme.name,
        network,
        payTo: resource.payTo ?? this.#deps.payTo,
        price,
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

  /** The entry of the terms that the proof is for, or the reason why there is none. */
  #match(required: PaymentRequired, payload: PaymentPayload): PaymentRequirements | string {
    const terms = this.#server.findMatchingRequirements(required.accepts, payload);
    if (!terms) return "No matching payment requirements";
    const extensions = this.#server.validateExtensions(required, payload);
    return extensions.valid ? terms : extensions.invalidReason;
  }

  /** Undefined where the payment is valid. */
  #verify({ payload, terms, required }: PresentedPayment): Promise<SettleResponse | undefined> {
    const sent = payloadForFacilitator(payload, required);
    return refusalBy(terms, () => this.#server.verifyPayment(sent, terms, required.extensions));
  }

  /** What is settled in advance is verified only if it may be delivered unpaid. The library skips that for this flow. */
  async #verifyInAdvance(payment: PresentedPayment): Promise<SettleResponse | undefined> {
    if (this.#deps.whenUnknown !== "deliver") return undefined;
    const { payload, terms, required } = payment;
    const sent = payloadForFacilitator(payload, required);
    return refusalBy(terms, () => this.#deps.facilitator.verify(sent, terms));
  }

  /** `amount` is in atomic units: the fixed price, or the amount used of a maximum. */
  async #settlePayment(payment: PresentedPayment, amount: string): Promise<Settled | Refused> {
    const { terms, version, request } = payment;
    const response = await this.#settle(payment, { ...terms, amount });
    if (!response.success) {
      if (await this.#deliversUnknown(payment, response)) {
        const settled = this.#settled(response, amount, payment);
        // A receipt would confirm a payment that may not exist.
        return { ...settled, delivered: async () => settledPayment(response, version) };
      }
      const answer = refused(response, version);
      // An MPP challenge is valid for one credential, so a refusal comes with a new challenge.
      const renewed =
        version === "mpp" && this.#mpp?.withChallenges(paymentRequired(payment.required), request);
      const challenge = renewed ? renewed.headers["www-authenticate"] : undefined;
      if (challenge === undefined) return answer;
      return { ...answer, headers: { ...answer.headers, "www-authenticate": challenge } };
    }
    await this.#remember(payment, response.payer);
    return this.#settled(response, response.amount ?? amount, payment);
  }

  async #deliversUnknown(
    { payload, terms }: PresentedPayment,
    { errorReason }: SettleResponse,
  ): Promise<boolean> {
    const { failover } = this.#resourceServer;
    const isUnknown = errorReason === "settlement_pending";
    if (this.#deps.whenUnknown !== "deliver" || !isUnknown || !failover) return false;
    return failover.claim(payload, terms);
  }

  async #remember(
    { resource, request, resourceKey }: PresentedPayment,
    payer: string | undefined,
  ): Promise<void> {
    if (this.#again && resource.again && payer !== undefined && request.method === "GET")
      await this.#again
        .recordPayment(resourceKey, payer, resource.again)
        .catch((error: unknown) => this.#deps.onFault?.(error, "remembering who has paid"));
  }

  #settled(
    response: SettleResponse,
    amount: string,
    { request, version }: PresentedPayment,
  ): Settled {
    const { payer, transaction, network } = response;
    const receipt = { payer, transaction, network, amount };
    const delivered = async (): Promise<SettledPayment> =>
      settledPayment((await this.#issuer?.receipted(response, request.url)) ?? response, version);
    return { kind: "settled", ...settledPayment(response, version), receipt, delivered };
  }

  async #settle(
    { payload, required, terms: signed }: PresentedPayment,
    terms: PaymentRequirements,
  ): Promise<SettleResponse> {
    try {
      return await this.#server.settlePayment(
        payloadForFacilitator(payload, required),
        terms,
        required.extensions,
        undefined,
        undefined,
        this.#isMaximum(signed) ? "after-handler" : "before-handler",
      );
    } catch (error) {
      const refusal = refusalIn(error);
      if (refusal) return refusal;
      throw asFault(error, 502, UNKNOWN_OUTCOME);
    }
  }
}

async function refusalBy(
  terms: PaymentRequirements,
  verify: () => Promise<VerifyResponse>,
): Promise<SettleResponse | undefined> {
  try {
    const { isValid, invalidReason, invalidMessage, payer } = await verify();
    if (isValid) return undefined;
    const reason = invalidReason ?? "invalid_payload";
    return notSettled(terms, reason, invalidMessage ?? reason, payer);
  } catch (error) {
    throw asFault(error, 503, "The facilitator cannot be reached to verify the payment.");
  }
}

/** The terms of the refused payment, with the state that corrects the payer's record. */
const withState = (
  accepts: PaymentRequirements[],
  terms: PaymentRequirements,
  { state }: NotCovered,
): PaymentRequirements[] =>
  accepts.map((entry) =>
    entry === terms && state ? { ...entry, extra: { ...entry.extra, ...state } } : entry,
  );
