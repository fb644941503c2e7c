// Goal: no key of an agent, wallet, session or the service itself appears in responses, logs, metrics or the
// database.
import { randomBytes } from "node:crypto";
import t from "tap";
import { KeyRing, withPrivateKey } from "../../server/plugins/custody/envelope.ts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, sealedWallets, signIn } from "../helpers/owner.ts";
import { callTool, codeFor, exchange, post, renew } from "../helpers/oauth.ts";
import { SecretWatch } from "../helpers/secret-watch.ts";

interface TestRequest {
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  url: string;
  headers?: Record<string, string>;
  body?: unknown;
}

t.test("the leak detector finds every encoding of a secret", async (t) => {
  const watch = new SecretWatch();
  watch.addSecret("text", "purser_Secret/+1");
  watch.addSecret("bytes", Buffer.from("00ff10aa55cc00ff10aa55cc00ff10aa", "hex"));
  for (const [place, text] of [
    ["plain", "x purser_Secret/+1 y"],
    ["percent", "?key=purser_Secret%2F%2B1"],
    ["base64", Buffer.from("purser_Secret/+1").toString("base64")],
    ["hex", "\\x00FF10AA55CC00FF10AA55CC00FF10AA"],
    ["bytes in base64", Buffer.from("00ff10aa55cc00ff10aa55cc00ff10aa", "hex").toString("base64")],
    ["nothing", "purser_ 00ff10"],
  ] as const)
    watch.see(place, text);
  t.same(
    watch.leaks().map(({ place }) => place),
    ["plain", "percent", "base64", "hex", "bytes in base64"],
  );
});

const METRICS_TOKEN = randomBytes(24).toString("hex");

