/** Fetches what may cost money, on behalf of an agent. */
import fp from "fastify-plugin";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";
import type { PaymentKey } from "../payments/pay.ts";
import { X402Client } from "./client.ts";
import type { DeliveryRecord, FetchFault } from "./request.ts";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { ownAgent } from "../agents/change.ts";
import { IdParams, Problem } from "../../schemas/common.ts";
import { X402FetchAnswer, X402FetchRequest } from "../../schemas/x402-fetch.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Fetches what may cost money, and asks what it would cost. */
    x402Client: X402Client;
    /** Tests stop the process at a named point; nobody else sets it. */
    x402Faults: { at?: (point: FetchFault) => Promise<void> };
  }
}

export default fp(
  async (app) => {
    const faults: { at?: (point: FetchFault) => Promise<void> } = {};
    app.decorate("x402Faults", faults);
    app.decorate(
      "x402Client",
      new X402Client({
        ask: (request) => app.outbound.request(request),
        networks: app.config.networks,
        flow: app.payments,
        agentReserve: app.agentReserve,
        settlement: app.settlement,
        signCancel: (agentId, cancellation) => app.custody.signCancel(agentId, cancellation),
        recordDelivery: (key, seen) => recordDelivery(app.prisma, key, seen),
        remainingOf: (agentId) => app.remainingOf(agentId),
        networkOf: (chainId) => app.networkOf(chainId),
        listings: app.listingBook,
        settleWaitMs: app.config.settleWaitMs,
        fault: async (point) => faults.at?.(point),
        log: app.log,
      }),
    );
    await app.register(routes);
  },
  {
    name: "x402-client",
  },
);

/** What became of the delivery, beside what became of the payment. */
export async function recordDelivery(db: Db, key: PaymentKey, seen: DeliveryRecord): Promise<void> {
  const { upstreamStatus, delivered } = seen;
  await db.payment.updateMany({
    where: { agentId: key.agentId, id: key.paymentId },
    data: { upstreamStatus, delivered, updatedAt: await databaseNow(db) },
  });
}

const FETCH = "POST /api/agents/x402-fetch";
const TRY = "POST /api/agents/:id/try";

export const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.post(
    "/api/agents/x402-fetch",
    {
      config: { auth: "agent", limit: "fetch", guardrails: { kind: "x402" } },
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
