import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress } from "viem";
import { privateKeyToAddress } from "viem/accounts";
import { ServiceInfo } from "../../schemas/meta.ts";
import { VERSION } from "../../version.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const relayers = app.config.relayerPrivateKeys.map((key) => privateKeyToAddress(key));

  app.get(
    "/api/info",
    {
      config: { auth: "public" },
      schema: {
        tags: ["meta"],
        summary: "Public facts about this service",
        response: { 200: ServiceInfo },
      },
    },
    async (_request, reply) => {
      const networks = await Promise.all(
        app.chains.all.map(async ({ network, client }) => ({
          id: network.id,
          chainId: network.chainId,
          name: network.name,
          usdc: getAddress(network.usdc.address),
          explorerUrl: network.explorerUrl,
          testnet: network.testnet,
          blockHeight: await client.getBlockNumber().then(String, () => null),
          relayers,
        })),
      );
      reply.header("cache-control", "no-store");
      return {
        name: "Purser" as const,
        version: VERSION,
        publicUrl: app.config.publicUrl,
        localWorld: app.config.local !== undefined,
        defaultNetwork: app.chains.default.network.id,
        networks,
      };
    },
  );
};

export default routes;
