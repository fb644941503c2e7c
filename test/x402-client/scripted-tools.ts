// An MCP server over HTTP controlled by the test, with a tool whose price the test sets.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Test } from "tap";
import type { Proof, ScriptedSeller } from "./scripted-seller.ts";
import { localServer, type LocalServer } from "./sellers.ts";

interface Message {
  id?: number;
  method: string;
  params?: { name?: string; arguments?: unknown; _meta?: Record<string, unknown> };
}

interface ToolExchange {
  message: Message;
  request: IncomingMessage;
  response: ServerResponse;
  /** Only on calls that contain a payment. */
  proof: Proof;
}

export interface ToolScript {
  onInitialize?: (exchange: Omit<ToolExchange, "proof">) => void;
  onUnpaid?: (exchange: Omit<ToolExchange, "proof">) => void | Promise<void>;
  onProof?: (exchange: ToolExchange) => void | Promise<void>;
}

interface ScriptedTools extends LocalServer {
  url: string;
  script: ToolScript;
  messages: Message[];
  proofs: Proof[];
  reply: (exchange: Pick<ToolExchange, "message" | "response">, result: object) => void;
  /** The result that requests payment, with some members replaced. */
  terms: (over?: Record<string, unknown>) => object;
}

export async function scriptedTools(
  t: Pick<Test, "teardown">,
  seller: ScriptedSeller,
  script: ToolScript = {},
): Promise<ScriptedTools> {
  const server = await localServer(t, (request, response) => {
    void handle(request, response).catch(() => response.destroy());
  });
  const tools: ScriptedTools = {
    ...server,
    url: `${server.origin}/mcp`,
    script,
    messages: [],
    proofs: [],
    reply({ message: { id }, response }, result) {
      response
        .writeHead(200, { "content-type": "application/json" })
        .end(JSON.stringify({ jsonrpc: "2.0", id, result }));
    },
    terms(over = {}) {
      const required = {
        x402Version: 2,
        error: "Payment required",
        resource: { url: "mcp://tool/answer" },
        accepts: [seller.entry(over)],
      };
      const content = [{ type: "text", text: JSON.stringify(required) }];
      return { isError: true, structuredContent: required, content };
    },
  };

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    if (request.method !== "POST") return void response.writeHead(405).end();
    const message = JSON.parse(Buffer.concat(chunks).toString()) as Message;
    tools.messages.push(message);
    const exchange = { message, request, response };
    if (message.method === "initialize")
      return tools.script.onInitialize
        ? tools.script.onInitialize(exchange)
        : tools.reply(exchange, { protocolVersion: "2025-06-18", capabilities: {} });
    if (message.id === undefined) return void response.writeHead(202).end();
    const proof = message.params?._meta?.["x402/payment"] as Proof | undefined;
    if (!proof) {
      if (tools.script.onUnpaid) return tools.script.onUnpaid(exchange);
      return tools.reply(exchange, tools.terms());
    }
    tools.proofs.push(proof);
    if (tools.script.onProof) return tools.script.onProof({ ...exchange, proof });
    const transaction = await seller.settle(proof);
    const settled = { success: true, transaction, network: proof.accepted["network"] };
    const content = [{ type: "text", text: "42" }];
    return tools.reply(exchange, { content, _meta: { "x402/payment-response": settled } });
  }
  return tools;
}
