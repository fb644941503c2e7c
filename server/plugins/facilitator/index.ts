import { setTimeout as sleep } from "node:timers/promises";
import fp from "fastify-plugin";
import stats, { tallyOutcome, type Tally } from "./stats.ts";
import { paymentRoutes, serviceRoutes } from "./routes.ts";
import { Counter, Histogram, type Registry } from "prom-client";
import { privateKeyToAddress } from "viem/accounts";
import { ChainPaymentReads } from "./rehearsal.ts";
import { inTransaction } from "../../infra/db/pool.ts";
import { settlementTelling } from "./store.ts";
import { acceptTogether } from "../settlement/accept.ts";
import { PaymentChecker, type PaymentReads } from "./check.ts";
import { Facilitator, type Observer } from "./facilitator.ts";
import { PayerLimit } from "./admission.ts";
import { Settler } from "./settle.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Verifies and settles x402 payments, for paid APIs and for our own paywall. */
    facilitator: Facilitator;
    /** Hears the body of every settle that succeeded. A listener returns at once and never throws. */
    onFacilitated(listener: (body: unknown) => void): void;
  }
}

/** Far above what a busy payer needs; the daily gas ceiling bounds the rest. */
const SETTLES_PER_PAYER_AND_MINUTE = 30_000;
const BURST_SHARE_OF_BLOCK = 5;

export default fp(
  async (app) => {
    const settledListeners: ((body: unknown) => void)[] = [];
    app.decorate("onFacilitated", (listener) => void settledListeners.push(listener));
    await app.register(stats);
    const { networks, publicUrl, settleWaitMs, relayerPrivateKeys } = app.config;
    const checker = new PaymentChecker({
      networks,
      reads: readsOf(
        app.chains.all.map(
          (chain) =>
            [
              chain.network.chainId,
              new ChainPaymentReads(chain.rpc, app.config.gasCapPerItem),
            ] as const,
        ),
      ),
      nowSeconds: () => BigInt(Math.floor(Date.now() / 1000)),
    });
    const limit = new PayerLimit(SETTLES_PER_PAYER_AND_MINUTE);
    const settler = new Settler({
      checker,
      settlement: app.settlement,
      store: settlementTelling(app.pool),
      accept: acceptTogether((requests) =>
        inTransaction(app.pool, (sql) => app.settlement.acceptAll(sql, requests)),
      ),
      admit: (payer) => limit.admit(payer),
      mayDeploy: ({ factory }) => app.config.erc6492Factories.includes(factory.toLowerCase()),
      settleWaitMs,
      maxHoldMs: Math.min(...networks.map(({ blockTimeMs }) => blockTimeMs)) / BURST_SHARE_OF_BLOCK,
      onSettled: (_payment, body) => {
        for (const tell of settledListeners) tell(body);
      },
      onFault: (err) =>
        app.log.error({ err }, "settlement accepted, its outcome could not be told"),
      sleep: (ms) => sleep(ms),
    });
    app.decorate(
      "facilitator",
      new Facilitator({
        networks,
        publicUrl,
        relayers: relayerPrivateKeys.map((key) => privateKeyToAddress(key)),
        checker,
        settler,
        find: (id) => app.settlement.find(id),
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

/** One reader per chain behind the checker's one interface. */
function readsOf(entries: (readonly [number, ChainPaymentReads])[]): PaymentReads {
  const byChain = new Map(entries);
  const on = (chainId: number): ChainPaymentReads => {
    const reads = byChain.get(chainId);
    if (!reads) throw new Error(`chain ${chainId} is not configured`);
    return reads;
  };
  return {
    rehearse: (chainId, authorization) => on(chainId).rehearse(authorization),
    rehearseAlone: (chainId, authorization) => on(chainId).rehearseAlone(authorization),
    diagnose: (chainId, authorization) => on(chainId).diagnose(authorization),
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
    tally.add(operation, tallyOutcome(outcome));
  };
}
