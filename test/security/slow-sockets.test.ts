// Goal: clients that send or read slowly, open many connections or do not speak HTTP are disconnected in time, with
// an error response where possible.
// Tier: full (follows real block times or socket timeouts).
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { newId } from "../../server/core/ids.ts";
import { noteCode } from "../helpers/conformance.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";

const TIMEOUT_MS = 1_000;
/** Without the limits, 300 of them were open after six minutes, and a shutdown took 70 s. */
const HANGS_MS = 30_000;

/** A raw socket with the text it received and a promise of its end. */
async function open(t: Test, { config }: TestApp) {
  const socket = connect(config.port, "127.0.0.1");
  t.teardown(() => socket.destroy());
  let text = "";
  socket.on("data", (chunk: Buffer) => (text += chunk.toString()));
  socket.on("error", () => undefined);
  const ended = new Promise<boolean>((resolve) => socket.once("close", () => resolve(true)));
  await once(socket, "connect");
  return { socket, ended, text: () => text };
}

const within = (ended: Promise<boolean>, ms = HANGS_MS): Promise<boolean> =>
  Promise.race([ended, delay(ms, false, { ref: false })]);

/** Sends a byte every 100 ms, forever. */
function drip(t: Test, socket: Socket): void {
  const timer = setInterval(() => socket.writable && socket.write(" "), 100);
  t.teardown(() => clearInterval(timer));
}

/** How many connections were closed for this reason. */
async function cutOf({ app }: Pick<TestApp, "app">, reason: string): Promise<number> {
  const metric = app.metrics.getSingleMetric("purser_connections_cut_total");
  const { values } = (await metric?.get()) ?? { values: [] };
  return values.find(({ labels }) => labels["reason"] === reason)?.value ?? 0;
}

/** The security headers that every response has. */
async function standingOf({ baseUrl }: TestApp): Promise<string[]> {
  const { headers } = await fetch(`${baseUrl}/api/health`);
  const names = [...headers.keys()].filter((name) => /^(cross|content-sec|vary|x-)/.test(name));
  const wanted = [...names, "access-control-allow-origin", "referrer-policy"];
  return wanted
    .filter((name) => name !== "x-request-id")
    .map((name) => `${name}: ${headers.get(name)}`);
}

function isProblem(t: Test, text: string, status: number, code: string): void {
  const [head = "", body = ""] = text.split("\r\n\r\n");
  t.match(head, new RegExp(`^HTTP/1.1 ${status} `), code);
  t.match(head, /content-type: application\/problem\+json/i);
  t.match(JSON.parse(body || "{}"), { status, code, success: false, requestId: /^req_/ });
  noteCode(code);
}

