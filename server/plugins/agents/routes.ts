import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyRequest } from "fastify";
import { listAgents } from "./store.ts";
import { archiveAgent } from "./archive.ts";
import { createAgent, editAgent } from "./agents.ts";
import { ownAgent, type OwnerCall } from "./change.ts";
import { viewKey } from "./keys.ts";
import { readPage, toPage } from "../../core/paging.ts";
import {
  AgentDetail,
  AgentListQuery,
  AgentPage,
  CreateAgentBody,
  CreatedAgent,
  UpdateAgentBody,
} from "../../schemas/agents.ts";
import { IdParams } from "../../schemas/common.ts";
import { acceptEmptyJson } from "../http/empty-json.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  const tags = ["owners: agents"];
  const call = (request: FastifyRequest): OwnerCall => ({
    prisma: app.prisma,
    owner: request.owner,
    requestId: request.id,
  });
  const [first, ...rest] = app.config.networks;
  const deps = { custody: app.custody, networks: [first, ...rest] as const };

  app.get(
    "/api/agents",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        summary: "This owner's agents, newest first",
        querystring: AgentListQuery,
        response: { 200: AgentPage },
      },
    },
    async ({ owner, query }) => {
      const page = readPage(query);
      const archived = query.archived === "true";
      const rows = await listAgents(app.prisma, { ownerId: owner.id, archived, page });
      const { items, nextCursor } = toPage(rows, page.limit, (row) => row);
      return { items: await app.viewAgents(items), nextCursor };
    },
  );

  app.post(
    "/api/agents",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        summary: "Make an agent with its wallet and first API key (shown this one time)",
        body: CreateAgentBody,
        response: { 201: CreatedAgent },
      },
    },
    async (request, reply) => {
      const { agent, apiKey, key } = await createAgent(call(request), request.body, deps);
      const view = await app.viewAgentDetail(agent);
      return reply
        .code(201)
        .header("cache-control", "no-store")
        .send({ agent: view, apiKey, key: viewKey(key) });
    },
  );

  app.get(
    "/api/agents/:id",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        summary: "One agent",
        params: IdParams,
        response: { 200: AgentDetail },
      },
    },
    async (request) => app.viewAgentDetail(await ownAgent(call(request), request.params.id)),
  );

  app.patch(
    "/api/agents/:id",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        summary: "Change name, limits, expiry; pause or resume. Acts at once",
        params: IdParams,
        body: UpdateAgentBody,
        response: { 200: AgentDetail },
      },
    },
    async (request) =>
      app.viewAgentDetail(await editAgent(call(request), request.params.id, request.body)),
  );

  app.post(
    "/api/agents/:id/archive",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        summary: "End an agent; refused while it holds or has promised funds",
        params: IdParams,
        response: { 200: AgentDetail },
      },
    },
    async (request) =>
      app.viewAgentDetail(
        await archiveAgent(call(request), request.params.id, app.readAgentBalance),
      ),
  );
};

export default routes;
