// Goal: a program gets exactly the access that the owner's wallet signed: once, for one agent, only at /mcp;
// stolen, replayed or altered requests get nothing.
import { createHash } from "node:crypto";
import t from "tap";
import { toolResult } from "../helpers/tool-result.ts";
import { readChain } from "../../server/plugins/audit/store.ts";
import { verifyChain } from "../../server/plugins/audit/verify.ts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn } from "../helpers/owner.ts";
import {
  allow,
  requestConsent,
  callTool,
  codeFor,
  connect,
  exchange,
  pkce,
  post,
  register,
  renew,
  tryRequestConsent,
  tryRegister,
} from "../helpers/oauth.ts";
import { messageOf } from "../helpers/mcp-answer.ts";

const world = await testApp(t, {
  env: { RATE_LIMITS: "unproven=60000,address=60000,register=500" },
});
const { app, config, database, chain } = world;
const owner = await signIn(world);
const shop = chain.accounts[0]?.address ?? "0x";
const agent = await createAgent(world, owner, { allowlist: [shop], name: "first" });
const other = await createAgent(world, owner, { name: "second" });
await chain.mint(agent.walletAddress, 50_000_000n);

const errorOf = (answer: { json: () => { error: string } }) => answer.json().error;
const structured = (answer: { body: string }) =>
  toolResult((messageOf(answer) as { result: { content: unknown } }).result);
const works = async (token: string) => (await callTool(world, token)).statusCode === 200;

t.test("metadata at the well-known URLs of all specification versions", async (t) => {
  const base = config.publicUrl;
  for (const path of ["", "/mcp"]) {
    const resource = await app.inject(`/.well-known/oauth-protected-resource${path}`);
    t.match(resource.json(), { resource: `${base}/mcp`, authorization_servers: [base] });
    const server = await app.inject(`/.well-known/oauth-authorization-server${path}`);
    t.match(server.json(), {
      issuer: base,
      authorization_endpoint: `${base}/oauth/authorize`,
      token_endpoint: `${base}/oauth/token`,
      registration_endpoint: `${base}/oauth/register`,
      revocation_endpoint: `${base}/oauth/revoke`,
      code_challenge_methods_supported: ["S256"],
      token_endpoint_auth_methods_supported: ["none"],
      authorization_response_iss_parameter_supported: true,
      client_id_metadata_document_supported: true,
    });
    t.equal(server.headers["access-control-allow-origin"], "*");
  }
});

t.test("a 401 of /mcp links the metadata and is JSON-RPC", async (t) => {
  const metadata = `resource_metadata="${config.publicUrl}/.well-known/oauth-protected-resource/mcp"`;
  const none = await app.inject({ method: "POST", url: "/mcp", payload: {} });
  t.equal(none.statusCode, 401);
  const challenge = String(none.headers["www-authenticate"]);
  t.ok(challenge.startsWith("Bearer ") && challenge.includes(metadata), challenge);
  t.match(challenge, /scope="agent"/);
  t.notMatch(challenge, /error=/, "without a token there is no token error");
  t.match(none.json(), {
    jsonrpc: "2.0",
    id: null,
    error: { code: -32001, message: String, data: { code: "missing_api_key" } },
  });
  for (const [token, code] of [
    ["nonsense", "invalid_api_key"],
    ["purser_at_nonsense", "invalid_api_key"],
  ] as const) {
    const bad = await callTool(world, token);
    t.equal(bad.statusCode, 401);
    t.match(String(bad.headers["www-authenticate"]), /error="invalid_token"/);
    t.match(bad.json(), { error: { data: { code } } });
  }
  const elsewhere = await app.inject("/api/agents/me");
  t.notMatch(String(elsewhere.headers["www-authenticate"]), /resource_metadata/, "only at /mcp");
  const preflight = await app.inject({
    method: "OPTIONS",
    url: "/mcp",
    headers: {
      origin: "http://localhost:6274",
      "access-control-request-method": "POST",
      "access-control-request-headers": "authorization,content-type,mcp-protocol-version",
    },
  });
  t.equal(preflight.headers["access-control-allow-origin"], "*");
  t.match(String(preflight.headers["access-control-allow-headers"]), /mcp-protocol-version/);
  const read = await app.inject({ method: "POST", url: "/mcp", headers: { origin: "http://x.y" } });
  t.match(String(read.headers["access-control-expose-headers"]), /www-authenticate/);
  t.match(String(read.headers["access-control-expose-headers"]), /mcp-session-id/);
});

