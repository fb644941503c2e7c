// A JSON-RPC proxy, its own process, that holds every answer back: the distance to a remote node.
import { Agent, createServer, request as send } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const target = new URL(process.env["PROXY_TARGET"] ?? "");
const delayMs = Number(process.env["PROXY_DELAY_MS"]);
const port = Number(process.env["PROXY_PORT"]);
const agent = new Agent({ keepAlive: true, maxSockets: 256 });

createServer((incoming, outgoing) => {
  const forwarded = send(
    target,
    { method: "POST", agent, headers: { "content-type": "application/json" } },
    (answer) => {
      const chunks: Buffer[] = [];
      answer.on("data", (chunk: Buffer) => void chunks.push(chunk));
      answer.on("end", () => {
        void sleep(delayMs).then(() =>
          outgoing
            .writeHead(answer.statusCode ?? 502, { "content-type": "application/json" })
            .end(Buffer.concat(chunks)),
        );
      });
    },
  );
  forwarded.on("error", () => outgoing.writeHead(502).end());
  incoming.pipe(forwarded);
}).listen(port, "127.0.0.1", () => console.error("ready"));
process.on("SIGTERM", () => process.exit(0));
