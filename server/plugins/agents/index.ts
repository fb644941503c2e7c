import fp from "fastify-plugin";
import keyRoutes from "./key-routes.ts";
import type { AgentRow } from "./store.ts";
import { readWallets } from "../guardrails/store.ts";
import { agentRoutes, allowlistRoutes, auditRoutes, balanceRoutes } from "./routes.ts";
import { viewAgents } from "./view.ts";
import { remainingOf } from "../guardrails/rules.ts";
import {
  readAllBalances,
  readAllowances,
  readWalletsBy,
  type ReadAllBalances,
  type ReadWallets,
} from "./balances.ts";
import { formatAtomic } from "../../core/money.ts";
import type { Agent, AgentDetail } from "../../schemas/agents.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Agents in their API form, with meters and balances. */
    viewAgents(agents: readonly AgentRow[]): Promise<Agent[]>;
    /** One agent, with its outstanding and withdrawable amounts. */
    viewAgentDetail(agent: AgentRow): Promise<AgentDetail>;
    /** Balances of wallets on every configured network. */
    walletBalances: ReadAllBalances;
    /** Balances of agents' wallets, and the facts about each that the rules use. */
    agentWallets: ReadWallets;
  }
}

export default fp(
  async (app) => {
    const networks = app.chains.all.map(({ network }) => network);
    const readBalances = readAllBalances(networks, (chainId, wallets) =>
      app.chainReads.balances(chainId, wallets),
    );
    app.decorate("walletBalances", readBalances);
    const agentWallets = readWalletsBy({
      networks,
      balances: readBalances,
      // The settlement module is registered later, but before any request.
      gasHold: (chainId) => app.settlement.gasHold(chainId),
      facts: (asked) => readWallets(app.pool, asked, app.config.minPaymentAtomic),
    });
    app.decorate("agentWallets", agentWallets);
    app.decorate("viewAgents", (agents: readonly AgentRow[]) =>
      viewAgents(app, agents, agentWallets),
    );

    app.decorate("viewAgentDetail", async (agent: AgentRow) => {
      const [wallets, allowances] = await Promise.all([
        agentWallets([agent]),
        readAllowances(app.chains.all, agent.walletAddress),
      ]);
      const [view] = await viewAgents(app, [agent], async () => wallets);
      if (!view) throw new Error(`no view of agent ${agent.id}`);
      const wallet = wallets.facts.get(agent.id);
      // A chain that is down, slow or no longer configured hides balances, not agents.
      if (wallet === undefined)
        return { ...view, outstanding: null, withdrawable: null, allowances };
      return {
        ...view,
        outstanding: formatAtomic(wallet.outstanding),
        withdrawable: formatAtomic(remainingOf(wallet.balance, wallet.outstanding)),
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