t.test("from consent to a payment that names its connection", async (t) => {
  const { accessToken, connectionId, clientId } = await connect(world, owner, agent.id);
  const status = structured(await callTool(world, accessToken));
  t.match(status, { name: "first", key: { label: /this computer.*Test Program/ } });
  const sent = structured(
    await callTool(world, accessToken, "send_usdc", { recipient: shop, amount: "1.5" }),
  );
  t.match(sent, { success: true, amount: "1.5" });
  const denied = structured(
    await callTool(world, accessToken, "send_usdc", { recipient: shop, amount: "100" }),
  );
  t.match(denied, { code: "daily_limit_exceeded" }, "the agent's limits apply to the connection");
  const payments = await app.inject({
    url: `/api/agents/${agent.id}/payments`,
    headers: owner.headers,
  });
  for (const payment of payments.json<{ items: { apiKey: unknown }[] }>().items)
    t.match(payment, { apiKey: { id: connectionId } });
  const url = `/api/agents/${agent.id}/connections`;
  const listed = await app.inject({ url, headers: owner.headers });
  t.match(listed.json(), {
    items: [{ id: connectionId, clientId, status: "active", thirdParty: { name: "Test Program" } }],
  });
  const keys = await app.inject({ url: `/api/agents/${agent.id}/keys`, headers: owner.headers });
  t.equal(keys.json<{ items: unknown[] }>().items.length, 1, "it is not listed among the keys");
  for (const method of ["DELETE", "POST"] as const) {
    const path = `/api/agents/${agent.id}/keys/${connectionId}${method === "POST" ? "/rotate" : ""}`;
    t.equal((await asOwner(app, owner, { method, url: path, body: {} })).statusCode, 404);
  }
});

t.test("a token works only at /mcp, only in the header, and only for its agent", async (t) => {
  const { accessToken } = await connect(world, owner, agent.id);
  const authorization = `Bearer ${accessToken}`;
  for (const url of ["/api/agents/me", "/api/agents/me/payments", "/api/agents/me/fetches"]) {
    const answer = await app.inject({ url, headers: { authorization } });
    t.equal(answer.statusCode, 401, url);
    t.equal(answer.json<{ code: string }>().code, "invalid_access_token");
  }
  const spend = await app.inject({
    method: "POST",
    url: "/api/agents/spend",
    headers: { authorization },
    payload: { recipient: shop, amount: "1" },
  });
  t.equal(spend.statusCode, 401, "not even for a payment that the agent may make");
  for (const url of [`/mcp?access_token=${accessToken}`, `/mcp?authorization=${accessToken}`]) {
    const answer = await app.inject({ method: "POST", url, payload: {} });
    t.equal(answer.statusCode, 401, "a token in the URL is ignored");
  }
  const inBody = await app.inject({
    method: "POST",
    url: "/mcp",
    headers: { "content-type": "application/x-www-form-urlencoded" },
    payload: `access_token=${accessToken}`,
  });
  t.equal(inBody.statusCode, 401, "also in a form");
  t.match(structured(await callTool(world, accessToken)), { id: agent.id });
});

t.test("the pass of internal requests cannot be used from outside", async (t) => {
  const { accessToken } = await connect(world, owner, agent.id);
  const seen: string[] = [];
  const inject = app.inject.bind(app);
  // Simulates an attacker who can read the process's internal requests.
  const spied = async (...args: Parameters<typeof inject>) => {
    const [options] = args as unknown as [{ headers?: Record<string, string> }];
    seen.push(options.headers?.["authorization"] ?? "");
    return inject(...args);
  };
  (app as { inject: unknown }).inject = spied;
  try {
    await callTool({ app: { ...app, inject }, config }, accessToken);
  } finally {
    (app as { inject: unknown }).inject = inject;
  }
  const passes = seen.filter((header) => header.startsWith("Bearer pass_"));
  t.ok(passes.length > 0, "internal requests carry a pass instead of the token");
  t.notOk(seen.includes(`Bearer ${accessToken}`));
  for (const authorization of [...passes, "Bearer pass_", `Bearer pass_${"A".repeat(43)}`])
    for (const url of ["/api/agents/me", "/mcp"]) {
      const method = url === "/mcp" ? "POST" : "GET";
      const answer = await inject({ method, url, headers: { authorization } });
      t.equal(answer.statusCode, 401, `${url}: used from outside`);
    }
});

