/** The x402 facilitator: verifies and settles payments for paid APIs, over HTTP and for our own paywall. */
import type { FacilitatorClient } from "@x402/core/server";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyBaseLogger } from "fastify";
import fp from "fastify-plugin";
import { getAddress, type Address } from "viem";
import {
  chargesFees,
  formatPerMille,
  MOST_PER_MILLE,
  PAY_FEES_PATH,
  type FeeTerms,
} from "../../core/fees.ts";
import { USDC_DECIMALS } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { ApiError } from "../../errors.ts";
import { IdParams } from "../../schemas/common.ts";
import {
  PaymentBody,
  SettleAnswer,
  SettlementState,
  VerifyAnswer,
  FacilitatorService,
  Supported,
  FacilitatorStats,
} from "../../schemas/facilitator.ts";
import { ANNOUNCED_SCHEMES, SCHEMES } from "../../schemes/index.ts";
import type { Payment } from "../../schemes/scheme.ts";
import type { Settlement } from "../settlement/types.ts";
import { ChainPaymentReads } from "./chain-reads.ts";
import type { PayeeFees } from "./payee-fees.ts";
import { cellRoutes, OtherCells } from "./other-cells.ts";
import { PayerApprovals } from "./payer-approval.ts";
import { Settler, type OwnScheme, type PresentedPayment, type SettleOptions } from "./settle.ts";
import stats, { type Outcomes, type RefusalListener } from "./stats.ts";
import { settleStore } from "./store.ts";
import { PaymentChecker, verify, type PaymentResult } from "./verify.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Verifies and settles x402 payments, for paid APIs and for our own paywall. */
    facilitator: Facilitator;
    /**
     * The listener receives the body and the payer of every successful settle. Its results, by extension, are
     * returned to the caller if they come in time; its errors are logged. An extension neither delays nor fails
     * a payment.
     */
    onFacilitated(listener: ExtensionListener): void;
    /** The listener receives each verify and settle that was refused without creating a settlement. */
    onRefusedPayment(listener: RefusalListener): void;
  }
}

/** The results of a payment's extensions, by name. */
type ExtensionResponses = Record<string, unknown>;
type ExtensionListener = (body: unknown, payer: string) => Promise<ExtensionResponses | undefined>;

export default fp(
  async (app) => {
    await app.register(stats);
    const { config, chains, settlement, log } = app;
    const { networks } = config;
    const relayers = app.relayers.map(({ address }) => address);
    const outcomes = app.facilitatorOutcomes;
    const reads = new Map(
      chains.all.map(({ rpc, network }) => [
        network.chainId,
        new ChainPaymentReads(rpc, network, config.gasCapPerItem),
      ]),
    );
    const checker = new PaymentChecker({
      networks,
      relayers,
      reads,
      factories: config.erc6492Factories,
      minPaymentAtomic: config.minPaymentAtomic,
      screening: app.screening,
      nowSeconds: () => BigInt(Math.floor(Date.now() / 1000)),
    });
    const ownSchemes: OwnScheme[] = [];
    const charging: { fees?: PayeeFees } = {};
    const settler = new Settler({
      checker,
      ownSchemes,
      charging,
      settlement,
      store: settleStore(app.pool, settlement),
      payerApprovals: new PayerApprovals({
        checker,
        chains,
        patienceMs: config.timings.approvalWaitMs,
      }),
      countFor: (limit, payer) => app.countFor(limit, payer),
      mayHaveTwin: (payer) => app.cells?.mayHaveTwin(payer) === true,
      waitMs: config.settleWaitMs,
      outcomes,
      log,
    });
    const otherCells =
      app.cells &&
      new OtherCells({
        cells: app.cells,
        checker,
        ownSchemes,
        waitMs: config.settleWaitMs,
        outcomes,
        countFor: (limit, who) => app.countFor(limit, who),
        log,
      });
    const facilitator = new Facilitator({
      networks,
      otherCells,
      publicUrl: config.publicUrl,
      relayers,
      checker,
      reads,
      ownSchemes,
      charging,
      feeTerms: config.fees,
      settler,
      settlement,
      outcomes,
      log,
    });
    app.decorate("facilitator", facilitator);
    app.decorate("onFacilitated", (listener) => void facilitator.listeners.push(listener));
    app.decorate("onRefusedPayment", (listener) => void outcomes.refusalListeners.push(listener));
    await app.register(paymentRoutes, { otherCells });
    await app.register(serviceRoutes);
    if (otherCells) await app.register(cellRoutes);
  },
  {
    name: "facilitator",
    dependencies: ["cells"],
  },
);

