import fp from "fastify-plugin";
import keyRoutes from "./key-routes.ts";
import type { Address } from "viem";
import type { AgentRow } from "./store.ts";
import { readOutstanding } from "../guardrails/store.ts";
import { agentRoutes, allowlistRoutes, auditRoutes, balanceRoutes } from "./routes.ts";
import { viewAgents } from "./view.ts";
import type { ReadBalance } from "./agents.ts";
import { formatAtomic } from "../../core/money.ts";
import { ApiError } from "../../errors.ts";
import type { Agent, AgentDetail } from "../../schemas/agents.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Agents as the wire shows them, with meters and balances. */
    viewAgents(agents: readonly AgentRow[]): Promise<Agent[]>;
    /** One agent, and what its wallet has promised and could give. */
    viewAgentDetail(agent: AgentRow): Promise<AgentDetail>;
    readAgentBalance: ReadBalance;
  }
}

export default fp(
  async (app) => {
    app.decorate("viewAgents", (agents: readonly AgentRow[]) =>
      viewAgents(app, agents, async (networkId: string, wallets: readonly Address[]) => {
        const { balances } = await app.chainReads.balances(chainIdOf(networkId), wallets);
        return balances;
      }),
    );

    const readAgentBalance: ReadBalance = async ({ network, walletAddress }) => {
      const chainId = chainIdOf(network);
      const { blockNumber, balances } = await app.chainReads.balances(chainId, [walletAddress]);
      return { chainId, blockNumber, atomic: balances.get(walletAddress) ?? 0n };
    };
    app.decorate("readAgentBalance", readAgentBalance);

    app.decorate("viewAgentDetail", async (agent: AgentRow) => {
      const [view] = await app.viewAgents([agent]);
      if (!view) throw new Error(`no view of agent ${agent.id}`);
      // A chain that is down or slow hides balances, not agents.
      const read =
        view.balance === null ? undefined : await readAgentBalance(agent).catch(() => undefined);
      if (!read) return { ...view, outstanding: null, withdrawable: null };
      const { chainId, blockNumber, atomic } = read;
      const outstandingAtomic = await readOutstanding(app.pool, {
        agentId: agent.id,
        chainId,
        balanceBlock: blockNumber,
      });
      const freeAtomic = atomic - outstandingAtomic;
      return {
        ...view,
        balance: formatAtomic(atomic),
        outstanding: formatAtomic(outstandingAtomic),
        withdrawable: formatAtomic(freeAtomic > 0n ? freeAtomic : 0n),
      };
    });

    /** An agent may live on a network that is configured no more. */
    function chainIdOf(networkId: string): number {
      const chain = app.chains.byNetwork(networkId);
      if (!chain)
        throw new ApiError("chain_unavailable", { detail: `${networkId} is not configured here.` });
      return chain.network.chainId;
    }
    await app.register(agentRoutes);
    await app.register(allowlistRoutes);
    await app.register(keyRoutes);
    await app.register(auditRoutes);
    await app.register(balanceRoutes);
  },
  { name: "agents" },
);
