import fp from "fastify-plugin";
import routes from "./routes.ts";
import tryRoute from "./try-route.ts";
import { findX402Payment, recordDelivery } from "./store.ts";
import { readLimits } from "../guardrails/limits.ts";
import { markUnknown } from "../guardrails/reservations.ts";
import { X402Client } from "./client.ts";
import type { FaultPoint } from "./types.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Fetches what may cost money, and asks what it would cost. */
    x402Client: X402Client;
    /** Tests stop the process at a named point; nobody else sets it. */
    x402Faults: { at?: (point: FaultPoint) => Promise<void> };
  }
}

export default fp(
  async (app) => {
    const { pool, prisma, settlement } = app;
    const faults: { at?: (point: FaultPoint) => Promise<void> } = {};
    app.decorate("x402Faults", faults);
    app.decorate(
      "x402Client",
      new X402Client({
        ask: (request) => app.outbound.request(request),
        networks: app.config.networks,
        payments: app.payments,
        idempotency: app.idempotency,
        settlement,
        signCancel: (agentId, cancellation) => app.custody.signCancel(agentId, cancellation),
        ledger: {
          recordDelivery: (key, seen) => recordDelivery(prisma, key, seen),
          markUnknown: (key) => markUnknown(pool, key),
          find: (key) => findX402Payment(prisma, key),
          remaining: async (agentId) =>
            (await readLimits(pool, [agentId])).get(agentId)?.remainingAtomic ?? 0n,
        },
        listings: app.listingBook,
        settleWaitMs: app.config.settleWaitMs,
        fault: async (point) => faults.at?.(point),
        log: app.log,
      }),
    );
    await app.register(routes);
    await app.register(tryRoute);
  },
  {
    name: "x402-client",
  },
);
