import fp from "fastify-plugin";
import keyRoutes from "./key-routes.ts";
import type { AgentRow } from "./store.ts";
import { readOutstanding } from "../guardrails/store.ts";
import { agentRoutes, allowlistRoutes, auditRoutes, balanceRoutes } from "./routes.ts";
import { viewAgents } from "./view.ts";
import { balanceOn, readAllBalances, readAllowances, type ReadAllBalances } from "./balances.ts";
import { formatAtomic } from "../../core/money.ts";
import type { Agent, AgentDetail } from "../../schemas/agents.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Agents as the wire shows them, with meters and balances. */
    viewAgents(agents: readonly AgentRow[]): Promise<Agent[]>;
    /** One agent, and what its wallet has promised and could give. */
    viewAgentDetail(agent: AgentRow): Promise<AgentDetail>;
    /** Balances of wallets on every configured network. */
    walletBalances: ReadAllBalances;
  }
}

export default fp(
  async (app) => {
    const networks = app.chains.all.map(({ network }) => network);
    const readBalances = readAllBalances(networks, (chainId, wallets) =>
      app.chainReads.balances(chainId, wallets),
    );
    app.decorate("walletBalances", readBalances);
    app.decorate("viewAgents", (agents: readonly AgentRow[]) =>
      viewAgents(app, agents, readBalances),
    );

    app.decorate("viewAgentDetail", async (agent: AgentRow) => {
      const [balances, allowances] = await Promise.all([
        readBalances([agent.walletAddress]),
        readAllowances(app.chains.all, agent.walletAddress),
      ]);
      const [view] = await viewAgents(app, [agent], async () => balances);
      if (!view) throw new Error(`no view of agent ${agent.id}`);
      const chainId = app.chains.byNetwork(agent.network)?.network.chainId;
      const held = balanceOn(balances.get(agent.walletAddress), agent.network);
      // A chain that is down or slow, or configured no more, hides balances, not agents.
      if (chainId === undefined || held === undefined)
        return { ...view, outstanding: null, withdrawable: null, allowances };
      const outstandingAtomic = await readOutstanding(app.pool, {
        agentId: agent.id,
        chainId,
        balanceBlock: held.blockNumber,
      });
      const freeAtomic = held.atomic - outstandingAtomic;
      return {
        ...view,
        outstanding: formatAtomic(outstandingAtomic),
        withdrawable: formatAtomic(freeAtomic > 0n ? freeAtomic : 0n),
        allowances,
      };
    });
    await app.register(agentRoutes);
    await app.register(allowlistRoutes);
    await app.register(keyRoutes);
    await app.register(auditRoutes);
    await app.register(balanceRoutes);
  },
  { name: "agents" },
);