t.test("a session without the wallet's signature connects nothing", async (t) => {
  const connections = async () =>
    (await database.pool.query("SELECT 1 FROM oauth_connections")).rowCount;
  const before = await connections();
  const consent = await requestConsent(world, owner, await register(world));
  const url = `/api/oauth/requests/${consent.id}/allow`;
  const send = (body: unknown, headers = owner.headers) =>
    app.inject({ method: "POST", url, headers, payload: JSON.stringify(body) });
  const response = await send({ agentId: agent.id });
  t.equal(response.statusCode, 403);
  const { code, order } = response.json<{ code: string; order: Record<string, string> }>();
  t.equal(code, "owner_signature_required");
  t.match(order, { agent: agent.id, label: 'Connection to this computer, named "Test Program"' });
  const days = (Number(order["expiresAt"]) - Date.now() / 1000) / 86_400;
  t.ok(days > 89 && days <= 90, "the wallet shows the expiry");
  for (const signature of ["0x", `0x${"11".repeat(65)}`]) {
    const forged = await send({ agentId: agent.id, authorization: { order, signature } });
    t.ok([401, 422].includes(forged.statusCode), forged.body);
  }
  const thief = await signIn(world);
  const byThief = await allow(world, { ...thief, headers: owner.headers }, consent.id, agent.id);
  t.equal(byThief.statusCode, 401, "another wallet's signature");
  t.equal(await connections(), before, "nothing was connected");
  const elsewhere = await asOwner(app, owner, {
    method: "POST",
    url: `/api/agents/${agent.id}/keys`,
    body: {
      label: order["label"],
      expiresAt: new Date(Number(order["expiresAt"]) * 1000).toISOString(),
    },
  });
  t.equal(elsewhere.statusCode, 422, "a signature for a connection cannot create a normal key");
  t.equal((await allow(world, owner, consent.id, agent.id)).statusCode, 200, "signed by the owner");
  t.equal((await allow(world, owner, consent.id, agent.id)).statusCode, 404, "only once");
});

t.test("a consent belongs to one session and owner, and to Purser's own page", async (t) => {
  const clientId = await register(world);
  const consent = await requestConsent(world, owner, clientId);
  const elsewhere = await signIn(world, owner.account);
  t.equal((await allow(world, elsewhere, consent.id, agent.id)).statusCode, 404, "another session");
  const otherOwner = await signIn(world);
  const otherOwnersAgent = await createAgent(world, otherOwner);
  t.equal(
    (await allow(world, otherOwner, consent.id, otherOwnersAgent.id)).statusCode,
    404,
    "another owner",
  );
  t.equal(
    (await allow(world, owner, consent.id, otherOwnersAgent.id)).statusCode,
    404,
    "another owner's agent",
  );
  for (const url of [
    "/api/oauth/requests",
    `/api/oauth/requests/${consent.id}/allow`,
    `/api/oauth/requests/${consent.id}/deny`,
  ]) {
    const crossSite = await app.inject({
      method: "POST",
      url,
      headers: { ...owner.headers, origin: "https://evil.example" },
      payload: JSON.stringify({ agentId: agent.id }),
    });
    t.equal(crossSite.statusCode, 403, `${url} from another site`);
    const form = await app.inject({
      method: "POST",
      url,
      headers: { ...owner.headers, "content-type": "application/x-www-form-urlencoded" },
      payload: "agentId=x",
    });
    t.equal(form.statusCode, 415, `${url} as a form`);
  }
  await database.pool.query("UPDATE oauth_requests SET expires_at = now() WHERE id = $1", [
    consent.id,
  ]);
  t.equal((await allow(world, owner, consent.id, agent.id)).statusCode, 404, "expired");
  const denied = await requestConsent(world, owner, clientId);
  const no = await asOwner(app, owner, {
    method: "POST",
    url: `/api/oauth/requests/${denied.id}/deny`,
  });
  const back = new URL(no.json<{ redirectTo: string }>().redirectTo);
  t.same(Object.fromEntries(back.searchParams), {
    error: "access_denied",
    state: "the state",
    iss: config.publicUrl,
  });
  t.equal((await allow(world, owner, denied.id, agent.id)).statusCode, 404, "denied");
  for (let count = 0; count < 25; count += 1) await requestConsent(world, owner, clientId);
  const open = await database.pool.query(
    "SELECT 1 FROM oauth_requests r JOIN owners o ON o.id = r.owner_id WHERE o.address = $1 AND decided_at IS NULL",
    [owner.account.address.toLowerCase()],
  );
  t.equal(open.rowCount, 20, "at most 20 are open");
});

