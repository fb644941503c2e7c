/** x402 client: fetches URLs that may cost money, on behalf of agents. */
import { setTimeout as sleep } from "node:timers/promises";
import fp from "fastify-plugin";
import { traced } from "../../infra/tracing.ts";
import { AgentLock } from "../guardrails/agent-lock.ts";
import { budgetFor, FetchBudget } from "./budget.ts";
import { channelBusy } from "./channel.ts";
import { X402Client } from "./fetch.ts";
import type { FetchFault } from "./job.ts";
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
        calls: app.calls,
        steps: app.payments,
        agentReserve: app.agentReserve,
        settlement: app.settlement,
        custody: app.custody,
        channels: app.walletChannels,
        channelLock: new AgentLock({ busy: () => channelBusy(null) }),
        pool: app.pool,
        db: app.prisma,
        listings: app.listingRegistry,
        remainingOf: (agentId) => app.remainingOf(agentId),
        networkOf: (chainId) => app.networkOf(chainId),
        settleWaitMs: app.config.settleWaitMs,
        sleep: (ms) => sleep(ms),
        fault: async (point) => faults.at?.(point),
        log: app.log,
      }),
    );
    await app.register(routes);
    await app.register(siteLookup);
  },
  {
    name: "x402-client",
  },
);
