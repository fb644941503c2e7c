import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyRequest } from "fastify";
import { chainStats } from "./chain-stats.ts";
import { ApiError } from "../../errors.ts";
import type { PaywallRoute } from "../paywall/paywall.ts";
import { ChainStats, PaymentRequiredAnswer } from "../../schemas/demo.ts";

const PRICE = "0.001";

/** The paid demo endpoint of the default network: `/api/arc-stats` on Arc. */
const routes: FastifyPluginAsyncTypebox = async (app) => {
  const { network, client } = app.chains.default;
  const path = `/api/${network.slug}-stats`;
  const blocks = {
    latest: () => client.getBlock({ blockTag: "latest" }),
    at: (blockNumber: bigint) => client.getBlock({ blockNumber }),
  };
  // Read before the payment settles: a chain that does not answer costs the caller nothing.
  const prepared = new WeakMap<FastifyRequest, Awaited<ReturnType<typeof chainStats>>>();
  const paywall: PaywallRoute = {
    price: PRICE,
    networks: [network.id],
    description: `Live block statistics of ${network.name}`,
    mimeType: "application/json",
    serviceName: "Purser",
    tags: ["data", "chain"],
    discoverable: { example: EXAMPLE },
    prepare: async (request) => {
      const stats = await chainStats(network, blocks).catch((cause: unknown) => {
        throw new ApiError("chain_unavailable", { cause });
      });
      prepared.set(request, stats);
    },
  };

  app.get(
    path,
    {
      config: { auth: "public", paywall },
      schema: {
        tags: ["demo"],
        summary: `Live block statistics of ${network.name} for ${PRICE} USDC (x402)`,
        description:
          "Without proof of payment: the protocol's 402. With proof it settles, then answers once.",
        response: { 200: ChainStats, 402: PaymentRequiredAnswer },
      },
    },
    async (request) => {
      const stats = prepared.get(request);
      if (!stats) throw new Error("paid, but nothing was prepared");
      return stats;
    },
  );

  app.listings.addBuiltIn({
    key: `chain-stats:${network.id}`,
    name: `${network.name} block statistics`,
    description:
      "Height, time, gas, base fee, transactions and mean block time of the chain, live. The demo endpoint of this service.",
    category: "data",
    url: `${app.config.publicUrl}${path}`,
    method: "GET",
    sample: JSON.stringify(EXAMPLE),
    terms: () =>
      app.till.required(paywall, {
        method: "GET",
        url: `${app.config.publicUrl}${path}`,
        path,
        headers: {},
      }),
  });
};

const EXAMPLE = {
  height: 1204551,
  time: "2026-11-21T05:00:00.000Z",
  gasUsed: "1204311",
  gasLimit: "30000000",
  baseFee: "20000000000",
  transactions: 14,
  meanBlockTimeSeconds: 0.5,
};

export default routes;
