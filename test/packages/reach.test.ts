// Goal: a call is not retried where that cannot help: a wrong URL fails within two seconds with a clear
// error; and what a target delivered is not lost by a later attempt.
// Tier: full (follows real block times or socket timeouts).
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { createServer as createTcpServer, type AddressInfo, type Server } from "node:net";
import t from "tap";
import { main } from "../../packages/purser/src/cli.ts";
import { Purser, PurserError } from "../../packages/purser/src/index.ts";
import { addressOf } from "../../packages/purser/src/transport.ts";
import { bothProtocols, selfSigned } from "./bad-connections.ts";

const LIMIT_MS = 20_000;
const RECIPIENT = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const folder = t.testdir({});
const tls = selfSigned(folder);

async function listening(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.close();
    if ("closeAllConnections" in server)
      (server as { closeAllConnections(): void }).closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}

/** Responds to the requests in order; the last response is repeated. */
async function scripted(...answers: ((response: ServerResponse) => void)[]) {
  const keys: (string | undefined)[] = [];
  const port = await listening(
    createServer((request, response) => {
      request.resume();
      keys.push(request.headers["idempotency-key"] as string | undefined);
      request.on("end", () => answers[Math.min(keys.length, answers.length) - 1]?.(response));
    }),
  );
  return { keys, url: `http://127.0.0.1:${port}` };
}

const html = (status: number) => (response: ServerResponse) =>
  void response.writeHead(status, { "content-type": "text/html" }).end("<!doctype html><p>hello");
const json = (status: number, body: object) => (response: ServerResponse) =>
  void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
const problem = (status: number, code: string, more: object = {}) =>
  json(status, {
    code,
    status,
    detail: code,
    suggestion: "",
    retryable: true,
    requestId: "r",
    ...more,
  });
const cut = (response: ServerResponse) => void response.socket?.destroy();

async function failure(work: Promise<unknown>): Promise<PurserError> {
  const error = await work.then(
    () => undefined,
    (caught: unknown) => caught,
  );
  if (!(error instanceof PurserError)) throw new Error(`no PurserError, but ${String(error)}`);
  return error;
}

const spendAt = (baseUrl: string, options: { timeoutMs?: number } = {}) =>
  new Purser({ apiKey: "purser_k", baseUrl, ...options }).spend({
    recipient: RECIPIENT,
    amount: "1",
  });

t.test("a wrong URL is reported within two seconds, without retries", async (t) => {
  const unused = createTcpServer();
  const closedPort = await listening(unused);
  const elsewhere = await scripted(html(404));
  const page = await scripted(html(200));
  const otherApi = await scripted(json(404, { detail: "Not Found" }));
  const otherJson = await scripted(json(200, { hello: "world" }));
  const broken = await scripted(html(500));
  const wrong: [string, string, RegExp][] = [
    [`http://127.0.0.1:${closedPort}`, "not_reached", /ECONNREFUSED/],
    ["http://no-such-host.invalid", "not_reached", /ENOTFOUND|EAI_AGAIN/],
    ["localhost:3000", "not_reached", /not an http/],
    ["not a url", "not_reached", /not an http/],
    [elsewhere.url, "not_purser", /HTTP 404 \(text\/html\)/],
    [page.url, "not_purser", /HTTP 200 \(text\/html\)/],
    [otherApi.url, "not_purser", /HTTP 404/],
    [otherJson.url, "not_purser", /HTTP 200/],
    // This 500 may have come after a payment, so the call is not reported as unpaid.
    [broken.url, "no_answer", /HTTP 500/],
  ];
  if (tls) {
    const port = await listening(createTlsServer(tls, (_request, response) => response.end("{}")));
    wrong.push(
      [`https://127.0.0.1:${port}`, "not_reached", /encrypted/],
      [`http://127.0.0.1:${port}`, "not_reached", /the server uses TLS/],
    );
    const plainPort = Number(new URL(page.url).port);
    wrong.push([`https://127.0.0.1:${plainPort}`, "not_reached", /encrypted/]);
  } else t.comment("no openssl on this machine: TLS was not tested");
  // Closed only once the others listen, because one of them could otherwise get its port.
  unused.close();
  await once(unused, "close");
  for (const [url, code, why] of wrong) {
    const from = performance.now();
    const error = await failure(spendAt(url));
    const took = performance.now() - from;
    t.equal(error.code, code, url);
    t.match(error.message, why);
    t.ok(error.message.includes(url), `the sentence names ${url}`);
    t.ok(took < LIMIT_MS, `${url}: ${Math.round(took)} ms`);
    if (code !== "no_answer") t.match(error.problem.detail, /Nothing was paid/);
    t.notMatch(JSON.stringify(error.problem), /purser_k/);
  }
  for (const { keys } of [elsewhere, page, otherApi, otherJson, broken])
    t.equal(keys.length, 1, "one request");
  const lines: string[] = [];
  const env = {
    PURSER_URL: `http://127.0.0.1:${closedPort}`,
    AGENT_API_KEY: "purser_k",
    XDG_CONFIG_HOME: folder,
  };
  const exit = await main(["spend", RECIPIENT, "1"], env, (line) => lines.push(line));
  t.equal(exit, 1, "nothing was paid: failed, not unknown");
  t.match(JSON.parse(lines.join("\n")), {
    code: "not_reached",
    suggestion: /PURSER_URL/,
    idempotencyKey: String,
  });
});

