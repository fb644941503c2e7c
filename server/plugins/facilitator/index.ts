/** The x402 facilitator: its parts, metrics and routes. */
import { setTimeout as sleep } from "node:timers/promises";
import fp from "fastify-plugin";
import stats, { tallyOutcome, type Tally } from "./stats.ts";
import { Counter, Histogram, type Registry } from "prom-client";
import { PayerApprovalSubmitter, PayerApprovalReads } from "./payer-approval.ts";
import { ChainPaymentReads } from "./rehearsal.ts";
import { successClaims } from "./store.ts";
import { acceptInGroups } from "../settlement/accept.ts";
import { PaymentChecker, type PaymentReads } from "./check.ts";
import {
  Facilitator,
  type ExtensionListener,
  type Observer,
  type RefusalListener,
} from "./facilitator.ts";
import { Settler } from "./settle.ts";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
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
import { ApiError } from "../../errors.ts";

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

const BURST_SHARE_OF_BLOCK = 5;

export default fp(
  async (app) => {
    const listeners: ExtensionListener[] = [];
    app.decorate("onFacilitated", (listener) => void listeners.push(listener));
    const refusalListeners: RefusalListener[] = [];
    app.decorate("onRefusedPayment", (listener) => void refusalListeners.push(listener));
    await app.register(stats);
    const { networks, publicUrl, settleWaitMs } = app.config;
    const relayers = app.relayers.map(({ address }) => address);
    const checker = new PaymentChecker({
      networks,
      relayers,
      reads: readsOf(
        app.chains.all.map(
          (chain) =>
            [
              chain.network.chainId,
              {
                payments: new ChainPaymentReads(chain.rpc, app.config.gasCapPerItem),
                payerApproval: new PayerApprovalReads(
                  chain.rpc,
                  chain.network,
                  app.config.gasCapPerItem,
                ),
              },
            ] as const,
        ),
      ),
      mayDeploy: ({ factory }) => app.config.erc6492Factories.includes(factory.toLowerCase()),
      minPaymentAtomic: app.config.minPaymentAtomic,
      nowSeconds: () => BigInt(Math.floor(Date.now() / 1000)),
    });
    const settler = new Settler({
      checker,
      settlement: app.settlement,
      store: successClaims(app.pool),
      accept: acceptInGroups({
        // One statement is its own transaction. Requests that it does not insert are accepted after it, one by
        // one.
        acceptAll: (requests) => app.settlement.acceptAll(app.pool, requests),
        find: (key) => app.settlement.findByAuthorization(key),
      }),
      admit: (payer) => app.countFor("payer", payer),
      payerApproval: new PayerApprovalSubmitter({
        chainOf: (chainId) => app.chains.byChainId(chainId),
        sleep: (ms) => sleep(ms),
        patienceMs: app.config.timings.approvalWaitMs,
      }),
      settleWaitMs,
      maxHoldMs: Math.min(...networks.map(({ blockTimeMs }) => blockTimeMs)) / BURST_SHARE_OF_BLOCK,
      onFault: (err) =>
        app.log.error({ err }, "settlement accepted, but its outcome could not be returned"),
      sleep: (ms) => sleep(ms),
    });
    app.decorate(
      "facilitator",
      new Facilitator({
        networks,
        publicUrl,
        relayers,
        checker,
        settler,
        find: (id) => app.settlement.find(id),
        listeners,
        refusalListeners,
        observe: observer(app.metrics, app.facilitatorTally),
        onFault: (err, what) => app.log.warn({ err }, `${what} could not be answered`),
      }),
    );
    await app.register(paymentRoutes);
    await app.register(serviceRoutes);
  },
  {
    name: "facilitator",
  },
);

/** Combines the readers of all chains behind the checker's interface. */
function readsOf(
  entries: (readonly [
    number,
    { payments: ChainPaymentReads; payerApproval: PayerApprovalReads },
  ])[],
): PaymentReads {
  const byChain = new Map(entries);
  const of = (chainId: number) => {
    const reads = byChain.get(chainId);
    if (!reads) throw new Error(`chain ${chainId} is not configured`);
    return reads;
  };
  const on = (chainId: number): ChainPaymentReads => of(chainId).payments;
  return {
    rehearse: (chainId, authorization) => on(chainId).rehearse(authorization),
    rehearseAlone: (chainId, authorization) => on(chainId).rehearseAlone(authorization),
    diagnose: (chainId, authorization) => on(chainId).diagnose(authorization),
    rehearseAfter: (chainId, payerApproval, authorization) =>
      of(chainId).payerApproval.rehearse(payerApproval, authorization),
    hasCode: (chainId, address) => on(chainId).hasCode(address),
    acceptsSignature: (chainId, wallet, digest, signature) =>
      on(chainId).acceptsSignature(wallet, digest, signature),
  };
}

function observer(register: Registry, tally: Tally): Observer {
  const total = new Counter({
    name: "purser_x402_requests_total",
    help: "Verify and settle requests by outcome (the protocol's reason code on refusal)",
    labelNames: ["operation", "outcome"],
    registers: [register],
  });
  const seconds = new Histogram({
    name: "purser_x402_seconds",
    help: "Time to decide a verify or finish a settle",
    labelNames: ["operation"],
    buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30],
    registers: [register],
  });
  return (operation, outcome, elapsed) => {
    total.inc({ operation, outcome });
    seconds.observe({ operation }, elapsed);
    tally.add({ operation, outcome: tallyOutcome(outcome) });
  };
}

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

const paymentRoutes: FastifyPluginAsyncTypebox = async (app) => {
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
    (request) => app.facilitator.verify(request.body),
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
        isGone: () => reply.raw.destroyed,
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
      const state = await app.facilitator.payment(request.params.id);
      if (!state)
        throw new ApiError("not_found", { detail: "There is no settlement with this id." });
      reply.header("cache-control", "no-store");
      return state;
    },
  );
};

/** Routes that describe this facilitator and its statistics. */
export const serviceRoutes: FastifyPluginAsyncTypebox = async (app) => {
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
