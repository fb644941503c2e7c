import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { IdParams, Page } from "../../schemas/common.ts";
import { AgentSelf, Payment, PaymentFilters } from "../../schemas/payments.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "agent" } as const;
  const tags = ["agents"];

  app.get(
    "/api/agents/me",
    {
      config,
      schema: {
        tags,
        summary: "The agent's wallet, balance, limits, allowlist and key",
        response: { 200: AgentSelf },
      },
    },
    async ({ agent }, reply) => {
      reply.header("cache-control", "no-store");
      return app.agentSelf(agent);
    },
  );

  app.get(
    "/api/agents/me/payments",
    {
      config,
      schema: {
        tags,
        summary: "The agent's payments, refused ones included, newest first",
        querystring: PaymentFilters,
        response: { 200: Page(Payment) },
      },
    },
    async ({ agent, query }) => app.paymentHistory.page(agent.id, query),
  );

  app.get(
    "/api/agents/me/payments/:id",
    {
      config,
      schema: { tags, summary: "One payment", params: IdParams, response: { 200: Payment } },
    },
    async ({ agent, params }) => app.paymentHistory.one(agent.id, params.id),
  );
};

export default routes;
