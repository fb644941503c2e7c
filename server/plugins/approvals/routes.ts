/** Routes of approvals: an agent waits for its own, an owner reads and decides. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { readPage, toPage } from "../../core/paging.ts";
import {
  AgentApproval,
  Approval,
  ApprovalPage,
  ApprovalQuery,
  ApproveBody,
  WaitQuery,
} from "../../schemas/approvals.ts";
import { IdParams } from "../../schemas/common.ts";
import { approvalRefusals } from "../../schemas/orders.ts";
import { ownerCall } from "../agents/change.ts";
import { acceptEmptyJson } from "../http/index.ts";
import { listApprovals, type ApprovalState } from "./store.ts";
import type { Waiting } from "./waiting.ts";

const routes: FastifyPluginAsyncTypebox<{ waiting: Waiting }> = async (app, { waiting }) => {
  acceptEmptyJson(app);
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const tags = ["owners: approvals"];
  const { approvals } = app;

  app.get(
    "/api/agents/approvals/:id",
    {
      config: { auth: "agent" },
      schema: {
        tags: ["agents"],
        operationId: "waitForApproval",
        summary: "One of the agent's requests for approval; `?wait=30` waits for the owner",
        params: IdParams,
        querystring: WaitQuery,
        response: { 200: AgentApproval },
      },
    },
    async ({ agent, params, query }, reply) => {
      const found = await approvals.ofAgent(agent.id, params.id);
      const timeoutMs = Number(query.wait ?? 0) * 1000;
      if (found.status !== "open" || timeoutMs === 0) return found;
      const gone = new AbortController();
      reply.raw.once("close", () => gone.abort());
      const { id: agentId, ownerId } = agent;
      await waiting.wait({ agentId, ownerId, id: params.id, timeoutMs, gone: gone.signal });
      return approvals.ofAgent(agent.id, params.id);
    },
  );

  app.get(
    "/api/approvals",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listApprovals",
        summary: "Approval requests of this owner's agents, newest first",
        querystring: ApprovalQuery,
        response: { 200: ApprovalPage },
      },
    },
    async ({ owner, query }) => {
      const page = readPage(query);
      const states = query.status?.split(",") as ApprovalState[] | undefined;
      const rows = await listApprovals(app.prisma, { ownerId: owner.id, states, page });
      return toPage(rows, page.limit, (row) => approvals.view(row));
    },
  );

  app.get(
    "/api/approvals/:id",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "getApproval",
        summary: "One request for approval",
        params: IdParams,
        response: { 200: Approval },
      },
    },
    async ({ owner, params }) => approvals.view(await approvals.ofOwner(owner.id, params.id)),
  );

  app.post(
    "/api/approvals/:id/approve",
    {
      config: { auth: "owner", team: "approver", errors: ["approval_closed", "denied_by_owner"] },
      schema: {
        tags,
        operationId: "approvePayment",
        summary: "Allow this payment once, with the owner's signature",
        params: IdParams,
        body: ApproveBody,
        response: { 200: Approval, ...approvalRefusals },
      },
    },
    async (request) => approvals.approve(ownerCall(request), request.params.id),
  );

  app.post(
    "/api/approvals/:id/decline",
    {
      config: {
        auth: "owner",
        team: "approver",
        errors: ["approval_closed", "conflict", "agent_busy"],
      },
      schema: {
        tags,
        operationId: "declinePayment",
        summary: "Decline a request, or revoke an approval that is not used yet",
        params: IdParams,
        response: { 200: Approval },
      },
    },
    async (request) => approvals.decline(ownerCall(request), request.params.id),
  );
};

export default routes;
