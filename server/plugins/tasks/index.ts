/** Tasks: budgets that an agent opens itself, out of its own limits. */
import fp from "fastify-plugin";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { readPage, toPage } from "../../core/paging.ts";
import { IdParams, PageQuery } from "../../schemas/common.ts";
import { NewTaskBody, Task, TaskPage, TaskParams, TaskQuery } from "../../schemas/tasks.ts";
import { ownAgent } from "../agents/store.ts";
import { acceptEmptyJson } from "../http/index.ts";
import { closeTask, countOpenTasks, findTask, listTasks } from "./store.ts";
import { openTask, taskNotFound, taskOnWire } from "./tasks.ts";

export interface OpenTasks {
  open: number;
  newest: Pick<Task, "id" | "left" | "expiresAt">[];
}

declare module "fastify" {
  interface FastifyInstance {
    /** The agent's open tasks: how many, and the newest few. Undefined: it has none. */
    openTasks(agentId: string): Promise<OpenTasks | undefined>;
  }
}

const NEWEST = 5;

export default fp(
  async (app) => {
    app.decorate("openTasks", async (agentId: string) => {
      const page = { limit: NEWEST, after: undefined };
      const rows = await listTasks(app.prisma, agentId, { page, onlyOpen: true });
      if (rows.length === 0) return undefined;
      const newest = rows
        .slice(0, NEWEST)
        .map(taskOnWire)
        .map(({ id, left, expiresAt }) => ({ id, left, expiresAt }));
      const open = rows.length > NEWEST ? await countOpenTasks(app.prisma, agentId) : rows.length;
      return { open, newest };
    });
    await app.register(routes);
  },
  { name: "tasks" },
);

const routes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  const tags = ["agents"];

  async function oneOf(agentId: string, id: string): Promise<Task> {
    const task = await findTask(app.prisma, agentId, id);
    if (!task) throw taskNotFound();
    return taskOnWire(task);
  }

  app.post(
    "/api/agents/tasks",
    {
      config: {
        auth: "agent",
        limit: "task",
        errors: ["invalid_amount", "task_exists", "too_many_tasks", "agent_busy"],
      },
      schema: {
        tags,
        operationId: "openTask",
        summary: "Open a task: a ceiling for payments that name it, within the agent's own limits",
        body: NewTaskBody,
        response: { 200: Task, 201: Task },
      },
    },
    async ({ agent, body }, reply) => {
      const { task, isNew } = await app.withAgentLock(agent.id, () =>
        openTask(app.prisma, agent.id, body),
      );
      return reply.code(isNew ? 201 : 200).send(taskOnWire(task));
    },
  );

  app.get(
    "/api/agents/tasks",
    {
      config: { auth: "agent" },
      schema: {
        tags,
        operationId: "listTasks",
        summary: "The agent's tasks, newest first",
        querystring: TaskQuery,
        response: { 200: TaskPage },
      },
    },
    async ({ agent, query }) => {
      const page = readPage(query);
      const onlyOpen = query.state === "open";
      const rows = await listTasks(app.prisma, agent.id, { page, onlyOpen });
      return toPage(rows, page.limit, taskOnWire);
    },
  );

  app.get(
    "/api/tasks/:id",
    {
      config: { auth: "agent" },
      schema: {
        tags,
        operationId: "getTask",
        summary: "One task: what it cost, what is reserved, and what is left",
        params: TaskParams,
        response: { 200: Task },
      },
    },
    async ({ agent, params }) => oneOf(agent.id, params.id),
  );

  app.post(
    "/api/tasks/:id/close",
    {
      config: { auth: "agent", limit: "task" },
      schema: {
        tags,
        operationId: "closeTask",
        summary: "Close a task: it pays nothing more. Payments that are reserved still end",
        params: TaskParams,
        response: { 200: Task },
      },
    },
    async ({ agent, params }) => {
      await closeTask(app.prisma, agent.id, params.id);
      return oneOf(agent.id, params.id);
    },
  );

  app.get(
    "/api/agents/:id/tasks",
    {
      config: { auth: "owner" },
      schema: {
        tags: ["owners: payments"],
        operationId: "listAgentTasks",
        summary: "An agent's tasks, newest first",
        params: IdParams,
        querystring: PageQuery,
        response: { 200: TaskPage },
      },
    },
    async ({ owner, params, query }) => {
      const agent = await ownAgent(app.prisma, owner, params.id);
      const page = readPage(query);
      const rows = await listTasks(app.prisma, agent.id, { page, onlyOpen: false });
      return toPage(rows, page.limit, taskOnWire);
    },
  );
};
