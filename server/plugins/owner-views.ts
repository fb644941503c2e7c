import fp from "fastify-plugin";
import { erc20Abi, type Address } from "viem";
import type { AgentRow } from "../adapters/stores/agents.ts";
import { viewAgents } from "../domain/owners/agent-view.ts";
import type { Agent } from "../schemas/agents.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Agents as the wire shows them, with meters and balances. */
    viewAgents(agents: readonly AgentRow[]): Promise<Agent[]>;
  }
}

export default fp(
  async (app) => {
    app.decorate("viewAgents", (agents: readonly AgentRow[]) =>
      viewAgents(app.pool, agents, readBalances),
    );

    async function readBalances(
      networkId: string,
      wallets: readonly Address[],
    ): Promise<Map<string, bigint>> {
      const chain = app.chains.byNetwork(networkId);
      if (!chain) return new Map();
      const { address } = chain.network.usdc;
      const balances = await chain.client.multicall({
        allowFailure: false,
        contracts: wallets.map(
          (wallet) =>
            ({ address, abi: erc20Abi, functionName: "balanceOf", args: [wallet] }) as const,
        ),
      });
      return new Map(wallets.map((wallet, index) => [wallet, balances[index] as bigint]));
    }
  },
  { name: "owner-views", dependencies: ["db", "chain"] },
);
