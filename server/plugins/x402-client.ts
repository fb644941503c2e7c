import fp from "fastify-plugin";
import { findX402Payment, recordDelivery } from "../adapters/stores/deliveries.ts";
import { readLimits } from "../adapters/stores/limits.ts";
import { markUnknown } from "../adapters/stores/reservations.ts";
import { X402Client } from "../domain/x402-client/client.ts";
import type { FaultPoint } from "../domain/x402-client/types.ts";

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
    const { pool, settlement } = app;
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
          recordDelivery: (key, seen) => recordDelivery(pool, key, seen),
          markUnknown: (key) => markUnknown(pool, key),
          find: (key) => findX402Payment(pool, key),
          remaining: async (agentId) =>
            (await readLimits(pool, [agentId])).get(agentId)?.remainingAtomic ?? 0n,
        },
        // Looked up when needed: the marketplace itself asks this client for probes.
        listings: () => app.listings,
        settleWaitMs: app.config.settleWaitMs,
        fault: async (point) => faults.at?.(point),
        log: app.log,
      }),
    );
  },
  {
    name: "x402-client",
    dependencies: ["db", "outbound", "custody", "payments", "idempotency", "settlement"],
  },
);
