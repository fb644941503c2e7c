import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress } from "viem";
import { privateKeyToAddress } from "viem/accounts";
import { readServiceTotals } from "./service-totals.ts";
import { memoFor } from "../../core/kept-answer.ts";
import { formatAtomic } from "../../core/money.ts";
import { ERRORS } from "../../errors.ts";
import { ErrorCatalogue, ServiceInfo } from "../../schemas/meta.ts";
import { RULES } from "../guardrails/rules/index.ts";
import { VERSION } from "../../infra/version.ts";

const TOTALS_KEPT_MS = 10_000;

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const { config } = app;
  const relayers = config.relayerPrivateKeys.map((key) => privateKeyToAddress(key));
  const totals = memoFor(TOTALS_KEPT_MS, () => readServiceTotals(app.prisma));

  const networks = () =>
    Promise.all(
      app.chains.all.map(async ({ network, client }, index) => ({
        id: network.id,
        chainId: network.chainId,
        name: network.name,
        slug: network.slug,
        testnet: network.testnet,
        nativeSymbol: network.nativeSymbol,
        usdc: { ...network.usdc, address: getAddress(network.usdc.address) },
        explorerUrl: network.explorerUrl,
        walletRpcUrl: config.local
          ? (network.rpcUrls[0] ?? network.publicRpcUrl)
          : network.publicRpcUrl,
        blockTimeMs: network.blockTimeMs,
        blockHeight: await client.getBlockNumber().then(String, () => null),
        demoPath: index === 0 ? `/api/${network.slug}-stats` : null,
      })),
    );

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
      const { volumeAtomic, ...counts } = await totals();
      reply.header("cache-control", "no-store");
      return {
        name: "Purser" as const,
        version: VERSION,
        publicUrl: config.publicUrl,
        localWorld: config.local !== undefined,
        facilitator: {
          url: `${config.publicUrl}/api/x402`,
          requiresKey: config.facilitatorApiKeys.length > 0,
          addresses: relayers,
        },
        networks: await networks(),
        rules: RULES.map(({ name, codes, field }) => ({
          name,
          codes: [...codes],
          field: field ?? null,
        })),
        last24h: { ...counts, volume: formatAtomic(volumeAtomic) },
      };
    },
  );

  app.get(
    "/api/errors",
    {
      config: { auth: "public" },
      schema: { tags: ["meta"], summary: "The error catalogue", response: { 200: ErrorCatalogue } },
    },
    async () => ({
      items: Object.entries(ERRORS).map(([code, definition]) => ({ code, ...definition })),
    }),
  );
};

export default routes;