t.test("without a registered redirect URI nothing is redirected", async (t) => {
  const clientId = await register(world, { redirect_uris: ["https://a.example/cb"] });
  for (const redirectUri of [
    "https://evil.example/cb",
    "https://a.example/cb/../evil",
    "https://a.example/cb?x",
    "https://a.example.evil.example/cb",
    "https://a.example@evil.example/cb",
    "javascript:alert(1)",
    "",
  ]) {
    const answer = await tryRequestConsent(world, owner, {
      client_id: clientId,
      redirect_uri: redirectUri,
    });
    t.equal(answer.statusCode, 422, redirectUri);
    t.equal(answer.json<{ code: string }>().code, "return_address_refused");
    t.notMatch(answer.body, /redirectTo/);
  }
  for (const id of ["ocl_nobody", "", "x".repeat(600)]) {
    const answer = await tryRequestConsent(world, owner, { client_id: id });
    t.equal(answer.json<{ code: string }>().code, "program_refused", id.slice(0, 20));
  }
  for (const [bent, error] of [
    [{ response_type: "token" }, "unsupported_response_type"],
    [{ code_challenge_method: "plain" }, "invalid_request"],
    [{ code_challenge_method: "" }, "invalid_request"],
    [{ code_challenge: "short" }, "invalid_request"],
    [{ code_challenge: "" }, "invalid_request"],
    [{ resource: "https://other.example/mcp" }, "invalid_target"],
    [{ resource: `${config.publicUrl}/api` }, "invalid_target"],
    [{ state: "x".repeat(1_001) }, "invalid_request"],
  ] as const) {
    const answer = await tryRequestConsent(world, owner, {
      client_id: clientId,
      redirect_uri: "https://a.example/cb",
      ...bent,
    });
    t.equal(answer.statusCode, 422);
    const { redirectTo } = answer.json<{ redirectTo: string }>();
    const { searchParams, origin } = new URL(redirectTo);
    t.equal(origin, "https://a.example");
    t.equal(searchParams.get("error"), error, JSON.stringify(bent).slice(0, 60));
    t.equal(searchParams.get("iss"), config.publicUrl);
  }
});

