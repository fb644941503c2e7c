/** The same calls as tools: MCP, and definitions for the common function-calling formats. */
import fp from "fastify-plugin";
import type { FastifyRequest } from "fastify";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { Type } from "typebox";
import { ApiError } from "../../errors.ts";
import { parseExact, stringifyExact } from "../../core/exact-json.ts";
import { isRecord } from "../../core/foreign-text.ts";
import { keepJsonText } from "../http/index.ts";
import { createMcpServer, type CallApi } from "./mcp-server.ts";
import { anthropicTools, openAiTools } from "./tools.ts";

export default fp(
  async (app) => {
    await app.register(mcpRoutes);
    await app.register(definitionRoutes);
  },
  { name: "agent-tools" },
);

/** The protocol's own; nothing here reads it. */
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

  app.post(
    "/mcp",
    {
      config,
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
          202: Type.Null({ description: "A notification was taken" }),
          401: JsonRpc,
        },
      },
    },
    async (request, reply) => {
      // Through the front door: the same authentication, schema, guardrails and errors as any caller.
      const callApi: CallApi = async ({ method, url, payload }, idempotencyKey) => {
        const response = await app.asAgent(request.agent, (pass) =>
          app.inject({
            method,
            url,
            ...(payload === undefined ? {} : { payload: stringifyExact(payload) }),
            remoteAddress: request.ip,
            headers: {
              ...pass,
              ...(payload === undefined ? {} : { "content-type": "application/json" }),
              ...(idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey }),
            },
          }),
        );
        const body = parseExact(response.payload) as Record<string, unknown>;
        return { status: response.statusCode, body };
      };
      const server = createMcpServer(callApi);
      const transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: undefined,
        enableJsonResponse: true,
      });
      reply.hijack();
      // Hijacked: what hooks have put on the reply so far must be carried over by hand.
      for (const [name, value] of Object.entries(reply.getHeaders()))
        if (value !== undefined) reply.raw.setHeader(name, value);
      reply.raw.on("close", () => void server.close());
      try {
        await server.connect(transport);
        await transport.handleRequest(request.raw, reply.raw, asWritten(request));
      } catch (error) {
        request.log.error({ err: error }, "MCP request failed");
        if (!reply.raw.headersSent) reply.raw.writeHead(500).end();
      }
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
          detail: "This MCP server keeps no session: POST every message.",
          headers: { allow: "POST" },
        });
      },
    });
  }
};

/** The body of a tool's fetch goes on to a stranger: its numbers stay as they were written. */
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

const Parameters = Type.Record(Type.String(), Type.Unknown());
const OpenAiTools = Type.Array(
  Type.Object({
    type: Type.Literal("function"),
    function: Type.Object({
      name: Type.String(),
      description: Type.String(),
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
    async () => openAiTools() as never,
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
