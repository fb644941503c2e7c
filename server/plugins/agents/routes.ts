import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress } from "viem";
import { formatAtomic } from "../../core/money.ts";
import { readPage, toPage } from "../../core/paging.ts";
import {
  AddAllowlistBody,
  AgentDetail,
  AgentListQuery,
  AgentPage,
  Allowlist,
  AllowlistParams,
  CreateAgentBody,
  CreatedAgent,
  RemoveAllowedQuery,
  ReplaceAllowlistBody,
  UpdateAgentBody,
} from "../../schemas/agents.ts";
import { AuditPage } from "../../schemas/audit.ts";
import { IdParams, PageQuery } from "../../schemas/common.ts";
import { ApiError } from "../../errors.ts";
import { policyRefusals } from "../../schemas/orders.ts";
import { OwnerBalance, OwnerBalanceQuery } from "../../schemas/owners.ts";
import { acceptEmptyJson } from "../http/index.ts";
import { archiveAgent, createAgent, editAgent } from "./agents.ts";
import { addToAllowlist, removeAllowed, replaceAllowlist } from "./allowlist.ts";
import { viewEntry as viewAuditEntry } from "../audit/index.ts";
import { listAudit } from "../audit/store.ts";
import { signsWith } from "../owners/store.ts";
import { listAgents, ownAgent } from "./store.ts";
import { ownerCall } from "./change.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { viewKey } from "./keys.ts";
import { viewEntry } from "./view.ts";

/** A policy with a thousand payees is sent twice: as the requested rules, and as the signed order. */
const SIGNED_BODY_LIMIT_BYTES = 1024 * 1024;

export const agentRoutes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  const tags = ["owners: agents"];
  const [first, ...rest] = app.config.networks;
  const deps = { custody: app.custody, networks: [first, ...rest] as const };

  app.get(
    "/api/agents",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listAgents",
        summary: "This owner's agents, newest first",
        querystring: AgentListQuery,
        response: { 200: AgentPage },
      },
    },
    async ({ owner, query }) => {
      const page = readPage(query);
      const { search, status } = query;
      const archived = query.archived === "true";
      const filter = { ownerId: owner.id, archived, search, status, page };
      const rows = await listAgents(app.prisma, filter);
      const { items, nextCursor } = toPage(rows, page.limit, (row) => row);
      return { items: await app.viewAgents(items), nextCursor };
    },
  );

  app.post(
    "/api/agents",
    {
      config: { auth: "owner", errors: ["denied_by_owner"] },
      bodyLimit: SIGNED_BODY_LIMIT_BYTES,
      schema: {
        tags,
        operationId: "createAgent",
        summary: "Create an agent with its wallet and first API key (shown only once)",
        body: CreateAgentBody,
        response: { 201: CreatedAgent, ...policyRefusals },
      },
    },
    async (request, reply) => {
      const { agent, apiKey, key } = await createAgent(ownerCall(request), request.body, deps);
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
        operationId: "getAgent",
        summary: "One agent",
        params: IdParams,
        response: { 200: AgentDetail },
      },
    },
    async (request) =>
      app.viewAgentDetail(await ownAgent(app.prisma, request.owner, request.params.id)),
  );

  app.patch(
    "/api/agents/:id",
    {
      config: { auth: "owner", second: true, errors: ["denied_by_owner"] },
      bodyLimit: SIGNED_BODY_LIMIT_BYTES,
      schema: {
        tags,
        operationId: "updateAgent",
        summary:
          "Change name, limits, expiry or the whole allowlist; pause or resume. Changes that loosen rules need the owner's signature",
        params: IdParams,
        body: UpdateAgentBody,
        response: { 200: AgentDetail, ...policyRefusals },
      },
    },
    async (request) =>
      app.viewAgentDetail(await editAgent(ownerCall(request), request.params.id, request.body)),
  );

  app.post(
    "/api/agents/:id/archive",
    {
      config: { auth: "owner", second: true, errors: ["agent_has_funds", "chain_unavailable"] },
      schema: {
        tags,
        operationId: "archiveAgent",
        summary:
          "Archive an agent; refused while it has a balance, money in payment channels, or open payments",
        params: IdParams,
        response: { 200: AgentDetail },
      },
    },
    async (request) =>
      app.viewAgentDetail(
        await archiveAgent(ownerCall(request), request.params.id, {
          read: app.walletBalances,
          isConfigured: (networkId) => app.chains.byNetwork(networkId) !== undefined,
        }),
      ),
  );
};