t.test("an authorization code is valid for its client, once, for a minute", async (t) => {
  const stolen = await codeFor(world, owner, agent.id);
  const thief = await register(world);
  for (const [name, other] of Object.entries<Record<string, string>>({
    "without the verifier": { code_verifier: pkce().verifier },
    "the challenge in place of the verifier": {
      code_verifier: createHash("sha256").update(stolen.verifier).digest("base64url"),
    },
    "another program": { client_id: thief },
    "another way back": { redirect_uri: "http://127.0.0.1/other" },
    "an unknown code": {
      code: `${stolen.code.slice(0, -1)}${stolen.code.endsWith("x") ? "y" : "x"}`,
    },
  })) {
    const answer = await exchange(world, stolen, other);
    t.equal(answer.statusCode, 400, name);
    t.equal(errorOf(answer), "invalid_grant", name);
    t.match(answer.headers, { "cache-control": "no-store" });
  }
  t.equal(errorOf(await exchange(world, stolen, { code_verifier: "x" })), "invalid_request");
  t.equal(
    errorOf(await exchange(world, stolen, { resource: "https://x.y/mcp" })),
    "invalid_target",
  );
  const answer = await exchange(world, stolen, { resource: `${config.publicUrl}/mcp` });
  t.equal(answer.statusCode, 200, "the rightful client still gets its tokens");
  const tokens = answer.json<{ access_token: string; refresh_token: string; expires_in: number }>();
  t.ok(tokens.expires_in > 0 && tokens.expires_in <= 3600);
  t.match(answer.headers, { "cache-control": "no-store" });
  t.ok(await works(tokens.access_token));

  t.equal(errorOf(await exchange(world, stolen)), "invalid_grant", "used twice");
  t.notOk(await works(tokens.access_token), "the tokens from its first use are revoked");
  const renewed = await renew(world, {
    clientId: stolen.clientId,
    refreshToken: tokens.refresh_token,
  });
  t.equal(errorOf(renewed), "invalid_grant");
  const audit = await app.inject({ url: `/api/agents/${agent.id}/audit`, headers: owner.headers });
  t.match(audit.json(), {
    items: [{ action: "connection.revoked", after: { by: "code used twice" } }],
  });

  const { clientId, code, verifier } = await codeFor(world, owner, agent.id);
  const short = { grant_type: "authorization_code", client_id: clientId, code };
  t.equal(errorOf(await post(world, "/oauth/token", short)), "invalid_request", "no verifier");
  const modern = await post(world, "/oauth/token", { ...short, code_verifier: verifier });
  t.equal(modern.statusCode, 200, "OAuth 2.1 needs no redirect_uri here");
  const empty = await exchange(world, await codeFor(world, owner, agent.id), { redirect_uri: "" });
  t.equal(empty.statusCode, 200, "an empty value counts as missing");

  const late = await codeFor(world, owner, agent.id);
  await database.pool.query(
    "UPDATE oauth_requests SET code_expires_at = now() WHERE client_id = $1",
    [late.clientId],
  );
  t.equal(errorOf(await exchange(world, late)), "invalid_grant", "expired");

  const raced = await codeFor(world, owner, agent.id);
  const all = await Promise.all(Array.from({ length: 8 }, () => exchange(world, raced)));
  const good = all.filter(({ statusCode }) => statusCode === 200);
  t.equal(good.length, 1, "of eight in parallel one gets tokens");
  const [won] = good;
  t.notOk(
    await works(won?.json<{ access_token: string }>().access_token ?? ""),
    "which are revoked",
  );
});

t.test("refresh tokens rotate; an old one revokes the connection", async (t) => {
  const first = await connect(world, owner, agent.id);
  const answer = await renew(world, first);
  t.equal(answer.statusCode, 200, answer.body);
  const second = answer.json<{ access_token: string; refresh_token: string }>();
  t.not(second.refresh_token, first.refreshToken);
  t.ok(await works(second.access_token));
  t.ok(await works(first.accessToken), "the old access token works for requests in progress");
  const { rows } = await database.pool.query<{ left: number }>(
    `SELECT extract(epoch FROM max(expires_at) - now())::float8 AS left FROM oauth_tokens
      WHERE key_id = $1 AND kind = 'access' AND hash = $2`,
    [first.connectionId, createHash("sha256").update(first.accessToken).digest()],
  );
  t.ok((rows[0]?.left ?? 999) <= 60, "it expires within a minute");

  const thief = await register(world);
  const byThief = await renew(world, { clientId: thief, refreshToken: second.refresh_token });
  t.equal(errorOf(byThief), "invalid_grant", "another program");
  t.ok(await works(second.access_token), "this revokes nothing");
  t.equal(
    errorOf(
      await renew(
        world,
        { clientId: first.clientId, refreshToken: second.refresh_token },
        { resource: "https://other.example/mcp" },
      ),
    ),
    "invalid_target",
  );

  t.equal(errorOf(await renew(world, first)), "invalid_grant", "an old one");
  t.notOk(await works(second.access_token), "revokes all tokens of the connection");
  const last = await renew(world, {
    clientId: first.clientId,
    refreshToken: second.refresh_token,
  });
  t.equal(errorOf(last), "invalid_grant");

  const raced = await connect(world, owner, agent.id);
  const all = await Promise.all(Array.from({ length: 8 }, () => renew(world, raced)));
  t.equal(all.filter(({ statusCode }) => statusCode === 200).length, 1, "one of eight in parallel");
});

