/** Routes for agents to pay, and for agents and owners to read payments. */
import { Readable } from "node:stream";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { ApprovalRequired } from "../../schemas/approvals.ts";
import { IdParams } from "../../schemas/common.ts";
import { Overview, OverviewQuery } from "../../schemas/overview.ts";
import {
  AgentSelf,
  DetailQuery,
  PaymentSummaryPage,
  OwnPaymentFilters,
  Payment,
  PaymentPage,
  PaymentFilters,
  PaymentParams,
  SpendAnswer,
  SpendRequest,
} from "../../schemas/payments.ts";
import { OwnerPaymentFilters } from "../../schemas/spending.ts";
import { ownAgent } from "../agents/store.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { shortPayment, shortSelf } from "./detail.ts";
import { approvalRequestOf } from "./reserve.ts";
import { readSpend } from "./spend.ts";

const SPEND = "POST /api/agents/spend";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  await app.register(spending);
  await app.register(forAgents);
  await app.register(forOwners);
};

const spending: FastifyPluginAsyncTypebox = async (app) => {
  app.post(
    "/api/agents/spend",
    {
      config: {
        auth: "agent",
        limit: "spend",
        guardrails: { kind: "spend" },
        idempotencyKey: true,
      },
      schema: {
        tags: ["agents"],
        operationId: "agentSpend",
        summary: "Pay an allowed address from the agent's wallet",
        body: SpendRequest,
        response: { 200: SpendAnswer, 202: ApprovalRequired },
      },
    },
    async (request, reply) => {
      const { agent, body } = request;
      const idempotency = await request.payingRef({
        subjectId: agent.id,
        route: SPEND,
        body,
        reply,
      });
      const { network } = app.chains.byNetwork(body.network ?? agent.network) ?? {};
      if (!network) {
        const valid = app.config.networks.map(({ id }) => id).join(", ");
        throw refuseField("validation_failed", "body.network", `must be one of ${valid}`);
      }
      const { walletAddress } = agent;
      const order = readSpend(body, { walletAddress, network });
      const answer = await app.spend.run({
        ...order,
        ...approvalRequestOf(body),
        payer: { id: agent.id, walletAddress: agent.walletAddress, apiKeyId: agent.apiKeyId },
        requestId: request.id,
        idempotency,
      });
      return reply.sendAnswer(answer);
    },
  );
};

const forAgents: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "agent" } as const;
  const tags = ["agents"];

  app.get(
    "/api/agents/me",
    {
      config,
      schema: {
        tags,
        operationId: "getAgentSelf",
        summary: "The agent's wallet, balance, limits, allowlist and key",
        querystring: DetailQuery,
        response: { 200: AgentSelf },
      },
    },
    async ({ agent, query }, reply) => {
      reply.header("cache-control", "no-store");
      const self = await app.agentSelf(agent);
      return query.detail === "full" ? self : shortSelf(self);
    },
  );

  app.get(
    "/api/agents/me/payments",
    {
      config,
      schema: {
        tags,
        operationId: "listPayments",
        summary: "The agent's payments, including refused ones, newest first",
        querystring: OwnPaymentFilters,
        response: { 200: PaymentSummaryPage },
      },
    },
    async ({ agent, query: { detail, ...filters } }) => {
      const page = await app.paymentHistory.page(agent.id, filters);
      return detail === "full" ? page : { ...page, items: page.items.map(shortPayment) };
    },
  );

  app.get(
    "/api/agents/me/payments/:id",
    {
      config,
      schema: {
        tags,
        operationId: "getPayment",
        summary: "One payment",
        params: IdParams,
        response: { 200: Payment },
      },
    },
    async ({ agent, params }) => app.paymentHistory.one(agent.id, params.id),
  );
};

const forOwners: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "owner" } as const;
  const tags = ["owners: payments"];

  app.get(
    "/api/agents/:id/payments",
    {
      config,
      schema: {
        tags,
        operationId: "listAgentPayments",
        summary: "An agent's payments, newest first; `Accept: text/csv` exports all that match",
        params: IdParams,
        querystring: PaymentFilters,
        produces: ["application/json", "text/csv"],
        response: { 200: PaymentPage },
      },
    },
    async (request, reply) => {
      const { owner, params, query } = request;
      const agent = await ownAgent(app.prisma, owner, params.id);
      reply.headers({ "cache-control": "no-store", vary: "accept" });
      if (!/\btext\/csv\b/.test(request.headers.accept ?? ""))
        return app.paymentHistory.page(agent.id, query);
      // The first chunk is read before the status is sent, so an invalid filter still returns an error.
      const lines = app.paymentHistory.csv(agent.id, query);
      const first = await lines.next();
      return reply
        .type("text/csv; charset=utf-8")
        .header("content-disposition", `attachment; filename="payments-${agent.id}.csv"`)
        .serializer((payload: unknown) => payload as string)
        .send(Readable.from(prepend(first.value ?? "", lines)) as never);
    },
  );

  app.get(
    "/api/payments",
    {
      config: {
        ...config,
        limit: "report",
        errors: ["invalid_address", "invalid_amount", "not_found", "too_much_to_read"],
      },
      schema: {
        tags,
        operationId: "searchPayments",
        summary: "Payments of all agents, newest first",
        querystring: OwnerPaymentFilters,
        response: { 200: PaymentPage },
      },
    },
    async ({ owner, query }, reply) => {
      reply.header("cache-control", "no-store");
      return app.paymentHistory.search(owner.id, query);
    },
  );

  app.get(
    "/api/agents/:id/payments/:paymentId",
    {
      config,
      schema: {
        tags,
        operationId: "getAgentPayment",
        summary: "One payment with the decision's trace",
        params: PaymentParams,
        response: { 200: Payment },
      },
    },
    async (request) => {
      const { owner, params } = request;
      const agent = await ownAgent(app.prisma, owner, params.id);
      return app.paymentHistory.one(agent.id, params.paymentId);
    },
  );

  app.get(
    "/api/overview",
    {
      config: { auth: "owner", errors: ["not_found"] },
      schema: {
        tags: ["owners: payments"],
        operationId: "getOverview",
        summary: "Totals and time series over all agents, or one",
        querystring: OverviewQuery,
        response: { 200: Overview },
      },
    },
    async (request, reply) => {
      const { owner, query } = request;
      if (query.agentId !== undefined) await ownAgent(app.prisma, owner, query.agentId);
      reply.header("cache-control", "no-store");
      return app.overview({ ownerId: owner.id, agentId: query.agentId });
    },
  );
};

async function* prepend(first: string, rest: AsyncGenerator<string>): AsyncGenerator<string> {
  yield first;
  yield* rest;
}

export default routes;