t.test("during typical use and errors", async (t) => {
  const watch = new SecretWatch();
  const service = await testApp(t, { env: { LOG_LEVEL: "trace", METRICS_TOKEN } });
  watch.addSecret("metrics token", METRICS_TOKEN);
  const { app, config, database, chain } = service;
  const send = async ({ method = "GET", url, headers = {}, body }: TestRequest) => {
    const answer = await app.inject({
      method,
      url,
      headers,
      ...(body === undefined ? {} : { payload: JSON.stringify(body) }),
    });
    watch.see(
      `answer of ${method} ${url.split("?", 1)[0]}`,
      JSON.stringify(answer.headers) + answer.body,
    );
    return answer;
  };

  const owner = await signIn(service);
  watch.addSecret("session token", owner.cookie.split("=")[1] ?? "");
  const shop = chain.accounts[0]?.address ?? "0x";
  // The helper receives the two responses that contain a key once; they are not watched.
  const agent = await createAgent(service, owner, { allowlist: [shop], dailyLimit: "5" });
  watch.addSecret("agent key", agent.apiKey);
  const keyUrl = `/api/agents/${agent.id}/keys`;
  const made = await asOwner(app, owner, { method: "POST", url: keyUrl, body: {} });
  const second = made.json<{ apiKey: string; key: { id: string } }>();
  watch.addSecret("second key", second.apiKey);
  const rotateUrl = `${keyUrl}/${second.key.id}/rotate`;
  const rotated = await asOwner(app, owner, { method: "POST", url: rotateUrl, body: {} });
  watch.addSecret("rotated key", rotated.json<{ apiKey: string }>().apiKey);
  t.equal(rotated.statusCode, 201);

  // Likewise the responses that contain a code or a token once.
  const given = await codeFor(service, owner, agent.id);
  watch.addSecret("code", given.code);
  watch.addSecret("verifier", given.verifier);
  const tokens = (await exchange(service, given)).json<Record<string, string>>();
  watch.addSecret("access token", tokens["access_token"] ?? "");
  watch.addSecret("refresh token", tokens["refresh_token"] ?? "");
  const { clientId } = given;
  const renewed = await renew(service, { clientId, refreshToken: tokens["refresh_token"] ?? "" });
  const current = renewed.json<Record<string, string>>();
  watch.addSecret("second access token", current["access_token"] ?? "");
  watch.addSecret("second refresh token", current["refresh_token"] ?? "");

  const ring = new KeyRing(config.masterKeys, config.masterKeyActive);
  for (const wallet of await sealedWallets(database))
    await withPrivateKey(ring, wallet, wallet, (privateKey) =>
      watch.addSecret("wallet key", Uint8Array.from(privateKey)),
    );
  for (const { key } of config.masterKeys) if (key) watch.addSecret("master key", key);
  for (const key of config.relayerPrivateKeys)
    watch.addSecret("relayer key", Buffer.from(key.slice(2), "hex"));

  await t.test("typical requests of owners and agents", async (t) => {
    const mine = owner.headers;
    const url = `/api/agents/${agent.id}`;
    await chain.mint(agent.walletAddress, 10_000_000n);
    const paid = await send({
      method: "POST",
      url: "/api/agents/spend",
      headers: agent.headers,
      body: { recipient: shop, amount: "1.5", memo: "a real one" },
    });
    t.equal(paid.statusCode, 200, paid.body);
    const denied = await send({
      method: "POST",
      url: "/api/agents/spend",
      headers: { ...agent.headers, "idempotency-key": "once" },
      body: { recipient: shop, amount: "100" },
    });
    t.equal(denied.statusCode, 403);
    for (const path of ["/api/agents/me", "/api/agents/me/payments"])
      t.equal((await send({ url: path, headers: agent.headers })).statusCode, 200, path);
    for (const path of [
      "/api/agents",
      url,
      `${url}/keys`,
      `${url}/connections`,
      `${url}/audit`,
      `${url}/payments`,
      "/api/overview",
      "/api/auth/session",
      "/api/auth/sessions",
      "/openapi.json",
      "/api/info",
      "/api/ready",
      "/api/x402/supported",
      "/api/owner/balance",
      "/docs/",
      "/skill.md",
    ])
      t.equal((await send({ url: path, headers: mine })).statusCode, 200, path);
    const authorization = `Bearer ${METRICS_TOKEN}`;
    t.equal((await send({ url: "/metrics", headers: { authorization } })).statusCode, 200);
    const mcp = await send({
      method: "POST",
      url: "/mcp",
      headers: { ...agent.headers, accept: "application/json, text/event-stream" },
      body: {
        jsonrpc: "2.0",
        id: 1,
        method: "tools/call",
        params: { name: "no_such_tool", arguments: { apiKey: "x" } },
      },
    });
    t.equal(mcp.statusCode, 200, mcp.body);
    const connected = await callTool(service, current["access_token"] ?? "");
    t.equal(connected.statusCode, 200);
    watch.see("answer of a tool", JSON.stringify(connected.headers) + connected.body);
    await send({ method: "PATCH", url, headers: mine, body: { status: "paused" } });
    await send({ method: "DELETE", url: `${keyUrl}/${second.key.id}`, headers: mine });
    const prepared = await send({
      method: "POST",
      url: `${url}/withdrawals/prepare`,
      headers: mine,
      body: { amount: "max" },
    });
    t.equal(prepared.statusCode, 200, prepared.body);
  });

  await t.test("errors", async (t) => {
    const auth = agent.headers;
    await send({
      method: "POST",
      url: "/api/agents/spend",
      headers: auth,
      body: { recipient: "x" },
    });
    await send({ url: "/api/nowhere", headers: auth });
    const key = encodeURIComponent(agent.apiKey);
    await send({ url: `/api/agents/me?apiKey=${key}`, headers: auth });
    for (const token of [current["access_token"], current["refresh_token"], given.code]) {
      const authorization = `Bearer ${token}`;
      await send({ url: "/api/agents/me", headers: { authorization } });
      await send({ method: "POST", url: `/mcp?access_token=${token}`, body: {} });
      await app.inject({ url: `/oauth/${token}` });
      await app.inject({ url: `/api/agents/${token}`, headers: owner.headers });
      const form = { token: token ?? "", client_id: "another" };
      for (const path of ["/oauth/token", "/oauth/revoke"]) {
        const answer = await post(service, path, { ...form, grant_type: "refresh_token" });
        watch.see(`answer of ${path}`, answer.body);
      }
    }
    const twice = await exchange(service, given);
    watch.see("a code shown twice", twice.body);
    // A careless client puts its key into paths and bodies: it must not be stored or logged, though an error
    // response may repeat it.
    await app.inject({ url: `/api/agents/${agent.apiKey}`, headers: owner.headers });
    await app.inject({ url: `/api/${agent.apiKey}`, headers: auth });
    const inBody = await app.inject({
      method: "POST",
      url: "/api/agents/spend",
      headers: auth,
      payload: JSON.stringify({ apiKey: agent.apiKey, recipient: shop, amount: "1" }),
    });
    t.equal(inBody.statusCode, 422);
    await asOwner(app, owner, {
      method: "PATCH",
      url: `/api/agents/${agent.id}`,
      body: { status: "active" },
    });
    await database.pool.query(
      "UPDATE agent_wallets SET ciphertext = set_byte(ciphertext, 40, get_byte(ciphertext, 40) # 1)",
    );
    const broken = await send({
      method: "POST",
      url: "/api/agents/spend",
      headers: auth,
      body: { recipient: shop, amount: "0.5" },
    });
    t.equal(broken.statusCode, 503, "a wallet that cannot be decrypted is a server error");
    t.notMatch(broken.body, /wallet|ciphertext|kid|altered/, "the response has no details");
    t.match(service.logs.join(""), /CustodyError/, "the log has them");
  });

  const rowCount = await watch.seeDatabase(database.pool);
  t.ok(rowCount > 20, `${rowCount} rows checked`);
  for (const line of service.logs) watch.see("log", line);
  t.ok(service.logs.length > 20, `${service.logs.length} log lines checked`);
  t.ok(watch.places.length > 20, `${watch.places.length} places checked`);
  t.same(watch.leaks(), []);
});
