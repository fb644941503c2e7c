import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { ownAgent } from "../agents/change.ts";
import { IdParams, Problem } from "../../schemas/common.ts";
import { X402FetchAnswer, X402FetchRequest } from "../../schemas/x402-fetch.ts";

const ROUTE = "POST /api/agents/:id/try";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.post(
    "/api/agents/:id/try",
    {
      config: { auth: "owner", guardrails: { kind: "x402" } },
      schema: {
        tags: ["owners: payments"],
        summary: "Fetch as this agent would, under its limits, without its key",
        params: IdParams,
        body: X402FetchRequest,
        response: { 200: X402FetchAnswer, "4xx": Problem, "5xx": Problem },
      },
    },
    async (request, reply) => {
      const { body, owner, params } = request;
      const agent = await ownAgent({ prisma: app.prisma, owner, requestId: request.id }, params.id);
      const answer = await app.x402Client.fetch(body, {
        id: agent.id,
        walletAddress: agent.walletAddress,
        apiKeyId: null,
        network: agent.network,
        requestId: request.id,
        idempotency: request.idempotencyRef({ subjectId: agent.id, route: ROUTE, body }),
      });
      return reply.sendAnswer(answer);
    },
  );
};

export default routes;
