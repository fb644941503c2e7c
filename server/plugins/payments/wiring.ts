import fp from "fastify-plugin";
import { readLimits } from "../guardrails/limits.ts";
import { findPayment } from "./store.ts";
import {
  isReservationGone,
  markUnknownInGroups,
  staleReservations,
  voidUnsigned,
} from "../guardrails/reservations.ts";
import { acceptInGroups } from "../settlement/accept-batch.ts";
import { Payments } from "./pay.ts";
import { Spend } from "./spend.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** The shared path of spend, x402-fetch and MCP. */
    payments: Payments;
    spend: Spend;
    /** The CAIP-2 id of a chain in the ledger, also of one that is configured no more. */
    networkOf(chainId: number): string;
    /** Tests stop the process at a named point; nobody else sets it. */
    paymentFaults: { at?: (point: "reserved" | "signed") => Promise<void> };
  }
}

export default fp(
  async (app) => {
    const { pool } = app;
    const { settlement, chainReads } = app;
    const networkOf = (chainId: number): string =>
      app.chains.byChainId(chainId)?.network.id ?? `eip155:${chainId}`;
    const faults: { at?: (point: "reserved" | "signed") => Promise<void> } = {};
    const payments = new Payments({
      settlement,
      balances: chainReads,
      guardrails: app.guardrails,
      sign: (agentId, authorization) => app.custody.signAuthorization(agentId, authorization),
      accept: acceptInGroups((requests) => settlement.acceptAll(pool, requests), isReservationGone),
      isReservationGone,
      store: {
        markUnknown: markUnknownInGroups(pool),
        voidUnsigned: (args) => voidUnsigned(pool, args),
        staleReservations: (args) => staleReservations(pool, args),
      },
      fault: async (point) => faults.at?.(point),
      log: app.log,
    });
    app.decorate("networkOf", networkOf);
    app.decorate("paymentFaults", faults);
    app.decorate("payments", payments);
    app.decorate(
      "spend",
      new Spend({
        payments,
        idempotency: app.idempotency,
        findPayment: (key) => findPayment(pool, key),
        remainingOf: async (agentId) =>
          (await readLimits(pool, [agentId])).get(agentId)?.remainingAtomic ?? 0n,
        networkOf,
        settleWaitMs: app.config.settleWaitMs,
      }),
    );
  },
  {
    name: "payments",
  },
);