interface FacilitatorDeps {
  networks: readonly NetworkFacts[];
  publicUrl: string;
  relayers: readonly Address[];
  checker: PaymentChecker;
  /** By chain id. */
  reads: ReadonlyMap<number, ChainPaymentReads>;
  /** Undefined where this is the only cell. */
  otherCells: OtherCells | undefined;
  ownSchemes: OwnScheme[];
  charging: { fees?: PayeeFees };
  feeTerms: FeeTerms;
  settler: Settler;
  settlement: Pick<Settlement, "find">;
  outcomes: Outcomes;
  log: Pick<FastifyBaseLogger, "warn">;
}

/** A seller waits for its payment, not for extensions. */
const EXTENSIONS_WAIT_MS = 1_000;

/** The facilitator for the rest of the server. */
class Facilitator {
  readonly listeners: ExtensionListener[] = [];
  readonly #deps: FacilitatorDeps;

  constructor(deps: FacilitatorDeps) {
    this.#deps = deps;
  }

  /** A module that serves another scheme, whose payloads are not all payments. */
  addScheme(scheme: OwnScheme): void {
    this.#deps.ownSchemes.push(scheme);
  }

  /** The module that bills payees. */
  chargeFees(fees: PayeeFees): void {
    this.#deps.charging.fees = fees;
  }

  get fees(): PayeeFees | undefined {
    return this.#deps.charging.fees;
  }

  async verify(
    body: unknown,
    options: Pick<SettleOptions, "isBilled"> = {},
  ): Promise<VerifyAnswer> {
    const elsewhere = await this.#deps.otherCells?.verify(body, options);
    return elsewhere ?? this.verifyHere(body, options);
  }

