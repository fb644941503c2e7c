/** Routes of x402-fetch, for agents and for owners who try it out, and of the fetch ledger. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyReply } from "fastify";
import { parseExact } from "../../core/exact-json.ts";
import { readPage, toPage } from "../../core/paging.ts";
import { ApiError } from "../../errors.ts";
import { ApprovalRequired } from "../../schemas/approvals.ts";
import { IdParams, PageQuery, type Detail } from "../../schemas/common.ts";
import { FetchPage, type FetchWire } from "../../schemas/fetches.ts";
import { X402FetchAnswer, X402FetchRequest } from "../../schemas/x402-fetch.ts";
import { ownAgent } from "../agents/store.ts";
import { keepJsonText, whenSent } from "../http/index.ts";
import { FETCH_ROUTE } from "../payments/index.ts";
import { withDetail } from "./detail.ts";
import type { FetchCaller } from "./job.ts";
import { listFetches, type FetchRow } from "./ledger.ts";
import type { FetchInput } from "./request.ts";

const TRY = "POST /api/agents/:id/try";

/** Error codes of a paid fetch, in addition to those of any request to a target. */
const FETCHING = [
  "listing_not_active",
  "fetch_quota_exceeded",
  "paid_upstream_failed",
  "charge_not_known",
  "price_not_announced",
  "channel_busy",
] as const;

const routes: FastifyPluginAsyncTypebox = async (app) => {
  keepJsonText(app);

  /**
   * The fetch's share of memory is held while it runs, even if the client disconnects, and until its response
   * is sent.
   */
  async function fetched(
    reply: FastifyReply,
    { input, detail }: { input: FetchInput; detail: Detail | undefined },
    caller: Omit<FetchCaller, "lease">,
  ): Promise<FastifyReply> {
    const lease = app.fetchBudget.enter({ agentId: caller.id, ownerId: caller.ownerId });
    if (caller.idempotency) caller.idempotency.room = () => lease.reserve();
    try {
      const answer = await app.x402Client.fetch(input, { ...caller, lease });
      return reply.sendAnswer(withDetail(answer, detail));
    } finally {
      const end = (): void => lease.end();
      const between = app.lostResponses.intermediaryOf(reply.request);
      if (between) between.whenSent(end);
      else whenSent(reply, end);
    }
  }

  app.post(
    "/api/agents/x402-fetch",
    {
      config: {
        auth: "agent",
        limit: "fetch",
        guardrails: { kind: "x402" },
        idempotencyKey: true,
        errors: FETCHING,
      },
      schema: {
        tags: ["agents"],
        operationId: "agentFetch",
        summary: "Fetch a URL and pay for it over x402 within the agent's limits",
        body: X402FetchRequest,
        response: { 200: X402FetchAnswer, 202: ApprovalRequired },
      },
    },
    async (request, reply) => {
      const { agent } = request;
      const { body, detail } = splitDetail(request);
      const isTool = app.lostResponses.intermediaryOf(request) !== undefined;
      return fetched(
        reply,
        { input: isTool ? withJsonType(body) : body, detail },
        {
          id: agent.id,
          ownerId: agent.ownerId,
          walletAddress: agent.walletAddress,
          apiKeyId: agent.apiKeyId,
          network: agent.network,
          fetch: agent.fetch,
          usesChannels: agent.usesChannels,
          hasDenied: agent.hasDenied,
          requestId: request.id,
          idempotency: await request.payingRef({
            subjectId: agent.id,
            route: FETCH_ROUTE,
            body,
            reply,
          }),
        },
      );
    },
  );

  app.post(
    "/api/agents/:id/try",
    {
      config: {
        auth: "owner",
        guardrails: { kind: "x402" },
        idempotencyKey: true,
        errors: FETCHING,
      },
      schema: {
        tags: ["owners: payments"],
        operationId: "tryFetch",
        summary: "Fetch as this agent would, under its limits, without its key",
        params: IdParams,
        body: X402FetchRequest,
        response: { 200: X402FetchAnswer, 202: ApprovalRequired },
      },
    },
    async (request, reply) => {
      const { owner, params } = request;
      const { body, detail } = splitDetail(request);
      const agent = await ownAgent(app.prisma, owner, params.id);
      return fetched(
        reply,
        { input: body, detail },
        {
          id: agent.id,
          ownerId: agent.ownerId,
          walletAddress: agent.walletAddress,
          apiKeyId: null,
          network: agent.network,
          fetch: agent.fetch,
          usesChannels: (agent.channelHeldAtomic ?? 0n) > 0n,
          hasDenied: true,
          requestId: request.id,
          idempotency: await request.payingRef({ subjectId: agent.id, route: TRY, body, reply }),
        },
      );
    },
  );

  app.get(
    "/api/agents/me/payments/:id/answer",
    {
      config: { auth: "agent", errors: ["fetch_capacity"] },
      schema: {
        tags: ["agents"],
        operationId: "getPaymentAnswer",
        summary: "The full answer of the fetch that made this payment",
        description:
          "Kept for 48 hours with an Idempotency-Key or over MCP, otherwise until it was delivered.",
        params: IdParams,
        response: { 200: X402FetchAnswer },
      },
    },
    async ({ agent, params }, reply) => {
      const lease = app.fetchBudget.enter({ agentId: agent.id, ownerId: agent.ownerId });
      try {
        const key = await app.keyOfFetch({ agentId: agent.id, paymentId: params.id });
        const body =
          key === undefined
            ? undefined
            : await app.storedFetch(agent.id, key, () => lease.reserve());
        if (!body)
          throw new ApiError("not_found", { detail: "No answer is kept for this payment." });
        return reply.sendAnswer(withDetail({ statusCode: 200, body, replayed: false }, "full"));
      } finally {
        whenSent(reply, () => lease.end());
      }
    },
  );

  const presentPage = async (agentId: string, query: { limit?: string; cursor?: string }) => {
    const page = readPage(query);
    return toPage(await listFetches(app.prisma, agentId, page), page.limit, presentFetch);
  };

  app.get(
    "/api/agents/me/fetches",
    {
      config: { auth: "agent" },
      schema: {
        tags: ["agents"],
        operationId: "listFetches",
        summary: "Every fetch of the agent, free or paid, newest first",
        querystring: PageQuery,
        response: { 200: FetchPage },
      },
    },
    ({ agent, query }) => presentPage(agent.id, query),
  );

  app.get(
    "/api/agents/:id/fetches",
    {
      config: { auth: "owner" },
      schema: {
        tags: ["owners: payments"],
        operationId: "listAgentFetches",
        summary: "Every fetch of an agent, free or paid, newest first",
        params: IdParams,
        querystring: PageQuery,
        response: { 200: FetchPage },
      },
    },
    async ({ owner, params, query }) => {
      const agent = await ownAgent(app.prisma, owner, params.id);
      return presentPage(agent.id, query);
    },
  );
};

