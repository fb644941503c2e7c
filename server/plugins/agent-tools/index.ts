/** The API as tools for agents: MCP, and definitions for the common function-calling formats. */
import { randomUUID } from "node:crypto";
import fp from "fastify-plugin";
import type { FastifyRequest } from "fastify";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { Type } from "typebox";
import { parseExact, parseMembers, stringifyExact } from "../../core/exact-json.ts";
import { isRecord } from "../../core/foreign-text.ts";
import { ApiError } from "../../errors.ts";
import { keepJsonText } from "../http/index.ts";
import { INTERMEDIARY } from "../payments/lost-responses.ts";
import { MAX_INLINE } from "./content.ts";
import { SESSION, canceledCalls, isInitialize, McpRequest } from "./mcp-request.ts";
import { mcpHandler, type McpCaller } from "./mcp-server.ts";
import { anthropicTools, openAiTools } from "./tools.ts";

export default fp(
  async (app) => {
    await app.register(mcpRoutes);
    await app.register(definitionRoutes);
  },
  { name: "agent-tools" },
);

/** Members of the protocol, which are not read here. */
const JsonRpc = Type.Object(
  { jsonrpc: Type.Literal("2.0") },
  {
    additionalProperties: true,
    description: "A message of JSON-RPC 2.0",
    examples: [{ jsonrpc: "2.0", id: 1, method: "tools/list" }],
  },
);

const mcpRoutes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "agent", oauth: true } as const;
  keepJsonText(app);
  // DNS rebinding (MCP's transport requires the check): a foreign page in a browser must not reach a server beside it.
  // Programs send no Origin.
  app.addHook("onRequest", (request, _reply, done) => {
    const { origin } = request.headers;
    if (origin === undefined || mayCall(origin)) return done();
    return done(
      new ApiError("origin_not_allowed", {
        detail: `Pages of ${origin.slice(0, 200)} may not call this MCP server. The operator can allow an origin with MCP_ORIGINS.`,
      }),
    );
  });
  const mayCall = (origin: string): boolean =>
    app.ownOrigins.origins.has(origin) || app.config.mcpOrigins.includes(origin);
  const callers = new WeakMap<Request, McpCaller>();
  const mcp = mcpHandler(
    (request) => callers.get(request),
    (error) => app.log.debug({ err: error }, "MCP request refused"),
  );
  app.addHook("onClose", () => mcp.close());

  app.post(
    "/mcp",
    {
      config: { ...config, errors: ["origin_not_allowed"] },
      schema: {
        tags: ["agents"],
        operationId: "callMcp",
        summary: "Model Context Protocol (streamable HTTP, stateless): the agent's tools",
        body: Type.Unknown({
          description: "A message of JSON-RPC 2.0",
          examples: [{ jsonrpc: "2.0", id: 1, method: "tools/list" }],
        }),
        produces: ["application/json", "text/event-stream"],
        response: {
          200: JsonRpc,
          202: Type.Null({ description: "A notification was accepted" }),
          401: JsonRpc,
        },
      },
    },
    async (request, reply) => {
      const { agent } = request;
      const body = asWritten(request);
      const exchange = new McpRequest(request, reply);
      for (const call of canceledCalls(body, exchange.session))
        await app.cancelCall(agent.id, call);
      callers.set(exchange.request, {
        // An injected request, with the same authentication, schema, guardrails and errors as any caller's.
        async callApi({ method, url, payload }, { idempotencyKey, id, pays } = {}) {
          const between = exchange.intermediary(id);
          const name = randomUUID();
          app.lostResponses.intermediaries.set(name, between);
          const response = await app
            .asAgent(agent, (pass) =>
              app.inject({
                method,
                url,
                ...(payload === undefined ? {} : { payload: stringifyExact(payload) }),
                remoteAddress: request.ip,
                headers: {
                  ...pass,
                  [INTERMEDIARY]: name,
                  ...(payload === undefined ? {} : { "content-type": "application/json" }),
                  ...(idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey }),
                },
              }),
            )
            .finally(() => app.lostResponses.intermediaries.delete(name));
          const { ref } = between;
          // The content of a fetch may be megabytes of tiny elements.
          const parse = (text: string): Record<string, unknown> =>
            pays ? parseMembers(text, MAX_INLINE) : (parseExact(text) as Record<string, unknown>);
          const isJson = /\bjson\b/.test(String(response.headers["content-type"]));
          return {
            status: response.statusCode,
            body: isJson ? parse(response.body) : {},
            text: response.body,
            idempotencyKey: pays
              ? (idempotencyKey ?? ref?.joins?.answeredBy ?? ref?.key)
              : undefined,
          };
        },
        async storedAnswer(key) {
          const lease = app.fetchBudget.enter({ agentId: agent.id, ownerId: agent.ownerId });
          exchange.whenSent(() => lease.end());
          return app.storedFetch(agent.id, key, () => lease.reserve());
        },
      });
      reply.raw.once("finish", () => {
        for (const ref of exchange.delivered()) app.lostResponses.noteDelivered(ref);
      });
      const response = await mcp.fetch(exchange.request, { parsedBody: body });
      // Not stored: it only distinguishes the requests of different clients.
      if (isInitialize(body)) reply.header(SESSION, randomUUID());
      return reply.send(response as never);
    },
  );

  // Stateless: there is no stream to resume and no session to end.
  for (const method of ["GET", "DELETE"] as const) {
    app.route({
      method,
      url: "/mcp",
      config,
      schema: { hide: true },
      handler: async () => {
        throw new ApiError("method_not_allowed", {
          detail: "This MCP server has no sessions. Send every message with POST.",
          headers: { allow: "POST" },
        });
      },
    });
  }
};

const Parameters = Type.Record(Type.String(), Type.Unknown());
const OpenAiTools = Type.Array(
  Type.Object({
    type: Type.Literal("function"),
    function: Type.Object({
      name: Type.String(),
      description: Type.String(),
      strict: Type.Literal(true, {
        description: "The parameters are a schema that strict function calling accepts",
      }),
      parameters: Parameters,
    }),
  }),
);
const AnthropicTools = Type.Array(
  Type.Object({ name: Type.String(), description: Type.String(), input_schema: Parameters }),
);

const definitionRoutes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "public" } as const;
  const tags = ["agents"];

  app.get(
    "/api/tools/openai",
    {
      config,
      schema: {
        tags,
        operationId: "listOpenAiTools",
        summary: "The agent's tools as OpenAI function definitions",
        response: { 200: OpenAiTools },
      },
    },
    async () => openAiTools(),
  );
  app.get(
    "/api/tools/anthropic",
    {
      config,
      schema: {
        tags,
        operationId: "listAnthropicTools",
        summary: "The agent's tools as Anthropic tool definitions",
        response: { 200: AnthropicTools },
      },
    },
    async () => anthropicTools(),
  );
};

/** The body of a tool's fetch is sent to a third party, so its numbers keep their original text. */
function asWritten({ body, jsonText }: Pick<FastifyRequest, "body" | "jsonText">): unknown {
  const fetched = argumentsOf(body)?.["body"];
  if (jsonText === undefined || fetched === undefined || typeof fetched === "string") return body;
  const { params, ...message } = body as { params: Record<string, unknown> };
  const exact = argumentsOf(parseExact(jsonText))?.["body"];
  return { ...message, params: { ...params, arguments: { ...argumentsOf(body), body: exact } } };
}

function argumentsOf(message: unknown): Record<string, unknown> | undefined {
  const params = isRecord(message) ? message["params"] : undefined;
  const given = isRecord(params) ? params["arguments"] : undefined;
  return isRecord(given) ? given : undefined;
}