export const allowlistRoutes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  const tags = ["owners: allowlist"];

  app.put(
    "/api/agents/:id/allowlist",
    {
      config: { auth: "owner", second: true, errors: ["denied_by_owner"] },
      bodyLimit: SIGNED_BODY_LIMIT_BYTES,
      schema: {
        tags,
        operationId: "replaceAllowlist",
        summary: "Replace the whole allowlist (up to 1000 addresses)",
        params: IdParams,
        body: ReplaceAllowlistBody,
        response: { 200: Allowlist, ...policyRefusals },
      },
    },
    async (request) => {
      const { allowlist } = request.body;
      const rows = await replaceAllowlist(ownerCall(request), request.params.id, allowlist);
      return { allowlist: rows.map(viewEntry) };
    },
  );

  app.post(
    "/api/agents/:id/allowlist",
    {
      config: { auth: "owner", second: true, errors: ["denied_by_owner"] },
      bodyLimit: SIGNED_BODY_LIMIT_BYTES,
      schema: {
        tags,
        operationId: "allowPayee",
        summary: "Allow an address, or change its limits",
        params: IdParams,
        body: AddAllowlistBody,
        response: { 201: Allowlist, ...policyRefusals },
      },
    },
    async (request, reply) => {
      const rows = await addToAllowlist(ownerCall(request), request.params.id, request.body);
      return reply.code(201).send({ allowlist: rows.map(viewEntry) });
    },
  );

  app.delete(
    "/api/agents/:id/allowlist/:address",
    {
      config: { auth: "owner", second: true, errors: ["owner_signature_required"] },
      schema: {
        tags,
        operationId: "disallowPayee",
        summary: "Remove an address, at one site or everywhere",
        params: AllowlistParams,
        querystring: RemoveAllowedQuery,
        response: { 200: Allowlist, 403: policyRefusals[403] },
      },
    },
    async (request) => {
      const { id, address } = request.params;
      const { site } = request.query;
      const rows = await removeAllowed(ownerCall(request), id, { address, site });
      return { allowlist: rows.map(viewEntry) };
    },
  );
};

export const auditRoutes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/agents/:id/audit",
    {
      config: { auth: "owner" },
      schema: {
        tags: ["owners: agents"],
        operationId: "listAgentAudit",
        summary: "Every change of rules and keys, with author, time, and values before and after",
        params: IdParams,
        querystring: PageQuery,
        response: { 200: AuditPage },
      },
    },
    async (request) => {
      const page = readPage(request.query);
      const agent = await ownAgent(app.prisma, request.owner, request.params.id);
      const rows = await listAudit(app.prisma, { agentId: agent.id }, page);
      return toPage(rows, page.limit, viewAuditEntry);
    },
  );
};

export const balanceRoutes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/owner/balance",
    {
      config: { auth: "owner", errors: ["chain_unavailable", "conflict"] },
      schema: {
        tags: ["owners: session"],
        operationId: "getOwnerBalance",
        summary: "USDC balance of the owner's wallet, which funds agents",
        querystring: OwnerBalanceQuery,
        response: { 200: OwnerBalance },
      },
    },
    async ({ owner, query }, reply) => {
      // Nobody may take the name of such an owner for an address.
      if (signsWith(owner.chainId) === "passkeys")
        throw new ApiError("conflict", { detail: "Your account has passkeys and no wallet." });
      const chain =
        query.network === undefined ? app.chains.default : app.chains.byNetwork(query.network);
      if (!chain) throw refuseField("validation_failed", "query.network", "is not configured here");
      const { balances } = await app.chainReads.balances(chain.network.chainId, [owner.address]);
      reply.header("cache-control", "no-store");
      return {
        network: chain.network.id,
        address: getAddress(owner.address),
        balance: formatAtomic(balances.get(owner.address) ?? 0n),
      };
    },
  );
};