t.test("a slow sender", async (t) => {
  const world = await testApp(t, {
    listen: true,
    timings: { requestTimeoutMs: TIMEOUT_MS },
    env: { CONNECTIONS_PER_ADDRESS: "400" },
  });
  const post = (length: number) =>
    `POST /api/x402/verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n{`;

  await t.test("300 dripping bodies are cut", async (t) => {
    const senders = await Promise.all(Array.from({ length: 300 }, () => open(t, world)));
    for (const { socket } of senders) {
      socket.write(post(100_000));
      drip(t, socket);
    }
    const cut = await Promise.all(senders.map(({ ended }) => within(ended)));
    t.equal(cut.filter(Boolean).length, 300, "all of them");
    isProblem(t, senders[0]?.text() ?? "", 408, "request_timeout");
    t.equal((await fetch(`${world.baseUrl}/api/health`)).status, 200, "others are served");
  });

  await t.test("endless headers are cut, also after an early response", async (t) => {
    const headers = await open(t, world);
    headers.socket.write("GET /api/health HTTP/1.1\r\nHost: localhost\r\nX-A: ");
    drip(t, headers.socket);
    const refused = await open(t, world);
    refused.socket.write(post(1_000).replace("x402/verify", "agents/spend"));
    drip(t, refused.socket);
    const silent = await open(t, world);
    t.ok(await within(headers.ended), "headers");
    t.ok(await within(refused.ended), "refused before its body");
    t.match(refused.text(), /^HTTP\/1.1 401 /);
    t.ok(await within(silent.ended), "a silent connection");
  });

  await t.test("anything but HTTP gets a problem response", async (t) => {
    const standing = await standingOf(world);
    t.ok(standing.length >= 10, `${standing.length} headers`);
    for (const [bytes, status, code] of [
      ["nonsense\r\n\r\n", 400, "bad_request"],
      ["GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400, "bad_request"],
      ["GET /api/health HTTP/1.1\r\nConnection: close\r\n\r\n", 400, "bad_request"],
      ["GET /api/%zz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 400, "bad_request"],
      [
        `GET / HTTP/1.1\r\nHost: a\r\nX-A: ${"x".repeat(17 * 1024)}\r\n\r\n`,
        431,
        "headers_too_large",
      ],
      [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
        "bad_request",
      ],
    ] as const) {
      const { socket, ended, text } = await open(t, world);
      socket.write(bytes);
      t.ok(await within(ended), "ends");
      isProblem(t, text(), status, code);
      const head = text()
        .split("\r\n")
        .map((line) => line.toLowerCase());
      for (const line of standing) t.ok(head.includes(line.toLowerCase()), `${code}: ${line}`);
    }
    t.notMatch(world.logs.join("\n"), /nonsense/, "the bytes are not logged");
  });
});

t.test("connections per IP address", async (t) => {
  const world = await testApp(t, {
    listen: true,
    env: { CONNECTIONS_PER_ADDRESS: "20", TRUST_PROXY: "1" },
  });
  const all = await Promise.all(
    Array.from({ length: 60 }, () => open(t, world).catch(() => undefined)),
  );
  for (const one of all)
    one?.socket.write(
      `GET /api/health HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.${all.indexOf(one)}\r\n\r\n`,
    );
  const served = () => all.filter((one) => one?.text().startsWith("HTTP/1.1 200")).length;
  const left = () => all.filter((one) => one?.socket.closed === false).length;
  await until(() => served() >= 20 && left() <= 20, HANGS_MS);
  t.equal(served(), 20, "no more are served, whatever X-Forwarded-For contains");
  t.equal(left(), 20, "the others are cut");
  for (const one of all) one?.socket.destroy();
  // One line for all of them, and one for those of the next minute or of the stop.
  const lines = () =>
    world.logs
      .map((line) => JSON.parse(line) as { key?: string; limit?: number; closed?: number })
      .filter(({ key }) => key === "CONNECTIONS_PER_ADDRESS");
  await until(() => lines().length > 0, HANGS_MS);
  // Slots are released as soon as the server notices the end.
  await until(async () => {
    const later = await open(t, world);
    later.socket.write("GET /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return (await within(later.ended)) && later.text().startsWith("HTTP/1.1 200 ");
  }, HANGS_MS);
  const closed = await cutOf(world, "too_many");
  await world.app.close();
  t.ok(lines().length <= 2, `${lines().length} lines`);
  t.equal(
    lines().reduce((sum, line) => sum + (line.closed ?? 0), 0),
    closed,
    "every closed connection is counted once in the log",
  );
  t.match(lines()[0], { limit: 20, key: "CONNECTIONS_PER_ADDRESS" });
});

t.test("behind a proxy, which is one address, nothing is cut", async (t) => {
  const world = await testApp(t, { listen: true, env: { TRUST_PROXY: "127.0.0.1" } });
  const all = await Promise.all(Array.from({ length: 1_200 }, () => open(t, world)));
  for (const { socket } of all) socket.write("GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  await until(() => all.every(({ text }) => text().startsWith("HTTP/1.1 200")), HANGS_MS);
  t.equal(await cutOf(world, "too_many"), 0);
  for (const { socket } of all) socket.destroy();
});

t.test("a caller beside the proxies in the list has the usual limit", async (t) => {
  const world = await testApp(t, { listen: true, env: { TRUST_PROXY: "192.0.2.7" } });
  const all = await Promise.all(Array.from({ length: 1_200 }, () => open(t, world)));
  await until(() => all.filter(({ socket }) => !socket.closed).length <= 1_000, HANGS_MS);
  t.ok((await cutOf(world, "too_many")) > 0);
  for (const { socket } of all) socket.destroy();
  await world.app.close();
  t.ok(world.logs.some((line) => /"key":"CONNECTIONS_PER_ADDRESS","limit":1000,/.test(line)));
});

t.test("slow readers", async (t) => {
  const world = await testApp(t, { listen: true, timings: { requestTimeoutMs: TIMEOUT_MS } });
  const owner = await signIn(world);
  const { rows } = await world.database.pool.query<{ id: string }>("SELECT id FROM owners");
  const ownerId = rows[0]?.id;
  const cutCount = () => cutOf(world, "slow_reader");

  await t.test("responses that are not read are cut", async (t) => {
    const { socket, ended } = await open(t, world);
    socket.pause();
    const requests = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(400);
    socket.write(requests);
    // A paused socket does not see its end before it reads again.
    await until(async () => (await cutCount()) > 0, HANGS_MS);
    t.equal(await cutCount(), 1);
    socket.resume();
    t.ok(await within(ended));
  });

  await t.test("event streams that are not read are cut, and buffer little", async (t) => {
    const { socket, ended } = await open(t, world);
    socket.pause();
    socket.write(
      `GET /api/events HTTP/1.1\r\nHost: localhost\r\nCookie: ${owner.cookie}\r\nLast-Event-ID: 0-1\r\n\r\n`,
    );
    await world.database.pool.query(
      `INSERT INTO events (owner_id, type, subject_id)
       SELECT $1, 'agent', $2 || i || repeat('x', 4000) FROM generate_series(1, 5000) AS i`,
      [ownerId, newId("agt")],
    );
    await until(async () => (await cutCount()) > 1, HANGS_MS);
    t.equal(await cutCount(), 2);
    socket.resume();
    t.ok(await within(ended));
  });

  await t.test("streams per session are limited, however fast they are requested", async (t) => {
    const controllers = Array.from({ length: 30 }, () => new AbortController());
    const answers = await Promise.all(
      controllers.map(({ signal }) =>
        fetch(`${world.baseUrl}/api/events`, { headers: { cookie: owner.cookie }, signal }),
      ),
    );
    const refused = answers.filter(({ status }) => status === 429);
    t.equal(refused.length, 18, "12 of 30 are open");
    t.match(refused[0]?.headers.get("retry-after"), /^[0-9]+$/);
    for (const controller of controllers) controller.abort();
    // A released slot is free at once.
    await until(async () => {
      const controller = new AbortController();
      const answer = await fetch(`${world.baseUrl}/api/events`, {
        headers: { cookie: owner.cookie },
        signal: controller.signal,
      });
      await answer.body?.cancel();
      return answer.status === 200;
    }, HANGS_MS);
  });
});

t.test("a canceled event stream does not delay the shutdown", async (t) => {
  const world = await testApp(t, { listen: true });
  const owner = await signIn(world);
  for (let count = 0; count < 3; count += 1) {
    const response = await fetch(`${world.baseUrl}/api/events`, {
      headers: { cookie: owner.cookie },
    });
    const reader = response.body?.getReader();
    await reader?.read();
    await reader?.cancel();
  }
  t.ok(await within(world.app.close().then(() => true)), "it took 70 s before");
});

t.test("a request that began before the shutdown still gets its response", async (t) => {
  const world = await testApp(t, { listen: true });
  const silent = await open(t, world);
  const late = await open(t, world);
  const arrived = once(world.app.server, "request");
  late.socket.write(
    "POST /api/x402/verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{",
  );
  await arrived;
  const stopped = world.app.close().then(() => true);
  t.ok(await within(silent.ended), "a silent connection is closed meanwhile");
  late.socket.write("}");
  t.ok(await within(late.ended));
  t.match(late.text(), /^HTTP\/1.1 200 [^]*"isValid":false/);
  t.ok(await within(stopped));
});