t.test("a call that may have paid is never reported as unpaid", async (t) => {
  const commandAt = async (url: string, more: Record<string, string> = {}) => {
    const lines: string[] = [];
    const env = { PURSER_URL: url, AGENT_API_KEY: "k", XDG_CONFIG_HOME: folder, ...more };
    const exit = await main(["spend", RECIPIENT, "1"], env, (line) => lines.push(line));
    return { exit, printed: JSON.parse(lines.join("\n")) as Record<string, unknown> };
  };
  const port = await listening(
    createTcpServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", () => socket.end("HTTP#1.1 ok\r\n\r\n"));
    }),
  );
  const unknown = { exit: 4, printed: { code: "no_answer", idempotencyKey: String } };
  const garbled = await commandAt(`http://127.0.0.1:${port}`);
  t.match(garbled, unknown, "an invalid status line came after the request");
  t.match(garbled.printed, { detail: /garbled/ });
  t.same(
    ["http://h", "https://h", "http://h:8080", "http://[::1]"].map(addressOf),
    [
      { host: "h", port: 80 },
      { host: "h", port: 443 },
      { host: "h", port: 8080 },
      { host: "::1", port: 80 },
    ],
    "the other protocol is probed at the port of the URL",
  );
  // Errors of several Node versions for a connection that breaks after the request, and before it.
  for (const [fault, outcome] of [
    [{ code: "ERR_SSL_DECRYPTION_FAILED_OR_BAD_RECORD_MAC" }, "no_answer"],
    [{ code: "ERR_SSL_WRONG_VERSION_NUMBER" }, "no_answer"],
    [{ code: "EPROTO" }, "no_answer"],
    [{ code: "EHOSTUNREACH", syscall: "read" }, "no_answer"],
    [{ code: "EHOSTUNREACH", syscall: "connect" }, "not_reached"],
    [{ code: "CERT_HAS_EXPIRED" }, "not_reached"],
  ] as const) {
    const cause = Object.assign(new Error("broken"), fault);
    const broken = () => Promise.reject(new TypeError("fetch failed", { cause }));
    const purser = new Purser({ apiKey: "k", baseUrl: "https://h", timeoutMs: 1, fetch: broken });
    const { code } = await failure(purser.spend({ recipient: RECIPIENT, amount: "1" }));
    t.equal(code, outcome, JSON.stringify(fault));
  }
  if (!tls) return t.comment("no openssl on this machine: TLS was not tested");
  const gateway = await bothProtocols(t, tls, (_method, response) => html(504)(response));
  const error = await failure(spendAt(gateway.url, { timeoutMs: 900 }));
  t.equal(error.code, "no_answer", "a gateway's 504, with TLS on the same port");
  t.notMatch(error.message, /Nothing was paid/);
  const hangsUp = await bothProtocols(t, tls, (method, response) =>
    method === "POST" ? cut(response) : html(404)(response),
  );
  t.equal((await failure(spendAt(hangsUp.url, { timeoutMs: 900 }))).code, "no_answer");
  t.ok(gateway.posts() > 0 && hangsUp.posts() > 0, "the requests had arrived");
});

t.test("waiting for the owner's decision fits into the timeout of a call", async (t) => {
  const waits: number[] = [];
  const server = createServer((request, response) => {
    const seconds = Number(new URL(request.url ?? "", "http://h").searchParams.get("wait"));
    waits.push(seconds);
    const status = waits.length < 3 ? "open" : "granted";
    setTimeout(() => json(200, { status })(response), seconds * 1_000);
  });
  const baseUrl = `http://127.0.0.1:${await listening(server)}`;
  const wait = (timeoutMs: number) =>
    new Purser({ apiKey: "k", baseUrl, timeoutMs }).waitForApproval("apr_1", { timeoutMs: 8_000 });
  t.match(await wait(2_500), { status: "granted" });
  t.same(waits, [1, 1, 1], "half of the timeout at most");
  waits.length = 0;
  const from = performance.now();
  t.match(await wait(900), { status: "granted" });
  t.same(waits, [0, 0, 0]);
  t.ok(performance.now() - from > 1_500, "and the client does not poll without a pause");
});

