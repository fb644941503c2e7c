// MCP servers with priced tools, built with both official SDKs, over HTTP: the old one has sessions and
// streams, the new one is stateless.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { serve } from "@hono/node-server";
import { McpServer as OldServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { createMcpHandler, fromJsonSchema, McpServer } from "@modelcontextprotocol/server";
import type { Test } from "tap";
import { z } from "zod";
import { paidTool, priceTag, type Cashier, type Receipt } from "../../packages/paywall/src/mcp.ts";

export interface ToolServer {
  url: string;
  origin: string;
  /** Each run of a handler, with its receipt. */
  runs: { tool: string; city?: string; receipt?: Receipt }[];
  /** The number of open sessions. */
  sessions(): number;
}

const WEATHER = { name: "get_weather", price: "0.01", description: "Weather of a city" };
const BROKEN = { name: "broken", price: "0.02" };
const UNPREPARED = {
  name: "unprepared",
  price: "0.01",
  prepare: () => {
    throw new Error("no data today");
  },
};
const textResult = (text: string) => ({ content: [{ type: "text" as const, text }] });

/** The tools of both servers. */
function handlers(runs: ToolServer["runs"]) {
  return {
    weather: (city: string, receipt: Receipt) => {
      runs.push({ tool: "get_weather", city, receipt });
      return { ...textResult(`sunny in ${city}`), structuredContent: { city, degrees: 21 } };
    },
    broken: (receipt: Receipt) => {
      runs.push({ tool: "broken", receipt });
      throw new Error("out of order");
    },
    ping: () => {
      runs.push({ tool: "ping" });
      return textResult("pong");
    },
  };
}

export async function newToolServer(
  t: Pick<Test, "teardown">,
  charges: Cashier,
  options: { legacy?: "reject" } = {},
): Promise<ToolServer> {
  const runs: ToolServer["runs"] = [];
  const sells = handlers(runs);
  const tag = await priceTag(charges, WEATHER);
  const city = fromJsonSchema<{ city: string }>({
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
  });
  const make = (): McpServer => {
    const server = new McpServer({ name: "shop", version: "1" });
    server.registerTool(
      "get_weather",
      { inputSchema: city, _meta: tag },
      paidTool(charges, WEATHER, async (receipt, { city }) => sells.weather(city, receipt)),
    );
    server.registerTool(
      "broken",
      {},
      paidTool(charges, BROKEN, (receipt) => sells.broken(receipt)),
    );
    server.registerTool(
      "unprepared",
      {},
      paidTool(charges, UNPREPARED, () => sells.ping()),
    );
    server.registerTool("ping", {}, sells.ping);
    return server;
  };
  const handler = createMcpHandler(make, options);
  const server = serve({
    fetch: (request) => handler.fetch(request),
    port: 0,
    hostname: "127.0.0.1",
  });
  await new Promise((resolve) => server.once("listening", resolve));
  t.teardown(async () => {
    await handler.close();
    server.close();
  });
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url: `${origin}/mcp`, origin, runs, sessions: () => 0 };
}

export async function oldToolServer(
  t: Pick<Test, "teardown">,
  charges: Cashier,
  options: { json?: boolean } = {},
): Promise<ToolServer> {
  const runs: ToolServer["runs"] = [];
  const sells = handlers(runs);
  const tag = await priceTag(charges, WEATHER);
  const make = (): OldServer => {
    const server = new OldServer({ name: "shop", version: "1" });
    server.registerTool(
      "get_weather",
      { inputSchema: { city: z.string() }, _meta: tag },
      paidTool(charges, WEATHER, async (receipt, { city }) => sells.weather(city, receipt)),
    );
    server.registerTool(
      "broken",
      {},
      paidTool(charges, BROKEN, (receipt) => sells.broken(receipt)),
    );
    server.registerTool(
      "unprepared",
      {},
      paidTool(charges, UNPREPARED, () => sells.ping()),
    );
    server.registerTool("ping", {}, sells.ping);
    return server;
  };
  const open = new Map<string, StreamableHTTPServerTransport>();
  const server = createServer((request, response) => {
    void (async () => {
      const id = request.headers["mcp-session-id"];
      let transport = open.get(String(id));
      if (!transport) {
        if (id !== undefined) return response.writeHead(404).end();
        const made = new StreamableHTTPServerTransport({
          sessionIdGenerator: () => randomUUID(),
          enableJsonResponse: options.json === true,
          onsessioninitialized: (session) => void open.set(session, made),
          onsessionclosed: (session) => void open.delete(session),
        });
        await make().connect(made);
        transport = made;
      }
      return transport.handleRequest(request, response);
    })().catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url: `${origin}/mcp`, origin, runs, sessions: () => open.size };
}
