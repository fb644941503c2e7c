import fp from "fastify-plugin";
import { erc20Abi, type Address } from "viem";
import type { AgentRow } from "../adapters/stores/agents.ts";
import type { ReadBalance } from "../domain/owners/archive.ts";
import { viewAgents } from "../domain/owners/agent-view.ts";
import { ApiError } from "../errors.ts";
import type { Agent } from "../schemas/agents.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Agents as the wire shows them, with meters and balances. */
    viewAgents(agents: readonly AgentRow[]): Promise<Agent[]>;
    readAgentBalance: ReadBalance;
  }
}

export default fp(
  async (app) => {
    app.decorate("viewAgents", (agents: readonly AgentRow[]) =>
      viewAgents(app.pool, agents, readBalances),
    );
    app.decorate("readAgentBalance", async ({ network, walletAddress }: AgentRow) => {
      const chain = app.chains.byNetwork(network);
      if (!chain)
        throw new ApiError("chain_unavailable", { detail: `${network} is not configured here.` });
      try {
        const blockNumber = await chain.client.getBlockNumber();
        const atomic = await chain.client.readContract({
          address: chain.network.usdc.address,
          abi: erc20Abi,
          functionName: "balanceOf",
          args: [walletAddress],
          blockNumber,
        });
        return { chainId: chain.network.chainId, blockNumber, atomic };
      } catch (error) {
        throw new ApiError("chain_unavailable", { cause: error });
      }
    });

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
