import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { FacilitatorStats } from "../../schemas/facilitator.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/x402/stats",
    {
      config: { auth: "public" },
      schema: {
        tags: ["facilitator"],
        summary: "What this facilitator did for others",
        response: { 200: FacilitatorStats },
      },
    },
    async (_request, reply) => {
      reply.header("cache-control", "no-store");
      return app.facilitatorStats();
    },
  );
};

export default routes;
