// A JSON-RPC proxy in its own process that counts calls and delays every response, like the distance to a
// remote node.
import {
  Agent,
  createServer,
  request as send,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const target = new URL(process.env["PROXY_TARGET"] ?? "");
const delayMs = Number(process.env["PROXY_DELAY_MS"]);
const port = Number(process.env["PROXY_PORT"]);
const agent = new Agent({ keepAlive: true, maxSockets: 256 });
let calls = 0;

const HEADERS = { "content-type": "application/json" };

async function bytesOf(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function forward(body: Buffer): Promise<{ status: number; body: Buffer }> {
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    send(target, { method: "POST", agent, headers: HEADERS }, resolve)
      .on("error", reject)
      .end(body);
  });
  return { status: answer.statusCode ?? 502, body: await bytesOf(answer) };
}

async function serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  if (incoming.method === "GET") {
    outgoing.end(String(calls));
    return;
  }
  const requestBody = await bytesOf(incoming);
  const parsed = JSON.parse(requestBody.toString()) as unknown;
  calls += Array.isArray(parsed) ? parsed.length : 1;
  const { status, body } = await forward(requestBody);
  if (delayMs > 0) await sleep(delayMs);
  outgoing.writeHead(status, HEADERS).end(body);
}

createServer((incoming, outgoing) => {
  serve(incoming, outgoing).catch(() => outgoing.writeHead(502).end());
}).listen(port, "127.0.0.1", () => console.error("ready"));
process.on("SIGTERM", () => process.exit(0));
