import { Readable } from "node:stream";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyInstance } from "fastify";
import { databaseNow } from "../../infra/db/prisma.ts";
import { IdParams } from "../../schemas/common.ts";
import {
  ExportQuery,
  SavedFilter,
  SavedFilterInput,
  SavedFilters,
  Spending,
  SpendingQuery,
} from "../../schemas/spending.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { readTime } from "../payments/history.ts";
import { agentsOf, withinTime } from "../payments/search.ts";
import { beancountOf } from "./beancount.ts";
import { readBooks } from "./books.ts";
import { listFilters, removeFilter, saveFilter } from "./filters.ts";
import { movementsCsv, movementsOf, type ExportedAgent, type Span } from "./movements.ts";
import { readSpending, readSpendingRequest } from "./sums.ts";

const tags = ["owners: payments"];
const config = { auth: "owner" } as const;

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  await app.register(sums);
  await app.register(filters);
  await app.register(exports);
};

const sums: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/spending",
    {
      config: {
        ...config,
        limit: "report",
        errors: ["invalid_address", "invalid_amount", "not_found", "too_much_to_read"],
      },
      schema: {
        tags,
        operationId: "getSpending",
        summary: "What the agents spent, by payee, site, agent, task or day",
        querystring: SpendingQuery,
        response: { 200: Spending },
      },
    },
    async ({ owner, query }) => {
      const request = readSpendingRequest(query, await databaseNow(app.prisma));
      const { agentId } = request.wanted;
      const agentIds = await agentsOf(app.prisma, { ownerId: owner.id, agentId });
      return app.reading((prisma) =>
        withinTime(prisma, app.config.timings.searchMs, (tx) =>
          readSpending(tx, agentIds, request),
        ),
      );
    },
  );
};

const filters: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/spending/filters",
    {
      config,
      schema: {
        tags,
        operationId: "listFilters",
        summary: "The owner's saved filters",
        response: { 200: SavedFilters },
      },
    },
    async ({ owner }) => ({ items: await listFilters(app.prisma, owner.id) }),
  );

  app.post(
    "/api/spending/filters",
    {
      config: { ...config, errors: ["too_many_filters"] },
      schema: {
        tags,
        operationId: "saveFilter",
        summary: "Save a filter under a name; a filter with this name is replaced",
        body: SavedFilterInput,
        response: { 200: SavedFilter },
      },
    },
    async ({ owner, body }) => saveFilter(app.prisma, owner.id, body),
  );

  app.delete(
    "/api/spending/filters/:id",
    {
      config,
      schema: {
        tags,
        operationId: "removeFilter",
        summary: "Remove a saved filter",
        params: IdParams,
        response: { 200: SavedFilters },
      },
    },
    async ({ owner, params }) => {
      await removeFilter(app.prisma, owner.id, params.id);
      return { items: await listFilters(app.prisma, owner.id) };
    },
  );
};

const exports: FastifyPluginAsyncTypebox = async (app) => {
  const file = (query: ExportQuery, ending: string): string =>
    `attachment; filename="purser-${query.from}-to-${query.to}.${ending}"`;

  app.get(
    "/api/exports/movements.csv",
    {
      config: { ...config, limit: "report", errors: ["not_found"] },
      schema: {
        tags,
        operationId: "exportMovements",
        summary: "A line for everything that moved in wallets and channels, as CSV",
        querystring: ExportQuery,
        produces: ["text/csv"],
      },
    },
    async ({ owner, query }, reply) => {
      const span = readSpan(query);
      const agents = await exportedAgents(app, owner.id, query.agentId);
      const lines = movementsCsv(movementsOf(app.reading, agents, span), (id) => app.networkOf(id));
      return reply
        .type("text/csv; charset=utf-8")
        .header("content-disposition", file(query, "csv"))
        .send(Readable.from(lines));
    },
  );

  app.get(
    "/api/exports/ledger.beancount",
    {
      config: { ...config, limit: "report", errors: ["not_found", "too_much_to_read"] },
      schema: {
        tags,
        operationId: "exportBeancount",
        summary: "The same as double entries, in beancount's format",
        querystring: ExportQuery,
        produces: ["text/plain"],
      },
    },
    async ({ owner, query }, reply) => {
      const span = readSpan(query);
      const agents = await exportedAgents(app, owner.id, query.agentId);
      const ledger = await app.reconciliation.stateFor(owner.id);
      const books = await app.reading((prisma) =>
        withinTime(prisma, app.config.timings.searchMs, (tx) =>
          readBooks(tx, agents, span, ledger),
        ),
      );
      const text = beancountOf(books, movementsOf(app.reading, agents, span), query);
      return reply
        .type("text/plain; charset=utf-8")
        .header("content-disposition", file(query, "beancount"))
        .send(Readable.from(text));
    },
  );
};

function readSpan(query: ExportQuery): Span {
  const from = readTime(query.from, "query.from");
  const to = readTime(query.to, "query.to");
  if (!from || !to || to <= from)
    throw refuseField("validation_failed", "query.to", "must be later than from");
  return { from, to };
}

/** By name, as the lines of the export are. */
async function exportedAgents(
  app: FastifyInstance,
  ownerId: string,
  agentId: string | undefined,
): Promise<ExportedAgent[]> {
  const ids = await agentsOf(app.prisma, { ownerId, agentId });
  return app.prisma.agent.findMany({
    where: { id: { in: ids } },
    select: { id: true, name: true },
    orderBy: [{ name: "asc" }, { id: "asc" }],
  });
}

export default routes;
