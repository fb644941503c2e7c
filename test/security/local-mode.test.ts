// Goal: local mode is reachable only from its own machine: production starts without it, other websites cannot
// reach it (DNS rebinding), and neither can an agent's fetch.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { request } from "node:http";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { randomBytes } from "node:crypto";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { freePort } from "../../server/local/free-port.ts";
import { testApp } from "../helpers/app.ts";
import { testAccount, testChain } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { testDatabase } from "../helpers/postgres.ts";

const ROOT = dirname(dirname(dirname(new URL(import.meta.url).pathname)));
const READY = "Ctrl-C stops everything.";
await prepare((line) => t.comment(line), [ensureServerBuild]);

/** Starts the real process with only this environment. */
function start(t: Test, env: Record<string, string>) {
  const dataDir = mkdtempSync(join(tmpdir(), "purser-mode-"));
  const child = spawn(process.execPath, ["server/start.mjs", "--built"], {
    cwd: ROOT,
    env: { PATH: process.env["PATH"], HOME: dataDir, DATA_DIR: dataDir, LOG_LEVEL: "warn", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const ended = once(child, "exit").then(([code]) => code as number);
  t.teardown(async () => {
    // Nothing of a production process has to be cleaned up, so it can be killed.
    if (child.exitCode === null)
      child.kill(env["PURSER_MODE"] === "production" ? "SIGKILL" : "SIGTERM");
    await ended;
    rmSync(dataDir, { recursive: true, force: true });
  });
  const ready = new Promise<void>((resolve, reject) => {
    child.stdout.on("data", () => void (output.includes(READY) && resolve()));
    void ended.then((code) => reject(new Error(`ended with ${code}: ${output}`)));
  });
  ready.catch(() => undefined);
  return { ended, ready, output: () => output, dataDir };
}

/** Sends any Host header, as in DNS rebinding. */
function asHost(
  port: number,
  path: string,
  host: string | undefined,
): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        host: "127.0.0.1",
        port,
        path,
        setHost: false,
        headers: host === undefined ? {} : { host },
      },
      (response) => {
        let body = "";
        response.on("data", (chunk: Buffer) => (body += chunk.toString()));
        response.on("end", () => resolve({ status: response.statusCode ?? 0, body }));
      },
    );
    sent.on("error", reject).end();
  });
}

t.test("production with missing settings does not start, and names all of them", async (t) => {
  for (const env of [
    { PURSER_MODE: "production" },
    { PURSER_MODE: "production", NODE_ENV: "development" },
    { NODE_ENV: "production", HOST: "0.0.0.0" },
  ] as Record<string, string>[]) {
    const { ended, output, dataDir } = start(t, { ...env, PORT: String(await freePort()) });
    t.equal(await ended, 1, JSON.stringify(env));
    for (const key of [
      "DATABASE_URL",
      "RPC_URL_5042002",
      "RELAYER_PRIVATE_KEYS",
      "MASTER_KEYS",
      "FACILITATOR_API_KEYS",
    ])
      t.match(output(), `${key} is missing`);
    t.notMatch(output(), /^\s+at /m, "no stack trace");
    t.same(readdirSync(dataDir), [], "nothing was generated");
  }
});

t.test("production has no faucet, demo wallet, local route or open metrics", async (t) => {
  const chain = await testChain(t);
  const database = await testDatabase(t);
  const port = await freePort();
  const { ready } = start(t, {
    PURSER_MODE: "production",
    // Must not override the mode.
    NODE_ENV: "development",
    PORT: String(port),
    DATABASE_URL: database.url,
    RPC_URL_5042002: chain.rpcUrl,
    RELAYER_PRIVATE_KEYS: chain.relayerPrivateKey,
    MASTER_KEYS: `k1:${randomBytes(32).toString("base64")}`,
    FACILITATOR_OPEN: "true",
  });
  await ready;
  for (const path of ["/api/local/info", "/api/local/faucet", "/metrics"])
    t.equal((await asHost(port, path, "localhost")).status, 404, path);
  const info = await asHost(port, "/api/info", "any.example");
  t.equal(info.status, 200, "behind a proxy any host name is accepted");
  t.match(JSON.parse(info.body), { localWorld: false });
  for (const host of ["shop/dear?q=", "user@shop", "shop:80:80", "a b", ""]) {
    const refused = await asHost(port, "/api/info", host);
    t.equal(refused.status, 400, `an invalid Host header: ${host}`);
    t.match(JSON.parse(refused.body), { code: "bad_request" });
  }
});