t.test("tokens end with their connection, key or agent", async (t) => {
  const url = (id: string) => `/api/agents/${agent.id}/connections/${id}`;
  const ended = await connect(world, owner, agent.id);
  const gone = await app.inject({
    method: "DELETE",
    url: url(ended.connectionId),
    headers: { cookie: owner.cookie, origin: config.publicUrl },
  });
  t.match(gone.json(), { connection: { status: "revoked" } }, "needs only the session");
  const refused = await callTool(world, ended.accessToken);
  t.match(refused.json(), { error: { data: { code: "invalid_access_token" } } });
  t.equal(errorOf(await renew(world, ended)), "invalid_grant");

  const worn = await connect(world, owner, agent.id);
  await database.pool.query(
    "UPDATE oauth_tokens SET expires_at = now() WHERE key_id = $1 AND kind = 'access'",
    [worn.connectionId],
  );
  t.notOk(await works(worn.accessToken), "the access token expired");
  t.equal((await renew(world, worn)).statusCode, 200, "it can be renewed");

  const old = await connect(world, owner, agent.id);
  await database.pool.query("UPDATE api_keys SET expires_at = now() WHERE id = $1", [
    old.connectionId,
  ]);
  t.notOk(await works(old.accessToken), "the connection expired");
  t.equal(errorOf(await renew(world, old)), "invalid_grant", "it cannot be renewed");

  const left = await connect(world, owner, other.id);
  const pause = {
    method: "PATCH",
    url: `/api/agents/${other.id}`,
    body: { status: "paused" },
  } as const;
  await asOwner(app, owner, pause);
  const paused = await callTool(world, left.accessToken, "send_usdc", {
    recipient: shop,
    amount: "1",
  });
  t.match(structured(paused), { code: "agent_paused" }, "a paused agent cannot pay");
  await asOwner(app, owner, { method: "POST", url: `/api/agents/${other.id}/archive`, body: {} });
  t.notOk(await works(left.accessToken), "an archived agent's connection ends");
  t.equal(errorOf(await renew(world, left)), "invalid_grant");

  const key = await app.inject({ url: "/api/agents/me", headers: agent.headers });
  t.equal(key.statusCode, 200, "the agent's own key still works");
});

t.test("token revocation (RFC 7009)", async (t) => {
  const given = await connect(world, owner, agent.id);
  const unknown = await post(world, "/oauth/revoke", { token: "nonsense" });
  t.equal(unknown.statusCode, 200, "the response reveals nothing about the token");
  const thief = { token: given.refreshToken, client_id: await register(world) };
  t.equal((await post(world, "/oauth/revoke", thief)).statusCode, 200);
  t.ok(await works(given.accessToken), "another program cannot revoke it");
  await post(world, "/oauth/revoke", { token: given.accessToken, client_id: given.clientId });
  t.notOk(await works(given.accessToken));
  const renewed = await renew(world, given);
  t.equal(renewed.statusCode, 200, "only the access token was revoked");
  const { access_token: token, refresh_token: refreshToken } = renewed.json<{
    access_token: string;
    refresh_token: string;
  }>();
  await post(world, "/oauth/revoke", { token: refreshToken, client_id: given.clientId });
  t.notOk(await works(token), "revoking the refresh token revokes all");
});

