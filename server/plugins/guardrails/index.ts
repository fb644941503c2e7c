import fp from "fastify-plugin";
import type { FastifyInstance } from "fastify";
import { Counter } from "prom-client";
import { LOCK_TIMEOUT, sqlState } from "../../infra/db/pool.ts";
import { readLimits, readOutstanding, reserve } from "./store.ts";
import { Guardrails } from "./decide.ts";
import { agentBusy, AgentLock } from "./agent-lock.ts";
import type { ErrorCode } from "../../errors.ts";
import { DENIAL_CODES, type Limits } from "./rules.ts";
import { UndeclaredAuth } from "../http/index.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** Declared by routes that pay from an agent's wallet; they then need an agent's or owner's credential. */
    guardrails?: { kind: "spend" | "x402" };
  }
  interface FastifyInstance {
    guardrails: Guardrails;
    /**
     * Runs a statement that locks the agent's row: one at a time per agent; throws `agent_busy` after a
     * timeout.
     */
    withAgentLock<T>(agentId: string, work: () => Promise<T>): Promise<T>;
    limits: {
      /** With `payees`, includes the limits of single payees that have their own. */
      of(agentId: string, also?: { payees: boolean }): Promise<Limits | undefined>;
      ofMany(agentIds: readonly string[]): Promise<Map<string, Limits>>;
      /** Reserved or sent from the wallet, and not yet subtracted from the balance at that block. */
      outstanding(args: {
        agentId: string;
        chainId: number;
        balanceBlock: bigint;
      }): Promise<bigint>;
    };
  }
}

/** Error codes of any payment from an agent's wallet. */
const PAYING: readonly ErrorCode[] = [
  ...DENIAL_CODES,
  "insufficient_funds",
  "approval_declined",
  "not_found",
  "too_many_approvals",
  "gas_budget_exhausted",
  "settlement_failed",
  "chain_unavailable",
  "screening_unavailable",
  "policy_not_signed",
  "policy_version_unknown",
  "keys_unavailable",
  "relayer_unfunded",
  "agent_busy",
  "payment_status_unknown",
  "call_canceled",
];

/**
 * Money leaves an agent's wallet only through routes that declare `guardrails`, and only after a reservation
 * here.
 */
export default fp(
  async (app) => {
    const agentLock = new AgentLock();
    const denials = new Counter({
      name: "purser_denials_total",
      help: "Payments of agents that a guardrail refused, by error code",
      labelNames: ["code"],
      registers: [app.metrics],
    });
    const withAgentLock: FastifyInstance["withAgentLock"] = (agentId, work) =>
      agentLock.take(agentId, () =>
        work().catch((error: unknown) => {
          throw sqlState(error) === LOCK_TIMEOUT ? agentBusy(error) : error;
        }),
      );
    app.decorate(
      "guardrails",
      new Guardrails({
        // A dry run needs no lock.
        reserve: (request) =>
          request.dryRun
            ? reserve(app.pool, request)
            : withAgentLock(request.agentId, () => reserve(app.pool, request)),
        denied: (code) => denials.inc({ code }),
        log: app.log,
      }),
    );
    app.decorate("withAgentLock", withAgentLock);
    app.decorate("limits", {
      of: async (agentId, also) => (await readLimits(app.pool, [agentId], also)).get(agentId),
      ofMany: (agentIds) => readLimits(app.pool, agentIds),
      outstanding: (args) => readOutstanding(app.pool, args),
    });
    app.addHook("onRoute", (route) => {
      const { guardrails, auth, errors = [] } = route.config ?? {};
      if (guardrails === undefined) return;
      route.config = { ...route.config, errors: [...errors, ...PAYING] };
      if (auth !== "agent" && auth !== "owner")
        throw new UndeclaredAuth(
          `Route ${String(route.method)} ${route.url} pays, so it must know an agent or an owner`,
        );
    });
  },
  { name: "guardrails" },
);