/** `detail` is about the response only: a call that differs in nothing else is the same call. */
function splitDetail(request: {
  body: FetchInput & { detail?: Detail };
  jsonText: string | undefined;
}): {
  body: FetchInput;
  detail: Detail | undefined;
} {
  const { detail, ...body } = asWritten(request);
  return { body, detail };
}

/**
 * A tool's body is always text, because strict schemas have no free values: JSON text is sent as JSON. This is added
 * here and not to the call, so that a repeat of the call remains the same call.
 */
function withJsonType(input: FetchInput): FetchInput {
  const { body, headers = {} } = input;
  const isNamed = Object.keys(headers).some((name) => /^content-type$/i.test(name));
  if (isNamed || typeof body !== "string" || !/^\s*[[{]/.test(body) || !isJson(body)) return input;
  return { ...input, headers: { ...headers, "content-type": "application/json" } };
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Keeps the numbers as the caller wrote them in what is forwarded to the target. */
function asWritten<T extends { body?: unknown; mcp?: unknown }>({
  body,
  jsonText,
}: {
  body: T;
  jsonText: string | undefined;
}): T {
  const isJson = body.body !== undefined && typeof body.body !== "string";
  if (jsonText === undefined || !(isJson || body.mcp)) return body;
  const written = parseExact(jsonText) as T;
  return {
    ...body,
    ...(isJson && { body: written.body }),
    ...(body.mcp !== undefined && { mcp: written.mcp }),
  };
}

function presentFetch(row: FetchRow): FetchWire {
  const { agentId: _agentId, bytes, keptBytes, createdAt, endedAt, ...facts } = row;
  return {
    ...(facts as typeof facts & Pick<FetchWire, "kind" | "outcome">),
    bytes: Number(bytes),
    keptBytes: Number(keptBytes),
    createdAt: createdAt.toISOString(),
    endedAt: endedAt?.toISOString() ?? null,
  };
}

export default routes;