t.test("errors of the token endpoint follow OAuth", async (t) => {
  const requestToken = (form: Record<string, string>) => post(world, "/oauth/token", form);
  t.equal(errorOf(await requestToken({})), "invalid_request");
  t.equal(errorOf(await requestToken({ grant_type: "password" })), "unsupported_grant_type");
  t.equal(
    errorOf(await requestToken({ grant_type: "client_credentials" })),
    "unsupported_grant_type",
  );
  t.equal(
    errorOf(await requestToken({ grant_type: "refresh_token", client_id: "x" })),
    "invalid_request",
  );
  const twice = await app.inject({
    method: "POST",
    url: "/oauth/token",
    headers: { "content-type": "application/x-www-form-urlencoded" },
    payload: "grant_type=refresh_token&client_id=a&client_id=b&refresh_token=x",
  });
  t.equal(errorOf(twice), "invalid_request", "a duplicate parameter");
  const json = await app.inject({ method: "POST", url: "/oauth/token", payload: {} });
  t.equal(json.statusCode, 400);
  t.equal(errorOf(json), "invalid_request", "JSON is not a form");
  const inUrl = await app.inject({
    method: "POST",
    url: "/oauth/token?grant_type=refresh_token",
    headers: { "content-type": "application/x-www-form-urlencoded" },
    payload: "",
  });
  t.equal(errorOf(inUrl), "invalid_request", "parameters in the URL are ignored");
  const big = await requestToken({ grant_type: "x".repeat(20_000) });
  t.equal(big.statusCode, 400);
  t.equal((await app.inject("/oauth/token")).statusCode, 405);
});

t.test("registration: sanitized and refused metadata", async (t) => {
  const answer = await tryRegister(world, {
    client_name: "  Claude\u202e \u0007 Desktop ",
    token_endpoint_auth_method: "client_secret_post",
    scope: "openid everything",
    logo_uri: "javascript:alert(1)",
  });
  t.equal(answer.statusCode, 201);
  t.match(answer.json(), {
    client_name: "Claude Desktop",
    token_endpoint_auth_method: "none",
    scope: "agent",
    grant_types: ["authorization_code", "refresh_token"],
  });
  t.notOk("client_secret" in answer.json<object>());
  for (const [metadata, error] of [
    [{ redirect_uris: [] }, "invalid_redirect_uri"],
    [{ redirect_uris: "http://localhost/" }, "invalid_redirect_uri"],
    [{ redirect_uris: ["javascript:alert(1)"] }, "invalid_redirect_uri"],
    [{ redirect_uris: ["http://evil.example/"] }, "invalid_redirect_uri"],
    [{ redirect_uris: Array(11).fill("https://a.example/") }, "invalid_redirect_uri"],
    [{ redirect_uris: [1] }, "invalid_redirect_uri"],
    [{ grant_types: ["client_credentials"] }, "invalid_client_metadata"],
    [{ response_types: ["token"] }, "invalid_client_metadata"],
  ] as const) {
    const refused = await tryRegister(world, metadata);
    t.equal(refused.statusCode, 400);
    t.equal(errorOf(refused), error, JSON.stringify(metadata).slice(0, 60));
  }
});

t.test("the audit chain is valid, with each connection right after its signature", async (t) => {
  const { rows } = await database.pool.query<{ id: string }>(
    "SELECT id FROM owners WHERE address = $1",
    [owner.account.address.toLowerCase()],
  );
  const verdict = await verifyChain(readChain(app.prisma, rows[0]?.id ?? "", 0n));
  t.match(
    verdict,
    { ok: true },
    JSON.stringify(verdict, (_key, value: unknown) => String(value)),
  );
});

t.test("the metadata uses the client's host name, where the service has two", async (t) => {
  const { port } = new URL(config.publicUrl);
  const host = `127.0.0.1:${port}`;
  const url = "/.well-known/oauth-protected-resource/mcp";
  const resource = await app.inject({ url, headers: { host } });
  t.match(resource.json(), {
    resource: `http://${host}/mcp`,
    authorization_servers: [`http://${host}`],
  });
  const server = await app.inject({
    url: "/.well-known/oauth-authorization-server",
    headers: { host },
  });
  t.match(server.json(), {
    issuer: `http://${host}`,
    token_endpoint: `http://${host}/oauth/token`,
  });
  const refused = await app.inject({ method: "POST", url: "/mcp", headers: { host }, payload: {} });
  t.match(String(refused.headers["www-authenticate"]), `resource_metadata="http://${host}/`);
  const strange = await app.inject({ url, headers: { host: "evil.example" } });
  t.match(
    strange.json(),
    { resource: `${config.publicUrl}/mcp` },
    "never with an unknown host name",
  );
});
