import fp from "fastify-plugin";
import { readLimits, readOutstanding } from "./store.ts";
import { reserve } from "./store.ts";
import { Guardrails } from "./decide.ts";
import type { Limits } from "./types.ts";
import { UndeclaredAuth } from "../http/index.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** A route that pays from an agent's wallet says so; it then needs an agent's or owner's credential. */
    guardrails?: { kind: "spend" | "x402" };
  }
  interface FastifyInstance {
    guardrails: Guardrails;
    limits: {
      of(agentId: string): Promise<Limits | undefined>;
      ofMany(agentIds: readonly string[]): Promise<Map<string, Limits>>;
      /** Promised by the wallet, not yet in the balance read at that block. */
      outstanding(args: {
        agentId: string;
        chainId: number;
        balanceBlock: bigint;
      }): Promise<bigint>;
    };
  }
}

/** Money leaves an agent's wallet only through routes that declare it, and those only past this. */
export default fp(
  async (app) => {
    app.decorate(
      "guardrails",
      new Guardrails({ reserve: (request) => reserve(app.pool, request), log: app.log }),
    );
    app.decorate("limits", {
      of: async (agentId) => (await readLimits(app.pool, [agentId])).get(agentId),
      ofMany: (agentIds) => readLimits(app.pool, agentIds),
      outstanding: (args) => readOutstanding(app.pool, args),
    });
    app.addHook("onRoute", (route) => {
      const { guardrails, auth } = route.config ?? {};
      if (guardrails !== undefined && auth !== "agent" && auth !== "owner")
        throw new UndeclaredAuth(
          `Route ${String(route.method)} ${route.url} pays, so it must know an agent or an owner`,
        );
    });
  },
  { name: "guardrails" },
);
