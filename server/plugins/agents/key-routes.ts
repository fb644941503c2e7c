import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { listApiKeys } from "../auth/api-keys.ts";
import { ownerCall } from "./change.ts";
import { ownAgent } from "./store.ts";
import { createKey, revokeKey, rotateKey, viewKey } from "./keys.ts";
import { readPage, toPage } from "../../core/paging.ts";
import {
  ApiKeyPage,
  CreateKeyBody,
  CreatedKey,
  KeyParams,
  RevokedKey,
  RotateKeyBody,
  RotatedKey,
} from "../../schemas/agents.ts";
import { IdParams, PageQuery } from "../../schemas/common.ts";
import { keyRefusals } from "../../schemas/orders.ts";
import { acceptEmptyJson } from "../http/index.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const tags = ["owners: keys"];

  app.get(
    "/api/agents/:id/keys",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listAgentKeys",
        summary: "An agent's API keys, revoked ones included; never the keys themselves",
        params: IdParams,
        querystring: PageQuery,
        response: { 200: ApiKeyPage },
      },
    },
    async (request) => {
      const page = readPage(request.query);
      const agent = await ownAgent(app.prisma, request.owner, request.params.id);
      return toPage(await listApiKeys(app.prisma, agent.id, page), page.limit, viewKey);
    },
  );

  app.post(
    "/api/agents/:id/keys",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "createAgentKey",
        summary: "Create an API key (shown only once)",
        params: IdParams,
        body: CreateKeyBody,
        response: { 201: CreatedKey, ...keyRefusals },
      },
    },
    async (request, reply) => {
      const { row, apiKey } = await createKey(ownerCall(request), request.params.id, request.body);
      return reply.code(201).send({ key: viewKey(row), apiKey });
    },
  );

  app.post(
    "/api/agents/:id/keys/:keyId/rotate",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "rotateAgentKey",
        summary: "Replace a key; the old key works until the grace period ends",
        params: KeyParams,
        body: RotateKeyBody,
        response: { 201: RotatedKey, ...keyRefusals },
      },
    },
    async (request, reply) => {
      const { id, keyId } = request.params;
      const graceSeconds = request.body.graceSeconds ?? 0;
      const issued = await rotateKey(ownerCall(request), id, keyId, graceSeconds);
      return reply.code(201).send({
        key: viewKey(issued.row),
        apiKey: issued.apiKey,
        previous: viewKey(issued.previous),
      });
    },
  );

  app.delete(
    "/api/agents/:id/keys/:keyId",
    {
      config: { auth: "owner", second: true },
      schema: {
        tags,
        operationId: "revokeAgentKey",
        summary: "Revoke a key immediately",
        params: KeyParams,
        response: { 200: RevokedKey },
      },
    },
    async (request) => {
      const { id, keyId } = request.params;
      return { key: viewKey(await revokeKey(ownerCall(request), id, keyId)) };
    },
  );
};

export default routes;