  verifyHere(
    body: unknown,
    { isBilled, isForwarded }: Pick<SettleOptions, "isBilled" | "isForwarded">,
  ): Promise<VerifyAnswer> {
    const { checker, ownSchemes } = this.#deps;
    const own = ownSchemes.find((scheme) => scheme.handles(body));
    const fees = isBilled === true ? this.fees : undefined;
    return verify(body, { ...this.#deps, checker: own ?? checker, fees, isForwarded });
  }

  /** The full check result for callers in this process, with the signature as it would be relayed. */
  check(body: unknown): Promise<PaymentResult> {
    return this.#deps.checker.check(body);
  }

  /** For modules that read their payments themselves. */
  checkPayment(payment: Payment): Promise<PaymentResult> {
    return this.#deps.checker.checkPayment(payment);
  }

  settlePayment(presented: PresentedPayment): Promise<SettleAnswer> {
    return this.#deps.settler.settlePayment(presented);
  }

  /** What the chain says about payers and their signatures. */
  readsOf({ chainId }: NetworkFacts): ChainPaymentReads {
    const reads = this.#deps.reads.get(chainId);
    if (!reads) throw new Error(`chain ${chainId} is not configured`);
    return reads;
  }

  async settle(body: unknown, options: SettleOptions = {}): Promise<SettleAnswer> {
    const elsewhere = await this.#deps.otherCells?.settle(body, options);
    return elsewhere ?? this.settleHere(body, options);
  }

  settleHere(body: unknown, options: SettleOptions): Promise<SettleAnswer> {
    return this.#deps.settler.settle(body, options);
  }

  /** The same with the results of the payment's extensions: the value of EXTENSION-RESPONSES, if any. */
  async settleWithExtensions(
    body: unknown,
    options?: SettleOptions,
  ): Promise<{ answer: SettleAnswer; extensions: string | undefined }> {
    const answer = await this.settle(body, options);
    const { success, payer } = answer;
    const isPaid = success && payer !== undefined;
    return { answer, extensions: isPaid ? await this.#extensions(body, payer) : undefined };
  }

  async #extensions(body: unknown, payer: string): Promise<string | undefined> {
    const { log } = this.#deps;
    const pending = this.listeners.map((listen) =>
      listen(body, payer).catch((err: unknown) => {
        log.warn({ err }, "an extension could not be answered");
        return undefined;
      }),
    );
    // A cleared timer instead of an AbortSignal, which would create two unused errors for each payment.
    let late: NodeJS.Timeout | undefined;
    const answers = await Promise.race([
      Promise.all(pending),
      new Promise<[]>((resolve) => {
        late = setTimeout(resolve, EXTENSIONS_WAIT_MS, []).unref();
      }),
    ]);
    clearTimeout(late);
    const responses: ExtensionResponses = Object.assign({}, ...answers);
    return Object.keys(responses).length > 0
      ? Buffer.from(JSON.stringify(responses)).toString("base64")
      : undefined;
  }

  /** State and hash only: the chain shows who paid whom, and an agent's private data is not returned. */
  async payment(id: string): Promise<SettlementState | undefined> {
    const row = await this.#deps.settlement.find(id);
    if (!row || (row.kind !== "facilitated" && !(row.kind === "x402" && row.relay)))
      return undefined;
    return {
      id: row.id,
      status: row.status,
      network: `eip155:${row.authorization.chainId}`,
      txHash: row.txHash,
      final: row.isFinal,
      errorReason: row.errorReason,
      createdAt: row.createdAt.toISOString(),
      settledAt: row.settledAt?.toISOString() ?? null,
    };
  }

  service(): FacilitatorService {
    const { networks, publicUrl } = this.#deps;
    const assets = networks.map(({ id, usdc }) => ({
      network: id,
      asset: getAddress(usdc.address),
      symbol: "USDC",
      decimals: USDC_DECIMALS,
      name: usdc.name,
      version: usdc.version,
    }));
    return {
      facilitator: `${publicUrl}/api/x402`,
      supportedNetworks: networks.map(({ id }) => id),
      // Two networks may have their token at the same address, as both of Arc's networks do.
      supportedAssets: [...new Set(assets.map(({ asset }) => asset))],
      assets,
      version: "1.0",
    };
  }

  supported(): Supported {
    const { networks, relayers, feeTerms, publicUrl } = this.#deps;
    const kinds = (x402Version: 1 | 2, network: string) =>
      ANNOUNCED_SCHEMES.filter(({ versions }) => versions.includes(x402Version)).map((scheme) => {
        const extra = scheme.supportedExtra?.(relayers);
        return { x402Version, scheme: scheme.name, network, ...(extra && { extra }) };
      });
    const ownKinds = (network: NetworkFacts) =>
      this.#deps.ownSchemes.flatMap((scheme) => {
        const extra = scheme.announced(network);
        const kind = { x402Version: 2, scheme: scheme.name, network: network.id };
        return extra ? [{ ...kind, ...(Object.keys(extra).length > 0 && { extra }) }] : [];
      });
    return {
      kinds: networks.flatMap((network) => [
        ...kinds(2, network.id),
        ...ownKinds(network),
        ...(network.v1Name === undefined ? [] : kinds(1, network.v1Name)),
      ]),
      extensions: ["bazaar", ...extensionsOn(networks)],
      signers: { "eip155:*": [...relayers] },
      ...(chargesFees(feeTerms) && { fees: presentFees(feeTerms, publicUrl) }),
    };
  }

  /** For our own paywall: the same checks and engine without HTTP. */
  inProcessClient(): FacilitatorClient {
    const body = (paymentPayload: { x402Version: number }, paymentRequirements: unknown) => ({
      x402Version: paymentPayload.x402Version,
      paymentPayload,
      paymentRequirements,
    });
    return {
      verify: (payload, requirements) => this.verify(body(payload, requirements)),
      settle: async (payload, requirements) => {
        const { answer } = await this.settleWithExtensions(body(payload, requirements));
        return { ...answer, network: answer.network as `${string}:${string}` };
      },
      getSupported: async () => {
        const { kinds, extensions, signers } = this.supported();
        return {
          extensions,
          signers,
          kinds: kinds.map((kind) => ({ ...kind, network: kind.network as `${string}:${string}` })),
        };
      },
    };
  }
}

/** In atomic units, as everything in the protocol's objects. */
const presentFees = (terms: FeeTerms, publicUrl: string): NonNullable<Supported["fees"]> => ({
  billedTo: "payTo",
  perSettlement: terms.perSettlementAtomic.toString(),
  perMille: formatPerMille(terms.partsPerMillion),
  mostPerMille: MOST_PER_MILLE.toString(),
  credit: terms.creditAtomic.toString(),
  pay: `${publicUrl}${PAY_FEES_PATH}`,
});

