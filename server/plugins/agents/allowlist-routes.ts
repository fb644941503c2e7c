import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyRequest } from "fastify";
import { viewEntry } from "./view.ts";
import { addToAllowlist, removeAllowed, replaceAllowlist } from "./allowlist.ts";
import type { OwnerCall } from "./change.ts";
import {
  AddAllowlistBody,
  Allowlist,
  AllowlistParams,
  ReplaceAllowlistBody,
} from "../../schemas/agents.ts";
import { IdParams } from "../../schemas/common.ts";
import { acceptEmptyJson } from "../http/empty-json.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  const tags = ["owners: allowlist"];
  const call = (request: FastifyRequest): OwnerCall => ({
    prisma: app.prisma,
    owner: request.owner,
    requestId: request.id,
  });

  app.put(
    "/api/agents/:id/allowlist",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        summary: "Replace the whole allowlist (up to 1000 addresses)",
        params: IdParams,
        body: ReplaceAllowlistBody,
        response: { 200: Allowlist },
      },
    },
    async (request) => {
      const { allowlist } = request.body;
      const rows = await replaceAllowlist(call(request), request.params.id, allowlist);
      return { allowlist: rows.map(viewEntry) };
    },
  );

  app.post(
    "/api/agents/:id/allowlist",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        summary: "Allow one more address, or change its label",
        params: IdParams,
        body: AddAllowlistBody,
        response: { 201: Allowlist },
      },
    },
    async (request, reply) => {
      const rows = await addToAllowlist(call(request), request.params.id, request.body);
      return reply.code(201).send({ allowlist: rows.map(viewEntry) });
    },
  );

  app.delete(
    "/api/agents/:id/allowlist/:address",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        summary: "Allow an address no more",
        params: AllowlistParams,
        response: { 200: Allowlist },
      },
    },
    async (request) => {
      const { id, address } = request.params;
      return { allowlist: (await removeAllowed(call(request), id, address)).map(viewEntry) };
    },
  );
};

export default routes;
