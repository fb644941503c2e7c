// Goal: the key of an RPC endpoint, in any part of its URL and with any failure of the endpoint, is in no log line,
// response, metric or readiness part.
import { createServer, type ServerResponse } from "node:http";
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { inspect } from "node:util";
import t from "tap";
import { Agent } from "undici";
import { privateKeyToAccount, generatePrivateKey } from "viem/accounts";
import { postJson } from "../../server/infra/post.ts";
import { ChainRpc } from "../../server/infra/chain/rpc.ts";
import { hideInError, hideSecrets, secretsOfUrl } from "../../server/core/secret-text.ts";
import { signedPayment } from "../facilitator/payments.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { SecretWatch } from "../helpers/secret-watch.ts";

const token = (): string => randomBytes(12).toString("hex");
const secrets = { path: token(), query: token(), user: token(), password: `p/${token()}+` };

type Trouble = (response: ServerResponse, url: string) => void;
/** Each failure repeats the request's URL or key, as nodes and gateways do. */
const TROUBLES: Record<string, Trouble | "down"> = {
  "401": (response, url) =>
    response.writeHead(401).end(JSON.stringify({ error: `bad key in ${url}` })),
  "429": (response, url) =>
    response.writeHead(429).end(
      JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        error: { code: -32005, message: `rate limit of ${url}`, data: { see: url } },
      }),
    ),
  HTML: (response, url) => response.writeHead(502).end(`<html>no backend for ${url}</html>`),
  "an error": (response, url) =>
    response.end(
      JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        error: { code: -32000, message: `key ${secrets.path} of ${url} has no access`, data: url },
      }),
    ),
  "the key alone": (response) => response.end(secrets.path),
  "cut off": (response) => response.destroy(),
  down: "down",
};

t.test("an endless response is aborted, and a failed request leaves no timer behind", async (t) => {
  let sentBytes = 0;
  const flood = createServer((_request, response) => {
    const chunk = Buffer.alloc(1_048_576, " ");
    const more = (): void => {
      while (!response.destroyed && response.write(chunk)) sentBytes += chunk.length;
      sentBytes += chunk.length;
    };
    response.on("drain", more);
    more();
  });
  flood.listen(0, "127.0.0.1");
  await once(flood, "listening");
  t.teardown(() => void flood.close());
  const { port } = flood.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  const rpc = new ChainRpc({ urls: [url], timeoutMs: 20_000 });
  t.teardown(() => rpc.close());
  const error = await rpc.call("eth_chainId", []).catch((reason: unknown) => reason);
  t.match(inspect(error), /UND_ERR_RES_EXCEEDED_MAX_SIZE/, "aborted by its size, not by a timeout");
  t.ok(sentBytes < 128 * 1_048_576, `${sentBytes} bytes`);

  const timers = (): number =>
    process.getActiveResourcesInfo().filter((what) => what === "Timeout").length;
  const agent = new Agent();
  t.teardown(() => agent.close());
  const broken = { dispatch: () => assert.fail("out of order") } as unknown as Agent;
  const before = timers();
  const patience = { budgetMs: 60_000 };
  await t.rejects(postJson(agent, url, { value: 1n }, patience), { message: /BigInt/ });
  await t.rejects(postJson(broken, url, {}, patience), { message: /out of order/ });
  t.equal(timers(), before, "no timer is left");
});

