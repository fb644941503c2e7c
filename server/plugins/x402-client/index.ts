/** x402 client: fetches URLs that may cost money, on behalf of agents. */
import fp from "fastify-plugin";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";
import { traced } from "../../infra/tracing.ts";
import { notePaidSite } from "../custody/store.ts";
import { hasSite } from "../agents/payees-store.ts";
import { undeliveredBytes } from "../payments/joining-store.ts";
import type { PaymentKey } from "../payments/payment-plan.ts";
import { X402Client } from "./client.ts";
import type { DeliveryRecord, FetchFault } from "./request.ts";
import { budgetFor, FetchBudget } from "./budget.ts";
import { beginFetch, endFetch, forgetFetches, keptLastDay } from "./fetches-store.ts";
import { forgetCached, keepCached, readOrClaim, readCached, releaseClaim } from "./cache-store.ts";
import routes from "./routes.ts";
import siteLookup from "./site-lookup.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Fetches URLs that may cost money, and reads their prices. */
    x402Client: X402Client;
    /** Limits how much memory of this process fetches may use. */
    fetchBudget: FetchBudget;
    /** Set only by tests, which stop the process at a named point. */
    x402Faults: { at?: (point: FetchFault) => Promise<void> };
  }
}

export default fp(
  async (app) => {
    const faults: { at?: (point: FetchFault) => Promise<void> } = {};
    app.decorate("x402Faults", faults);
    const { fetchMaxBytes, timings } = app.config;
    app.decorate("fetchBudget", new FetchBudget(budgetFor(fetchMaxBytes, timings.fetchRoomMs)));
    app.decorate(
      "x402Client",
      new X402Client({
        send: (request) =>
          traced("x402.ask", { "http.request.method": request.method ?? "GET" }, () =>
            app.outbound.request({ maxBytes: app.config.fetchMaxBytes, ...request }),
          ),
        maxBytes: app.config.fetchMaxBytes,
        networks: app.config.networks,
        flow: app.payments,
        agentReserve: app.agentReserve,
        settlement: app.settlement,
        signCancel: (agentId, cancellation) => app.custody.signCancel(agentId, cancellation),
        signIn: ({ url, ...args }) => app.custody.signIn({ ...args, url: url.href }),
        notePaidSite: (...args) => notePaidSite(app.prisma, ...args),
        hasSite: (agentId, site) => hasSite(app.prisma, agentId, site),
        recordDelivery: (key, seen) => recordDelivery(app.prisma, key, seen),
        recordEvidence: async ({ agentId, paymentId: id }, evidence) => {
          const data = { evidence: evidence as object };
          await app.prisma.payment.updateMany({ where: { agentId, id }, data });
        },
        remainingOf: (agentId) => app.remainingOf(agentId),
        networkOf: (chainId) => app.networkOf(chainId),
        listings: app.listingRegistry,
        ledger: {
          begin: (start) => beginFetch(app.prisma, start),
          end: (key, end) => endFetch(app.prisma, key, end),
          kept: (agentId) => keptLastDay(app.prisma, agentId),
          undelivered: (agentId) => undeliveredBytes(app.pool, agentId),
        },
        cache: {
          look: (key, ages) => readOrClaim(app.pool, key, ages),
          read: (found) => readCached(app.prisma, found),
          keep: (key, bought) => keepCached(app.prisma, key, bought),
          release: (key) => releaseClaim(app.prisma, key),
        },
        settleWaitMs: app.config.settleWaitMs,
        fault: async (point) => faults.at?.(point),
        log: app.log,
      }),
    );
    app.jobs.addTask(
      "forget-fetches",
      async () => {
        const fetches = await forgetFetches(app.prisma);
        const cached = await forgetCached(app.prisma);
        app.log.info({ fetches, cached }, "old rows deleted");
      },
      { cron: "17 * * * *", atStart: true },
    );
    await app.register(routes);
    await app.register(siteLookup);
  },
  {
    name: "x402-client",
  },
);

/** Records what the target did; what happened to the payment is recorded separately. */
export async function recordDelivery(db: Db, key: PaymentKey, seen: DeliveryRecord): Promise<void> {
  const { upstreamStatus, delivered } = seen;
  await db.payment.updateMany({
    where: { agentId: key.agentId, id: key.paymentId },
    data: { upstreamStatus, delivered, updatedAt: await databaseNow(db) },
  });
}
