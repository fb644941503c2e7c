/** Budgets: limits of an owner over several agents together. */
import fp from "fastify-plugin";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { BUDGET_FIELDS } from "../../../packages/rules/src/budgets.ts";
import { formatAtomic } from "../../core/money.ts";
import { readPage, toPage } from "../../core/paging.ts";
import { IdParams, PageQuery } from "../../schemas/common.ts";
import {
  ArchiveBudgetBody,
  Budget,
  BudgetAgentPage,
  BudgetPage,
  budgetRefusals,
  ChangeBudgetBody,
  NewBudgetBody,
} from "../../schemas/budgets.ts";
import { ownerCall } from "../agents/change.ts";
import { budgetOnWire } from "../guardrails/available.ts";
import { readBudgetLimits } from "../guardrails/store.ts";
import { acceptEmptyJson } from "../http/index.ts";
import { archiveBudget, budgetNotFound, changeBudget, createBudget } from "./budgets.ts";
import { findBudget, listBudgets, listMembers, membersOf, type BudgetRow } from "./store.ts";

export default fp(
  async (app) => {
    await app.register(routes);
  },
  { name: "budgets" },
);

const routes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  const tags = ["owners: budgets"];
  // An owner's orders that concern no single agent are signed for the first network.
  const chainId = app.config.networks[0].chainId;

  async function view(ownerId: string, budgets: readonly BudgetRow[]): Promise<Budget[]> {
    const [members, limits] = await Promise.all([
      membersOf(app.prisma, ownerId),
      readBudgetLimits(
        app.pool,
        budgets.map(({ id }) => id),
      ),
    ]);
    return budgets.map((budget) => ({
      id: budget.id,
      name: budget.name,
      ...limitsOnWire(budget),
      version: budget.version,
      agents: members.get(budget.id)?.agents ?? [],
      agentCount: members.get(budget.id)?.count ?? 0,
      windows: limits
        .filter(({ id }) => id === budget.id)
        .map((limit) => ({ ...budgetOnWire(limit), used: formatAtomic(limit.usedAtomic) })),
      createdAt: budget.createdAt.toISOString(),
      updatedAt: budget.updatedAt.toISOString(),
      archivedAt: budget.archivedAt?.toISOString() ?? null,
    }));
  }

  async function viewOne(ownerId: string, budget: BudgetRow): Promise<Budget> {
    const [one] = await view(ownerId, [budget]);
    if (!one) throw budgetNotFound();
    return one;
  }

  app.get(
    "/api/budgets",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listBudgets",
        summary: "This owner's budgets: all of them, at most 100, with what is used and available",
        response: { 200: BudgetPage },
      },
    },
    async ({ owner }) => ({
      items: await view(owner.id, await listBudgets(app.prisma, owner.id)),
      nextCursor: null,
    }),
  );

  app.post(
    "/api/budgets",
    {
      config: { auth: "owner", second: true, errors: ["conflict", "not_found"] },
      schema: {
        tags,
        operationId: "createBudget",
        summary: "Create a budget over agents: limits that they share, beside their own",
        body: NewBudgetBody,
        response: { 201: Budget },
      },
    },
    async (request, reply) => {
      const budget = await createBudget(ownerCall(request), request.body);
      return reply.code(201).send(await viewOne(request.owner.id, budget));
    },
  );

  app.get(
    "/api/budgets/:id",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "getBudget",
        summary: "One budget",
        params: IdParams,
        response: { 200: Budget },
      },
    },
    async ({ owner, params }) => {
      const budget = await findBudget(app.prisma, owner.id, params.id);
      if (!budget) throw budgetNotFound();
      return viewOne(owner.id, budget);
    },
  );

  app.get(
    "/api/budgets/:id/agents",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listBudgetAgents",
        summary: "The agents in a budget, newest first",
        params: IdParams,
        querystring: PageQuery,
        response: { 200: BudgetAgentPage },
      },
    },
    async ({ owner, params, query }) => {
      if (!(await findBudget(app.prisma, owner.id, params.id))) throw budgetNotFound();
      const page = readPage(query);
      const rows = await listMembers(app.prisma, owner.id, params.id, page);
      return toPage(rows, page.limit, ({ id, name, status }) => ({ id, name, status }));
    },
  );

  app.patch(
    "/api/budgets/:id",
    {
      config: { auth: "owner", second: true },
      schema: {
        tags,
        operationId: "changeBudget",
        summary:
          "Change name or limits, put agents in or take them out. A higher or dropped limit, and taking out agents, need the owner's signature",
        params: IdParams,
        body: ChangeBudgetBody,
        response: { 200: Budget, ...budgetRefusals },
      },
    },
    async (request) => {
      const { params, body, owner } = request;
      return viewOne(owner.id, await changeBudget(ownerCall(request), chainId, params.id, body));
    },
  );

  app.delete(
    "/api/budgets/:id",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "archiveBudget",
        summary: "Archive a budget, with the owner's signature: it limits no agent any more",
        params: IdParams,
        body: ArchiveBudgetBody,
        response: { 200: Budget, ...budgetRefusals },
      },
    },
    async (request) => {
      const { params, body, owner } = request;
      const call = ownerCall(request);
      return viewOne(owner.id, await archiveBudget(call, chainId, params.id, body.authorization));
    },
  );
};

const limitsOnWire = (budget: BudgetRow) =>
  Object.fromEntries(
    BUDGET_FIELDS.map(({ name, kind }) => [name, kind.wire(budget[name])]),
  ) as Pick<Budget, "dailyLimit" | "weeklyLimit" | "monthlyLimit">;
