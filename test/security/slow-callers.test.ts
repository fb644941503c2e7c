// Goal: clients that send slowly or do not read their responses (slowloris) are disconnected and counted, while
// others are served. All variants are in slow-sockets.
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import { noteCode } from "../helpers/conformance.ts";
import { testApp } from "../helpers/app.ts";
import { gateAt } from "../helpers/gate.ts";
import { until } from "../helpers/until.ts";

/** Real time is the subject; how late a busy machine notices does not matter. */
const TIMEOUT_MS = 400;
const HANGS_MS = 60_000;

const world = await testApp(t, { listen: true, timings: { requestTimeoutMs: TIMEOUT_MS } });

async function open(t: Test, options: { allowHalfOpen?: boolean } = {}): Promise<Socket> {
  const socket = connect({ port: world.config.port, host: "127.0.0.1", ...options });
  socket.on("error", () => undefined);
  t.teardown(() => socket.destroy());
  await once(socket, "connect");
  return socket;
}

/** Whether other clients are served. On a stalled machine, their requests may time out too. */
const isServed = async (): Promise<boolean> => {
  const answer = await fetch(`${world.baseUrl}/api/health`).catch(() => undefined);
  await answer?.arrayBuffer().catch(() => undefined);
  return answer?.status === 200;
};

t.test("a body sent byte by byte", async (t) => {
  // The first one keeps sending after it was refused.
  const senders = await Promise.all([
    open(t, { allowHalfOpen: true }),
    ...Array.from({ length: 4 }, () => open(t)),
  ]);
  const answers = senders.map(() => "");
  const dripping = setInterval(() => {
    for (const socket of senders) if (socket.writable) socket.write(" ");
  }, 50);
  t.teardown(() => clearInterval(dripping));
  for (const [index, socket] of senders.entries()) {
    socket.on("data", (chunk: Buffer) => (answers[index] += chunk.toString()));
    socket.write(
      "POST /api/x402/verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{",
    );
  }
  await until(isServed, HANGS_MS);
  await until(() => senders.every(({ closed }) => closed), HANGS_MS);
  for (const answer of answers) {
    const [head = "", body = "{}"] = answer.split("\r\n\r\n");
    t.match(head, /^HTTP\/1\.1 408 /);
    t.match(JSON.parse(body), { code: "request_timeout", success: false, requestId: /^req_/ });
  }
  noteCode("request_timeout");
  await until(isServed, HANGS_MS);
});

t.test("responses that are not read", async (t) => {
  const cutCount = async (): Promise<number> => {
    const metric = world.app.metrics.getSingleMetric("purser_connections_cut_total");
    const { values } = (await metric?.get()) ?? { values: [] };
    return values.find(({ labels }) => labels["reason"] === "slow_reader")?.value ?? 0;
  };
  const before = await cutCount();
  const socket = await open(t);
  socket.pause();
  // More than the socket buffers hold.
  socket.write("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100));
  await until(async () => (await cutCount()) > before, HANGS_MS);
  await until(isServed, HANGS_MS);
  // A paused socket notices its end only when it reads again.
  socket.resume();
  await until(() => socket.closed, HANGS_MS);
});

t.test("only a complete request delays the shutdown, and gets its response", async (t) => {
  const sockets = await Promise.all(Array.from({ length: 3 }, () => open(t)));
  for (const socket of sockets) socket.resume();
  const [, head, body] = sockets;
  const gate = await gateAt(t, world.database.pool, { on: "AFTER INSERT ON auth_nonces" });
  const whole = await open(t);
  let answer = "";
  whole.on("data", (chunk: Buffer) => (answer += chunk.toString()));
  whole.write("GET /api/auth/nonce HTTP/1.1\r\nHost: localhost\r\n\r\n");
  await gate.reached();
  const connections = promisify(world.app.server.getConnections.bind(world.app.server));
  await until(async () => (await connections()) >= sockets.length, HANGS_MS);
  const arrived = once(world.app.server, "request");
  // Their timeouts are not over when the shutdown begins, and from then on Node does not enforce them.
  head?.write("GET /api/health HTTP/1.1\r\nHost: localhost\r\nX-A: ");
  body?.write(
    "POST /api/x402/verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
  );
  await arrived;
  const stopped = world.app.close().then(() => true);
  await until(() => sockets.every(({ closed }) => closed), HANGS_MS);
  await gate.open();
  t.ok(await Promise.race([stopped, delay(HANGS_MS, false, { ref: false })]), "it stops");
  await until(() => whole.closed, HANGS_MS);
  // 503 if this took longer than a statement may.
  t.match(answer, /^HTTP\/1\.1 (200|503) /);
});