t.test("local mode accepts only its own host names", async (t) => {
  const port = await freePort();
  const { ready } = start(t, { PORT: String(port), NODE_ENV: "production" });
  await ready;
  for (const host of [
    "localhost",
    `localhost:${port}`,
    `127.0.0.1:${port}`,
    `[::1]:${port}`,
    "LOCALHOST",
  ])
    t.equal((await asHost(port, "/api/local/info", host)).status, 200, host);
  for (const host of [
    "evil.example",
    `evil.example:${port}`,
    "localhost.evil.example",
    "127.0.0.1.nip.io",
    "localhost@evil.example",
    "localhost:80:80",
    "evil.example#localhost",
    "",
  ])
    for (const path of ["/api/local/info", "/api/health", "/", "/nowhere"]) {
      const { status, body } = await asHost(port, path, host);
      t.equal(status, 421, `${host} ${path}`);
      t.match(JSON.parse(body), { code: "host_not_allowed", detail: /\. Call it as localhost\.$/ });
    }
  t.equal((await asHost(port, "/api/local/info", undefined)).status, 400, "no Host header");
});

t.test("an agent's fetch cannot read the demo key or use the faucet", async (t) => {
  const demoKey = testAccount(901).privateKey;
  const world = await testApp(t, {
    listen: true,
    configure: (config) => {
      config.mode = "local";
      config.fetchPrivateOrigins = [config.publicUrl];
      config.local = { faucetPrivateKey: testAccount(0).privateKey, demoOwnerPrivateKey: demoKey };
    },
  });
  const { app, config, baseUrl } = world;
  const direct = await fetch(`${baseUrl}/api/local/info`);
  t.match(await direct.text(), demoKey, "the web app's own page can");
  // The Host header is also checked without a listening server: this request is injected.
  const rebound = await app.inject({ url: "/api/local/info", headers: { host: "evil.example" } });
  t.equal(rebound.statusCode, 421);
  for (const [origin, status] of [
    ["https://evil.example", 403],
    ["null", 403],
    [config.publicUrl, 200],
    [undefined, 200],
  ] as const) {
    const given = await fetch(`${baseUrl}/api/local/faucet`, {
      method: "POST",
      headers: { "content-type": "application/json", ...(origin !== undefined && { origin }) },
      body: JSON.stringify({ address: testAccount(9).address, amount: "0.01" }),
    });
    t.equal(given.status, status, `the faucet for the origin ${origin}`);
    t.equal(given.headers.get("access-control-allow-origin"), status === 200 ? null : "*");
  }
  const agent = await createAgent(world, await signIn(world));
  const spelled = [
    "/api/local/info",
    "/api/local/info/",
    "/api/local/info?x=1",
    "/api/%6cocal/info",
    "/api/%6Cocal/%69nfo",
    "/api/./local/x/../info",
    "/api//local/info",
    "//api/local/info",
    "/API/LOCAL/INFO",
    "/api/local/info#x",
    "/api/local/info;x",
    "\\api\\local\\info",
    "/api/local/%2e%2e/local/info",
  ].map((path) => `${baseUrl}${path}`);
  const others = [
    `http://127.0.0.1:${config.port}/api/local/info`,
    `http://[::1]:${config.port}/api/local/info`,
    `http://[::ffff:127.0.0.1]:${config.port}/api/local/info`,
    `http://2130706433:${config.port}/api/local/info`,
    `http://localhost.:${config.port}/api/local/info`,
    `http://LOCALHOST:${config.port}/api/local/info`,
    `http://x@localhost:${config.port}/api/local/info`,
  ];
  for (const url of [...spelled, ...others]) {
    const answer = await app.inject({
      method: "POST",
      url: "/api/agents/x402-fetch",
      headers: agent.headers,
      payload: { url, headers: { "x-purser-outbound": "", "X-Purser-Outbound ": "0" } },
    });
    t.notOk(answer.body.includes(demoKey.slice(2)), `${url}: ${answer.statusCode}`);
    const plain = await app.inject({
      method: "POST",
      url: "/api/agents/x402-fetch",
      headers: agent.headers,
      payload: { url },
    });
    t.notOk(plain.body.includes(demoKey.slice(2)), `${url}: ${plain.statusCode}`);
  }
  const minted = await app.inject({
    method: "POST",
    url: "/api/agents/x402-fetch",
    headers: agent.headers,
    payload: {
      url: `${baseUrl}/api/local/faucet`,
      method: "POST",
      body: { address: testAccount(9).address },
    },
  });
  t.notMatch(minted.body, /"amount":"100"/, "nor use the faucet");
  const free = await app.inject({
    method: "POST",
    url: "/api/agents/x402-fetch",
    headers: agent.headers,
    payload: { url: `${baseUrl}/api/health` },
  });
  t.equal(free.statusCode, 200, "other routes of Purser's own origin are reachable");
});
