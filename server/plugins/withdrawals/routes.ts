import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyRequest } from "fastify";
import { ownAgent } from "../agents/change.ts";
import type { WithdrawalContext } from "./withdrawals.ts";
import { IdParams, Problem } from "../../schemas/common.ts";
import {
  ExecuteWithdrawal,
  PreparedWithdrawal,
  PrepareWithdrawal,
  WithdrawalAnswer,
} from "../../schemas/withdrawals.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "owner" } as const;
  const tags = ["owners: withdrawals"];

  async function contextOf(request: FastifyRequest, agentId: string): Promise<WithdrawalContext> {
    const { owner } = request;
    const agent = await ownAgent({ prisma: app.prisma, owner, requestId: request.id }, agentId);
    return { agent, owner, requestId: request.id };
  }

  app.post(
    "/api/agents/:id/withdrawals/prepare",
    {
      config,
      schema: {
        tags,
        summary: "The order to sign with `eth_signTypedData_v4`, on any network; nothing moves yet",
        params: IdParams,
        body: PrepareWithdrawal,
        response: { 200: PreparedWithdrawal, "4xx": Problem, "5xx": Problem },
      },
    },
    async (request, reply) => {
      reply.header("cache-control", "no-store");
      const context = await contextOf(request, request.params.id);
      return app.withdrawals.prepare(context, request.body);
    },
  );

  app.post(
    "/api/agents/:id/withdrawals",
    {
      config,
      schema: {
        tags,
        summary: "Execute an order the owner signed, on the network it was signed for; once",
        params: IdParams,
        body: ExecuteWithdrawal,
        response: { 200: WithdrawalAnswer, "4xx": Problem, "5xx": Problem },
      },
    },
    async (request, reply) => {
      const { body, params, owner } = request;
      const context = await contextOf(request, params.id);
      const route = `POST /api/agents/${context.agent.id}/withdrawals`;
      const idempotency = request.idempotencyRef({ subjectId: owner.id, route, body });
      const answer = await app.withdrawals.execute(context, body, idempotency);
      return reply.sendAnswer(answer);
    },
  );
};

export default routes;
