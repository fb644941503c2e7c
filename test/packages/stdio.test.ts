// Goal: `purser mcp` forwards every message unchanged, in both revisions of the protocol, leaves no request
// without a response, and completes requests after its client hung up.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import t, { type Test } from "tap";
import { cleanEnvironment } from "./packed.ts";
import { until } from "../helpers/until.ts";

const BIN = fileURLToPath(new URL("../../packages/purser/bin/purser.mjs", import.meta.url));
const ENVELOPE = { _meta: { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } };

interface Message {
  id?: number;
  method?: string;
  params?: Record<string, unknown>;
  result?: unknown;
  error?: { message: string };
}
type Handler = (message: Message, request: IncomingMessage, response: ServerResponse) => void;

/** The command, and a service with scripted responses. */
async function piped(t: Test, handler: Handler) {
  const server = createServer((request, response) => {
    void (async () => {
      let text = "";
      for await (const chunk of request) text += String(chunk);
      if (request.method !== "POST") return response.writeHead(405).end();
      const message = JSON.parse(text) as Message;
      if (message.id === undefined) response.writeHead(202).end();
      return handler(message, request, response);
    })();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const env = cleanEnvironment({ PURSER_URL: url, AGENT_API_KEY: "purser_k" });
  const child = spawn(process.execPath, [BIN, "mcp"], { env, stdio: ["pipe", "pipe", "ignore"] });
  const exited = once(child, "exit");
  t.teardown(async () => {
    child.kill();
    await exited;
    server.closeAllConnections();
    server.close();
  });
  const received: Message[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => {
    received.push(JSON.parse(line) as Message);
  });
  const send = (message: object) =>
    child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  const answerTo = async (id: number): Promise<Message> => {
    await until(() => received.some((message) => message.id === id && !message.method), 10_000);
    return received.find((message) => message.id === id && !message.method) ?? {};
  };
  return { child, exited, received, send, answerTo };
}

const json = (response: ServerResponse, body: object) =>
  response
    .writeHead(200, { "content-type": "application/json" })
    .end(JSON.stringify({ jsonrpc: "2.0", ...body }));
const stream = (response: ServerResponse) =>
  response.writeHead(200, { "content-type": "text/event-stream" });
const event = (message: object) => `data: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`;

t.test("both revisions, and requests from the service", async (t) => {
  const seen: IncomingMessage["headers"][] = [];
  const replies: Message[] = [];
  const pipe = await piped(t, (message, request, response) => {
    seen.push(request.headers);
    if (message.method === "initialize")
      json(response, {
        id: message.id,
        result: { protocolVersion: "2025-11-25", capabilities: {} },
      });
    else if (message.method === "tools/call") {
      stream(response).write(event({ method: "notifications/progress", params: { progress: 1 } }));
      response.write(event({ id: 77, method: "elicitation/create", params: {} }));
      response.end(event({ id: message.id, result: { content: [] } }));
    } else if (message.method === undefined) {
      replies.push(message);
      response.writeHead(202).end();
    } else if (message.id !== undefined) json(response, { id: message.id, result: {} });
  });
  pipe.send({ id: 1, method: "initialize", params: {} });
  t.match(await pipe.answerTo(1), { result: { protocolVersion: "2025-11-25" } });
  pipe.send({ method: "notifications/initialized" });
  pipe.send({ id: 2, method: "tools/call", params: { name: "x402_fetch" } });
  t.match(await pipe.answerTo(2), { result: { content: [] } });
  t.ok(pipe.received.some(({ method }) => method === "notifications/progress"));
  t.ok(pipe.received.some(({ method, id }) => method === "elicitation/create" && id === 77));
  pipe.send({ id: 77, result: { action: "accept" } });
  await until(() => replies.length > 0, 10_000);
  t.match(replies, [{ id: 77, result: { action: "accept" } }], "and the response is forwarded");
  pipe.send({ id: 3, method: "tools/list", params: ENVELOPE });
  await pipe.answerTo(3);
  t.ok(seen.every(({ authorization }) => authorization === "Bearer purser_k"));
  const [first, last] = [seen[0], seen.at(-1)];
  t.equal(first?.["mcp-protocol-version"], undefined);
  t.match(last, { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list" });
  const call = seen.find((headers) => headers["mcp-protocol-version"] === "2025-11-25");
  t.ok(call, "the negotiated version, for the revision that negotiates one");
});

t.test("every request gets a response", async (t) => {
  let isReceived = false;
  let hungUp = false;
  const pipe = await piped(t, (message, _request, response) => {
    const what = message.params?.["name"];
    if (what === "cut") stream(response).write(": so far\n\n", () => response.socket?.destroy());
    else if (what === "ends") stream(response).end(": nothing\n\n");
    else if (what === "html") response.writeHead(404, { "content-type": "text/html" }).end("<p>");
    else if (what === "moved") response.writeHead(307, { location: "https://o.example/" }).end();
    else if (what === "long") {
      isReceived = true;
      response.on("close", () => (hungUp = true));
    }
  });
  const call = (id: number, name: string, more: object = {}) =>
    pipe.send({ id, method: "tools/call", params: { name, ...more } });
  call(1, "cut");
  call(2, "ends");
  call(3, "html");
  call(4, "moved");
  for (const id of [1, 2])
    t.match(await pipe.answerTo(id), { error: { message: /may have been carried out/ } });
  t.match(await pipe.answerTo(3), { error: { message: /HTTP 404\. Check that PURSER_URL/ } });
  t.match(await pipe.answerTo(4), { error: { message: /PURSER_URL/ } });
  call(5, "long", ENVELOPE);
  await until(() => isReceived, 10_000);
  pipe.send({ method: "notifications/cancelled", params: { requestId: 5 } });
  await until(() => hungUp, 10_000);
  // A response to it would have come before this one's.
  call(6, "html");
  await pipe.answerTo(6);
  t.notOk(
    pipe.received.some(({ id }) => id === 5),
    "a cancelled request gets no response",
  );
});

t.test("requests are completed after the program hung up", async (t) => {
  const pipe = await piped(t, (message, _request, response) => {
    stream(response).write(": working\n\n");
    setTimeout(() => response.end(event({ id: message.id, result: { paid: true } })), 1_000);
  });
  pipe.send({ id: 1, method: "tools/call", params: { name: "x402_fetch" } });
  pipe.child.stdin.end();
  const [code] = (await pipe.exited) as [number];
  t.equal(code, 0);
  t.match(pipe.received, [{ id: 1, result: { paid: true } }]);
});
