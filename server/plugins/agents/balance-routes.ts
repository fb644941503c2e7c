import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress } from "viem";
import { formatAtomic } from "../../core/money.ts";
import { refuseField } from "./rules.ts";
import { OwnerBalance, OwnerBalanceQuery } from "../../schemas/owners.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/owner/balance",
    {
      config: { auth: "owner" },
      schema: {
        tags: ["owners: session"],
        summary: "USDC of the owner's own wallet, which funds agents",
        querystring: OwnerBalanceQuery,
        response: { 200: OwnerBalance },
      },
    },
    async ({ owner, query }, reply) => {
      const chain =
        query.network === undefined ? app.chains.default : app.chains.byNetwork(query.network);
      if (!chain) throw refuseField("validation_failed", "query.network", "is not configured here");
      const { balances } = await app.chainReads.balances(chain.network.chainId, [owner.address]);
      reply.header("cache-control", "no-store");
      return {
        network: chain.network.id,
        address: getAddress(owner.address),
        balance: formatAtomic(balances.get(owner.address) ?? 0n),
      };
    },
  );
};

export default routes;
