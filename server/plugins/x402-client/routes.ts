import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { ownAgent } from "../agents/change.ts";
import { IdParams, Problem } from "../../schemas/common.ts";
import { X402FetchAnswer, X402FetchRequest } from "../../schemas/x402-fetch.ts";

const FETCH = "POST /api/agents/x402-fetch";
const TRY = "POST /api/agents/:id/try";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.post(
    "/api/agents/x402-fetch",
    {
      config: { auth: "agent", guardrails: { kind: "x402" } },
      schema: {
        tags: ["agents"],
        summary: "Fetch a URL, paying for it over x402 within the agent's limits",
        body: X402FetchRequest,
        response: { 200: X402FetchAnswer, "4xx": Problem, "5xx": Problem },
      },
    },
    async (request, reply) => {
      const { agent, body } = request;
      const answer = await app.x402Client.fetch(body, {
        id: agent.id,
        walletAddress: agent.walletAddress,
        apiKeyId: agent.apiKeyId,
        network: agent.network,
        requestId: request.id,
        idempotency: request.idempotencyRef({ subjectId: agent.id, route: FETCH, body }),
      });
      return reply.sendAnswer(answer);
    },
  );

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
        idempotency: request.idempotencyRef({ subjectId: agent.id, route: TRY, body }),
      });
      return reply.sendAnswer(answer);
    },
  );
};

export default routes;