t.test("a request that may have arrived is retried, whatever failure follows", async (t) => {
  const done = json(200, { success: true, txHash: "0x1" });
  for (const between of [cut, html(502), html(404), problem(503, "service_unavailable")]) {
    const service = await scripted(cut, between, done);
    t.match(await spendAt(service.url), { txHash: "0x1" });
    t.equal(service.keys.length, 3);
    t.equal(new Set(service.keys).size, 1, "all attempts have the same key");
  }
  const gone = await scripted(cut, html(404));
  const error = await failure(spendAt(gone.url, { timeoutMs: 900 }));
  t.equal(error.code, "no_answer", "another server's 404 does not make it unpaid");
  t.ok(gone.keys.length > 1);
});

t.test("a service that responded before may be restarting", async (t) => {
  const self = { wallet: RECIPIENT };
  const first = createServer((_request, response) => json(200, self)(response));
  const port = await listening(first);
  const purser = new Purser({ apiKey: "k", baseUrl: `http://127.0.0.1:${port}` });
  t.match(await purser.me(), self);
  first.close();
  first.closeAllConnections();
  const again = purser.me();
  // Nothing listens for a moment, so that a connection is refused and retried; if this is too short, the test
  // proves less.
  await new Promise((resolve) => setTimeout(resolve, 600));
  const second = createServer((_request, response) => json(200, self)(response));
  second.listen(port, "127.0.0.1");
  t.teardown(() => second.close());
  t.match(await again, self);
});

t.test("content that was delivered with a 504 is kept, whatever follows", async (t) => {
  const thirdParty = { untrusted: true, status: 200, contentType: "text/plain", text: "the goods" };
  const unknown = problem(504, "payment_status_unknown", { paymentId: "pay_1", thirdParty });
  const fetchAt = (url: string) =>
    new Purser({ apiKey: "k", baseUrl: url, timeoutMs: 900 }).fetch({
      url: "https://shop.example",
    });
  const later: [string, (response: ServerResponse) => void][] = [
    ["the connection is cut", cut],
    ["another service answers", html(404)],
    ["too many requests", problem(429, "rate_limited")],
    ["the key was revoked", problem(401, "api_key_revoked")],
    ["still unknown, with less", problem(504, "payment_status_unknown", { paymentId: "pay_1" })],
  ];
  for (const [name, answer] of later) {
    const service = await scripted(unknown, answer);
    const error = await failure(fetchAt(service.url));
    t.equal(error.code, "payment_status_unknown", name);
    t.match(error.delivered, { text: "the goods", status: 200, contentType: "text/plain" });
    t.equal(error.problem.paymentId, "pay_1");
    t.equal(error.idempotencyKey, service.keys[0]);
  }
  const refused = await scripted(
    unknown,
    problem(502, "settlement_failed", { paymentId: "pay_1" }),
  );
  const error = await failure(fetchAt(refused.url));
  t.equal(error.code, "settlement_failed", "a decision replaces the unknown outcome");
  t.match(error.delivered, { text: "the goods" });
  const settled = await scripted(unknown, json(200, { success: true, paid: true, txHash: "0x1" }));
  t.match(await fetchAt(settled.url), { paid: true, txHash: "0x1", text: "the goods" });
  // The response format before `thirdParty`: the content is beside the problem's own members.
  const oldFormat = await scripted(
    problem(504, "payment_status_unknown", { paymentId: "pay_1", data: { height: 7 } }),
    cut,
  );
  t.match((await failure(fetchAt(oldFormat.url))).delivered, { data: { height: 7 } });
});

t.test("the command line prints it; a target's own failure is not a success", async (t) => {
  const run = async (url: string, args: string[]) => {
    const lines: string[] = [];
    const env = { PURSER_URL: url, AGENT_API_KEY: "k", XDG_CONFIG_HOME: folder };
    const exit = await main(args, env, (line) => lines.push(line));
    return { exit, printed: JSON.parse(lines.join("\n")) as Record<string, unknown> };
  };
  const thirdParty = { untrusted: true, text: "the goods" };
  const refused = await scripted(
    problem(504, "payment_status_unknown", { paymentId: "pay_1", thirdParty }),
    problem(502, "settlement_failed", { paymentId: "pay_1" }),
  );
  t.match(await run(refused.url, ["fetch", "https://shop.example"]), {
    exit: 1,
    printed: { code: "settlement_failed", delivered: { text: "the goods" } },
  });
  for (const [status, exit] of [
    [200, 0],
    [404, 1],
    [500, 1],
  ] as const) {
    const service = await scripted(
      json(200, { success: true, paid: false, status, delivered: status === 200 }),
    );
    t.equal((await run(service.url, ["fetch", "https://shop.example"])).exit, exit, String(status));
  }
});
