import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { readSpend } from "./spend.ts";
import { Problem } from "../../schemas/common.ts";
import { SpendAnswer, SpendRequest } from "../../schemas/payments.ts";

const ROUTE = "POST /api/agents/spend";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.post(
    "/api/agents/spend",
    {
      config: { auth: "agent", guardrails: { kind: "spend" } },
      schema: {
        tags: ["agents"],
        summary: "Pay an allowed address from the agent's wallet",
        body: SpendRequest,
        response: { 200: SpendAnswer, "4xx": Problem, "5xx": Problem },
      },
    },
    async (request, reply) => {
      const { agent, body } = request;
      const idempotency = request.idempotencyRef({ subjectId: agent.id, route: ROUTE, body });
      const order = readSpend(body, {
        walletAddress: agent.walletAddress,
        network: app.chains.byNetwork(body.network ?? agent.network)?.network,
      });
      const answer = await app.spend.run({
        ...order,
        payer: { id: agent.id, walletAddress: agent.walletAddress, apiKeyId: agent.apiKeyId },
        requestId: request.id,
        idempotency,
      });
      return reply.sendAnswer(answer);
    },
  );
};

export default routes;
