/** Routes about the service itself: health, readiness, metrics, configuration facts, and documents for agents. */
import fp from "fastify-plugin";
import { createHash, timingSafeEqual } from "node:crypto";
import { RULES } from "../guardrails/rules.ts";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress } from "viem";
import { memoFor } from "../../core/shared-answers.ts";
import { formatAtomic } from "../../core/money.ts";
import { ApiError, ERRORS } from "../../errors.ts";
import { BUILD, VERSION } from "../../infra/version.ts";
import { scrapeAllWorkers } from "../../infra/worker-channel.ts";
import { ErrorCatalogue, Health, Ready, ServiceInfo } from "../../schemas/meta.ts";
import { llmsText, skillMarkdown } from "./skill.ts";
import { readServiceTotals } from "./store.ts";

export default fp(
  async (app) => {
    await app.register(operatorRoutes);
    await app.register(serviceRoutes);
    await app.register(agentDocRoutes);
  },
  { name: "meta" },
);

const TOTALS_KEPT_MS = 10_000;

/** Health, readiness and metrics. */
const operatorRoutes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/health",
    {
      config: { auth: "public" },
      schema: {
        tags: ["meta"],
        operationId: "getHealth",
        summary: "The process is alive",
        response: { 200: Health },
      },
    },
    async (_request, reply) => {
      reply.header("cache-control", "no-store");
      return {
        status: "ok" as const,
        version: VERSION,
        ...BUILD,
        uptimeSeconds: Math.round(process.uptime()),
      };
    },
  );

  app.get(
    "/api/ready",
    {
      config: { auth: "public" },
      schema: {
        tags: ["meta"],
        operationId: "getReadiness",
        summary: "Database, chain, relayer gas and migrations, part by part",
        response: { 200: Ready, 503: Ready },
      },
    },
    async (_request, reply) => {
      const parts = await app.readiness.check();
      const ready = Object.values(parts).every((part) => part.ok);
      return reply
        .header("cache-control", "no-store")
        .code(ready ? 200 : 503)
        .send({ ready, parts });
    },
  );

  app.get(
    "/metrics",
    { config: { auth: "public" }, schema: { hide: true } },
    async (request, reply) => {
      const { metricsToken, mode } = app.config;
      // Behind a proxy all clients seem to come from this machine, so without a token no client is trusted.
      if (metricsToken === undefined && mode === "production")
        throw new ApiError("not_found", {
          detail: "Metrics are not available: METRICS_TOKEN is not set.",
        });
      if (
        metricsToken !== undefined &&
        !isSame(request.headers.authorization ?? "", `Bearer ${metricsToken}`)
      ) {
        throw new ApiError("missing_api_key", {
          detail: "Send `Authorization: Bearer <METRICS_TOKEN>`.",
          headers: { "www-authenticate": "Bearer" },
        });
      }
      const { metrics } = app;
      const isAlone = app.config.worker === undefined;
      return reply
        .type(metrics.contentType)
        .send(await (isAlone ? metrics.metrics() : scrapeAllWorkers()));
    },
  );
};

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
const isSame = (left: string, right: string): boolean =>
  timingSafeEqual(digest(left), digest(right));

/** Public facts. */
const serviceRoutes: FastifyPluginAsyncTypebox = async (app) => {
  const { config } = app;
  const relayers = app.relayers.map(({ address }) => address);
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
        operationId: "getInfo",
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
        passkeys: config.passkeys
          ? {
              domain: config.passkeys.domain,
              url: [...config.passkeys.origins][0] ?? config.publicUrl,
            }
          : null,
        facilitator: {
          url: `${config.publicUrl}/api/x402`,
          requiresKey: config.facilitatorApiKeys.length > 0,
          addresses: relayers,
        },
        networks: await networks(),
        rules: RULES.map(({ name, codes, field, otherFields }) => ({
          name,
          codes: [...codes],
          field: field ?? null,
          ...(otherFields && { otherFields: [...otherFields] }),
        })),
        last24h: { ...counts, volume: formatAtomic(volumeAtomic) },
      };
    },
  );

  app.get(
    "/api/errors",
    {
      config: { auth: "public" },
      schema: {
        tags: ["meta"],
        operationId: "listErrors",
        summary: "The error catalogue",
        response: { 200: ErrorCatalogue },
      },
    },
    async () => ({
      items: Object.entries(ERRORS).map(([code, definition]) => ({ code, ...definition })),
    }),
  );
};

/** Documents that an agent reads to use the service. */
const agentDocRoutes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "public" } as const;
  const { network } = app.chains.default;
  const facts = {
    baseUrl: app.config.publicUrl,
    networkId: network.id,
    networkName: network.name,
    demoPath: `/api/${network.slug}-stats`,
  };
  const skill = skillMarkdown(facts);
  const llms = llmsText(facts);

  app.get(
    "/skill.md",
    {
      config,
      schema: {
        tags: ["meta"],
        operationId: "getSkill",
        produces: ["text/markdown"],
        summary: "Instructions for agents (Markdown)",
      },
    },
    async (_request, reply) => reply.type("text/markdown; charset=utf-8").send(skill),
  );
  app.get(
    "/llms.txt",
    {
      config,
      schema: {
        tags: ["meta"],
        operationId: "getLlmsText",
        produces: ["text/plain"],
        summary: "Overview of this service for language models",
      },
    },
    async (_request, reply) => reply.type("text/plain; charset=utf-8").send(llms),
  );
};
