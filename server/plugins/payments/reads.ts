import fp from "fastify-plugin";
import type { Address } from "viem";
import { findSelf } from "./self.ts";
import { listAllowlists } from "../agents/allowlist-store.ts";
import { findPayment, listPayments } from "./store.ts";
import {
  blockedLastDay,
  overviewAgents,
  paymentBuckets,
  type OverviewAgent,
} from "./overview-store.ts";
import { readOverview } from "./overview.ts";
import type { Overview } from "../../schemas/overview.ts";
import { presentSelf } from "./self.ts";
import { PaymentHistory } from "./history.ts";
import { ApiError } from "../../errors.ts";
import type { AgentSelf } from "../../schemas/payments.ts";

declare module "fastify" {
  interface FastifyInstance {
    paymentHistory: PaymentHistory;
    /** What an agent may know of itself (also over MCP). */
    agentSelf(agent: { id: string; apiKeyId: string }): Promise<AgentSelf>;
    /** An owner's totals and time series. */
    overview(args: { ownerId: string; agentId: string | undefined }): Promise<Overview>;
    /** Undefined while the chain does not answer. */
    balanceOf(networkId: string, wallet: Address): Promise<bigint | undefined>;
  }
}

export default fp(
  async (app) => {
    app.decorate(
      "paymentHistory",
      new PaymentHistory({
        list: (filter) => listPayments(app.prisma, filter),
        find: (key) => findPayment(app.pool, key),
        networkOf: (chainId) => app.networkOf(chainId),
      }),
    );
    app.decorate("balanceOf", async (networkId: string, wallet: Address) => {
      const chain = app.chains.byNetwork(networkId);
      if (!chain) return undefined;
      const address = wallet.toLowerCase() as Address;
      return app.chainReads.balances(chain.network.chainId, [address]).then(
        ({ balances }) => balances.get(address),
        () => undefined,
      );
    });
    app.decorate("overview", (args) =>
      readOverview(
        {
          agents: (query) => overviewAgents(app.prisma, query),
          limits: (ids) => app.limits.ofMany(ids),
          buckets: (query) => paymentBuckets(app.prisma, query),
          blocked: (ids) => blockedLastDay(app.prisma, ids),
          balances: totalBalance,
        },
        args,
      ),
    );
    app.decorate("agentSelf", async (agent: { id: string; apiKeyId: string }) => {
      const row = await findSelf(app.prisma, { agentId: agent.id, apiKeyId: agent.apiKeyId });
      const [limits, allowlists, balanceAtomic] = await Promise.all([
        app.limits.of(agent.id),
        listAllowlists(app.prisma, [agent.id]),
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

    /** One read per network; a sum that lacks a network would be a wrong sum. */
    async function totalBalance(agents: readonly OverviewAgent[]): Promise<bigint | undefined> {
      const networks = [...new Set(agents.map(({ network }) => network))];
      const sums = networks.map(async (network) => {
        const chain = app.chains.byNetwork(network);
        if (!chain) return 0n;
        const wallets = agents
          .filter((agent) => agent.network === network)
          .map(({ walletAddress }) => walletAddress.toLowerCase() as Address);
        const { balances } = await app.chainReads.balances(chain.network.chainId, wallets);
        return wallets.reduce((sum, wallet) => sum + (balances.get(wallet) ?? 0n), 0n);
      });
      return Promise.all(sums).then(
        (totals) => totals.reduce((sum, total) => sum + total, 0n),
        () => undefined,
      );
    }
  },
  { name: "payment-reads" },
);