t.test("in the whole service", async (t) => {
  let trouble: Trouble | undefined;
  let target = "";
  let credentials: string | undefined;
  const gateway = createServer((request, response) => {
    credentials = request.headers.authorization;
    if (trouble) return trouble(response, `http://${secrets.user}@gateway${request.url ?? ""}`);
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const answer = await fetch(target, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: Buffer.concat(chunks),
      });
      response.end(await answer.text());
    })().catch(() => response.destroy());
  });
  gateway.listen(0, "127.0.0.1");
  await new Promise((resolve) => gateway.once("listening", resolve));
  t.teardown(() => gateway.close());
  const { port } = gateway.address() as AddressInfo;
  const url = `http://${secrets.user}:${encodeURIComponent(secrets.password)}@127.0.0.1:${port}/v2/${secrets.path}?apikey=${secrets.query}`;

  const { testChain } = await import("../helpers/chain.ts");
  const chain = await testChain(t);
  target = chain.rpcUrl;
  const METRICS_TOKEN = token();
  const world = await testApp(t, {
    chain,
    listen: true,
    env: { RPC_URL_5042002: url, LOG_LEVEL: "trace", METRICS_TOKEN },
  });
  const { app, logs } = world;
  t.equal(
    credentials,
    `Basic ${Buffer.from(`${secrets.user}:${secrets.password}`).toString("base64")}`,
    "the URL's credentials are sent as basic authentication",
  );
  const owner = await signIn(world);
  const payee = chain.accounts[0]?.address ?? "0x";
  const agent = await createAgent(world, owner, { allowlist: [payee], dailyLimit: "5" });
  await chain.mint(agent.walletAddress, 5_000_000n);
  const payer = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, 5_000_000n);

  const watch = new SecretWatch();
  for (const [name, secret] of Object.entries(secrets)) watch.addSecret(name, secret);
  watch.addSecret(
    "credentials",
    Buffer.from(`${secrets.user}:${secrets.password}`).toString("base64"),
  );
  for (const [name, how] of Object.entries(TROUBLES)) {
    if (how === "down") {
      gateway.closeAllConnections();
      gateway.close();
    } else trouble = how;
    const body = await signedPayment({ chain, payer, payTo: payee });
    const requests = [
      { url: "/api/ready" },
      { url: "/api/info" },
      { url: "/metrics", headers: { authorization: `Bearer ${METRICS_TOKEN}` } },
      { url: "/api/agents/me", headers: agent.headers },
      { url: `/api/agents/${agent.id}`, headers: { cookie: owner.cookie } },
      { url: "/api/owner/balance", headers: { cookie: owner.cookie } },
      { url: "/api/arc-stats" },
      {
        method: "POST" as const,
        url: "/api/agents/spend",
        headers: agent.headers,
        payload: { recipient: payee, amount: "1" },
      },
      { method: "POST" as const, url: "/api/x402/verify", payload: body },
      { method: "POST" as const, url: "/api/x402/settle", payload: body },
    ];
    const answers = await Promise.all(requests.map((one) => app.inject(one)));
    for (const [index, answer] of answers.entries())
      watch.see(
        `${name}: answer of ${requests[index]?.url}`,
        JSON.stringify(answer.headers) + answer.body,
      );
    t.ok(
      answers.some(({ statusCode }) => statusCode >= 500),
      `${name} causes an error`,
    );
  }
  watch.see("logs", logs.join("\n"));
  t.ok(
    logs.some((line) => line.includes("RPC endpoint 1 did not answer")),
    "the failures are logged",
  );
  t.same(watch.leaks(), []);
});

t.test("in error objects, before they are logged", async (t) => {
  const url = "https://user:pa%2Fss@rpc.example/v2/abcdef0123456789?key=0123456789abcdef";
  const hide = hideSecrets(secretsOfUrl(url));
  const cause = Object.assign(new Error(`fetch ${url} failed`), {
    details: `URL: ${url}`,
    metaMessages: [`URL: ${url}`, "Request body: {}"],
    url,
  });
  const error = hideInError(
    new AggregateError([cause], `of key=0123456789abcdef`, { cause }),
    hide,
  );
  const texts = [
    error.message,
    error.stack,
    cause.message,
    cause.stack,
    cause.details,
    ...cause.metaMessages,
    cause.url,
  ].join("\n");
  t.notMatch(texts, /abcdef0123456789|0123456789abcdef|pa%2Fss|pa\/ss/);
  t.match(texts, "[secret]");
  const plain = hideSecrets(secretsOfUrl("https://arb1.arbitrum.io/rpc"));
  t.equal(
    plain("arbitrum /rpc is a rpc"),
    "arbitrum [secret] is a rpc",
    "only whole paths are replaced",
  );
  t.equal(
    hideSecrets(secretsOfUrl("http://127.0.0.1:8545"))("http://127.0.0.1:8545/"),
    "http://127.0.0.1:8545/",
  );
});
