import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { Overview, OverviewQuery } from "../../schemas/overview.ts";
import { ownAgent } from "../agents/change.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/overview",
    {
      config: { auth: "owner" },
      schema: {
        tags: ["owners: payments"],
        summary: "Totals and time series over all agents, or one",
        querystring: OverviewQuery,
        response: { 200: Overview },
      },
    },
    async (request, reply) => {
      const { owner, query } = request;
      if (query.agentId !== undefined)
        await ownAgent({ prisma: app.prisma, owner, requestId: request.id }, query.agentId);
      reply.header("cache-control", "no-store");
      return app.overview({ ownerId: owner.id, agentId: query.agentId });
    },
  );
};

export default routes;
