import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress, type Address } from "viem";
import { listAudit } from "./audit.ts";
import { ownAgent } from "./change.ts";
import { readPage, toPage } from "../../core/paging.ts";
import { AuditPage } from "../../schemas/agents.ts";
import { IdParams, PageQuery } from "../../schemas/common.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/agents/:id/audit",
    {
      config: { auth: "owner" },
      schema: {
        tags: ["owners: agents"],
        summary: "Every change of rules and keys: who, when, before, after",
        params: IdParams,
        querystring: PageQuery,
        response: { 200: AuditPage },
      },
    },
    async ({ owner, params, query, id: requestId }) => {
      const page = readPage(query);
      const agent = await ownAgent({ prisma: app.prisma, owner, requestId }, params.id);
      return toPage(await listAudit(app.prisma, agent.id, page), page.limit, (row) => ({
        id: row.id,
        actor: getAddress(row.actor as Address),
        action: row.action,
        before: row.before,
        after: row.after,
        requestId: row.requestId,
        createdAt: row.createdAt.toISOString(),
      }));
    },
  );
};

export default routes;