/** The extension keys that our schemes support on any of these networks. */
const extensionsOn = (networks: readonly NetworkFacts[]): Set<string> =>
  new Set(
    networks.flatMap((network) =>
      SCHEMES.flatMap((scheme) => scheme.supportedExtensions?.(network) ?? []),
    ),
  );

/** The body's schema is only documentation: any JSON gets a response of the protocol. */
const acceptAll = () => () => true;
const ANSWER_HEADERS = {
  "EXTENSION-RESPONSES": {
    statuses: [200],
    description:
      "Base64 JSON by extension: the result of a Bazaar announcement, with the reason if it was rejected",
  },
};
const IDEMPOTENCY_KEY = /^[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?$/;

const paymentRoutes: FastifyPluginAsyncTypebox<{ otherCells: OtherCells | undefined }> = async (
  app,
  { otherCells },
) => {
  const tags = ["facilitator"];

  app.post(
    "/api/x402/verify",
    {
      config: { auth: "facilitator", limit: "verify" },
      // There may be thousands per second and nothing moves: they are counted in the metrics, not logged.
      logLevel: "warn",
      validatorCompiler: acceptAll,
      schema: {
        tags,
        operationId: "verifyPayment",
        summary: "Check a payment; every outcome of the protocol has status 200",
        body: PaymentBody,
        response: { 200: VerifyAnswer },
      },
    },
    (request) => app.facilitator.verify(request.body, { isBilled: true }),
  );

  app.post(
    "/api/x402/settle",
    {
      config: {
        auth: "facilitator",
        limit: "settle",
        idempotencyKey: true,
        answerHeaders: ANSWER_HEADERS,
      },
      validatorCompiler: acceptAll,
      schema: {
        tags,
        operationId: "settlePayment",
        summary: "Settle a payment exactly once; every outcome of the protocol has status 200",
        description:
          "A retry with the same `Idempotency-Key` header and body gets the first response; any other request gets `duplicate_settlement`. Nothing in the payload proves who is calling.",
        body: PaymentBody,
        response: { 200: SettleAnswer },
      },
    },
    async (request, reply) => {
      const header = request.headers["idempotency-key"];
      const idempotencyKey = Array.isArray(header) ? header.join(",") : header;
      if (idempotencyKey !== undefined && !IDEMPOTENCY_KEY.test(idempotencyKey))
        throw new ApiError("idempotency_key_invalid");
      const { answer, extensions } = await app.facilitator.settleWithExtensions(request.body, {
        idempotencyKey,
        credential: request.headers.authorization,
        merchant: request.caller?.kind === "merchant" ? request.caller.id : undefined,
        isBilled: true,
        isGone: () => reply.raw.destroyed,
        onGone: (listener) => void reply.raw.once("close", listener),
      });
      if (extensions !== undefined) reply.header("extension-responses", extensions);
      return answer;
    },
  );

  app.get(
    "/api/x402/payments/:id",
    {
      config: { auth: "public" },
      schema: {
        tags,
        operationId: "getSettlement",
        summary: "State and transaction hash of a settlement",
        params: IdParams,
        response: { 200: SettlementState },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const state =
        (await app.facilitator.payment(id)) ?? (await otherCells?.payment(id, request.ip));
      if (!state)
        throw new ApiError("not_found", { detail: "There is no settlement with this id." });
      reply.header("cache-control", "no-store");
      return state;
    },
  );
};

/** Routes that describe this facilitator and its statistics. */
const serviceRoutes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "public" } as const;
  const tags = ["facilitator"];

  app.get(
    "/api/x402",
    {
      config,
      schema: {
        tags,
        operationId: "getFacilitator",
        summary: "The networks and assets that this facilitator settles",
        response: { 200: FacilitatorService },
      },
    },
    async () => app.facilitator.service(),
  );

  app.get(
    "/api/x402/supported",
    {
      config,
      schema: {
        tags,
        operationId: "getSupportedKinds",
        summary: "The protocol's supported kinds; x402 middleware reads this at start",
        response: { 200: Supported },
      },
    },
    async () => app.facilitator.supported(),
  );

  app.get(
    "/api/x402/stats",
    {
      config: { auth: "public" },
      schema: {
        tags: ["facilitator"],
        operationId: "getFacilitatorStats",
        summary: "Statistics of this facilitator",
        response: { 200: FacilitatorStats },
      },
    },
    async (_request, reply) => {
      reply.header("cache-control", "no-store");
      return app.facilitatorStats();
    },
  );
};
