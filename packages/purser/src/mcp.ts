/** `purser mcp`: the service's own MCP server over stdio. Every message passes as it is, in both directions. */
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import type { JSONRPCMessage } from "@modelcontextprotocol/sdk/types.js";
import type { Settings } from "./settings.ts";
import { whyUnanswered } from "./transport.ts";

/** JSON-RPC's own range for what the implementation defines. */
const SERVER_ERROR = -32_000;

export async function serveStdio({ url, apiKey }: Settings): Promise<void> {
  const stdio = new StdioServerTransport();
  const http = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
    requestInit: { headers: { authorization: `Bearer ${apiKey}` } },
    // Followed, the key would travel to wherever a redirect leads.
    fetch: (input, init) => fetch(input, { ...init, redirect: "manual" }),
  });
  const pending = new Set<Promise<void>>();
  Object.assign(stdio, {
    onmessage(message: JSONRPCMessage) {
      const passing = http
        .send(message)
        .catch((error: unknown) => refuse(stdio, message, explain(url, error)))
        .finally(() => pending.delete(passing));
      pending.add(passing);
    },
  });
  Object.assign(http, {
    onmessage(message: JSONRPCMessage) {
      const version = "result" in message ? message.result["protocolVersion"] : undefined;
      if (typeof version === "string") http.setProtocolVersion(version);
      void stdio.send(message);
    },
    onerror: (error: Error) => console.error(`purser mcp: ${explain(url, error)}`),
  });
  const ended = new Promise<void>((resolve) => process.stdin.once("end", resolve));
  await http.start();
  await stdio.start();
  await ended;
  // What was asked before the client hung up is carried through: it may be a payment.
  await Promise.allSettled(pending);
  await http.close();
}

async function refuse(
  stdio: StdioServerTransport,
  message: JSONRPCMessage,
  sentence: string,
): Promise<void> {
  if (!("method" in message) || !("id" in message)) return;
  const error = { code: SERVER_ERROR, message: sentence };
  await stdio.send({ jsonrpc: "2.0", id: message.id, error });
}

function explain(url: string, error: unknown): string {
  const { code } = error as { code?: unknown };
  // The transport's own errors carry the HTTP status as their code.
  if (code === 401) return `${url} refuses the key: set AGENT_API_KEY to an agent's valid key.`;
  if (typeof code === "number" && code !== 0)
    return `${url}/mcp answered HTTP ${code}. Is PURSER_URL the URL of a Purser service?`;
  const { detail, suggestion } = whyUnanswered(url, error).problem;
  return `${detail} ${suggestion}`;
}
