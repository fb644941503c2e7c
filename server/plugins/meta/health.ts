import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { Health, Ready } from "../../schemas/meta.ts";
import { VERSION } from "../../infra/version.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/health",
    {
      config: { auth: "public" },
      schema: { tags: ["meta"], summary: "The process is alive", response: { 200: Health } },
    },
    async (_request, reply) => {
      reply.header("cache-control", "no-store");
      return {
        status: "ok" as const,
        version: VERSION,
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
};

export default routes;
