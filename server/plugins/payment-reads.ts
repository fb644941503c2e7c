import fp from "fastify-plugin";
import type { Address } from "viem";
import { findSelf } from "../adapters/stores/agent-self.ts";
import { listAllowlists } from "../adapters/stores/allowlist.ts";
import { findPayment, listPayments } from "../adapters/stores/payments.ts";
import { presentSelf } from "../domain/payments/agent-self.ts";
import { PaymentHistory } from "../domain/payments/history.ts";
import { ApiError } from "../errors.ts";
import type { AgentSelf } from "../schemas/payments.ts";
import { engineOf } from "./engine.helper.ts";

declare module "fastify" {
  interface FastifyInstance {
    paymentHistory: PaymentHistory;
    /** What an agent may know of itself (also over MCP). */
    agentSelf(agent: { id: string; apiKeyId: string }): Promise<AgentSelf>;
    /** Null while the chain does not answer. */
    balanceOf(networkId: string, wallet: Address): Promise<bigint | undefined>;
  }
}

export default fp(
  async (app) => {
    app.decorate(
      "paymentHistory",
      new PaymentHistory({
        list: (filter) => listPayments(app.pool, filter),
        find: (key) => findPayment(app.pool, key),
        networkOf: (chainId) => app.networkOf(chainId),
      }),
    );
    app.decorate("balanceOf", async (networkId: string, wallet: Address) => {
      const chain = app.chains.byNetwork(networkId);
      if (!chain) return undefined;
      const address = wallet.toLowerCase() as Address;
      return engineOf(app)
        .chainReads.balances(chain.network.chainId, [address])
        .then(
          ({ balances }) => balances.get(address),
          () => undefined,
        );
    });
    app.decorate("agentSelf", async (agent: { id: string; apiKeyId: string }) => {
      const row = await findSelf(app.pool, { agentId: agent.id, apiKeyId: agent.apiKeyId });
      const [limits, allowlists, balanceAtomic] = await Promise.all([
        app.limits.of(agent.id),
        listAllowlists(app.pool, [agent.id]),
        row ? app.balanceOf(row.network, row.walletAddress) : undefined,
      ]);
      if (!row || !limits) throw new ApiError("not_found");
      const network = app.chains.byNetwork(row.network)?.network ?? app.chains.default.network;
      return presentSelf(row, {
        limits,
        allowlist: allowlists.get(agent.id) ?? [],
        balanceAtomic,
        asset: network.usdc.address,
      });
    });
  },
  { name: "payment-reads", dependencies: ["payments", "guardrails"] },
);
