import { Readable } from "node:stream";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { ownAgent } from "../agents/change.ts";
import { IdParams, Page } from "../../schemas/common.ts";
import { Payment, PaymentFilters, PaymentParams } from "../../schemas/payments.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "owner" } as const;
  const tags = ["owners: payments"];

  app.get(
    "/api/agents/:id/payments",
    {
      config,
      schema: {
        tags,
        summary: "An agent's payments, newest first; `Accept: text/csv` exports all that match",
        params: IdParams,
        querystring: PaymentFilters,
        produces: ["application/json", "text/csv"],
        response: { 200: Page(Payment) },
      },
    },
    async (request, reply) => {
      const { owner, params, query } = request;
      const agent = await ownAgent({ prisma: app.prisma, owner, requestId: request.id }, params.id);
      reply.headers({ "cache-control": "no-store", vary: "accept" });
      if (!/\btext\/csv\b/.test(request.headers.accept ?? ""))
        return app.paymentHistory.page(agent.id, query);
      // The first chunk is read before the status goes out: a refused filter is still an error.
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
    "/api/agents/:id/payments/:paymentId",
    {
      config,
      schema: {
        tags,
        summary: "One payment with the decision's trace",
        params: PaymentParams,
        response: { 200: Payment },
      },
    },
    async (request) => {
      const { owner, params } = request;
      const agent = await ownAgent({ prisma: app.prisma, owner, requestId: request.id }, params.id);
      return app.paymentHistory.one(agent.id, params.paymentId);
    },
  );
};

async function* prepend(first: string, rest: AsyncGenerator<string>): AsyncGenerator<string> {
  yield first;
  yield* rest;
}

export default routes;
