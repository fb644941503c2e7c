// Goal: a program gets what the owner's wallet signed, once, for one agent, at /mcp; whatever is stolen, replayed or bent gets nothing.
import { createHash } from "node:crypto";
import t from "tap";
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
  (messageOf(answer) as { result: { structuredContent: Record<string, unknown> } }).result
    .structuredContent;
const works = async (token: string) => (await callTool(world, token)).statusCode === 200;

t.test("what we are, as clients of every year ask", async (t) => {
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

t.test("a refusal at /mcp says where to find out more, and is JSON-RPC", async (t) => {
  const metadata = `resource_metadata="${config.publicUrl}/.well-known/oauth-protected-resource/mcp"`;
  const none = await app.inject({ method: "POST", url: "/mcp", payload: {} });
  t.equal(none.statusCode, 401);
  const challenge = String(none.headers["www-authenticate"]);
  t.ok(challenge.startsWith("Bearer ") && challenge.includes(metadata), challenge);
  t.match(challenge, /scope="agent"/);
  t.notMatch(challenge, /error=/, "nothing was shown, so nothing is wrong with it");
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
  t.match(denied, { code: "daily_limit_exceeded" }, "the agent's limits are the connection's");
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
  t.equal(keys.json<{ items: unknown[] }>().items.length, 1, "it is among the keys no more");
  for (const method of ["DELETE", "POST"] as const) {
    const path = `/api/agents/${agent.id}/keys/${connectionId}${method === "POST" ? "/rotate" : ""}`;
    t.equal((await asOwner(app, owner, { method, url: path, body: {} })).statusCode, 404);
  }
});

t.test("only at /mcp, only in the header, only for its agent", async (t) => {
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
  t.equal(spend.statusCode, 401, "not even a payment that its agent may make");
  for (const url of [`/mcp?access_token=${accessToken}`, `/mcp?authorization=${accessToken}`]) {
    const answer = await app.inject({ method: "POST", url, payload: {} });
    t.equal(answer.statusCode, 401, "a token in the address is none");
  }
  const inBody = await app.inject({
    method: "POST",
    url: "/mcp",
    headers: { "content-type": "application/x-www-form-urlencoded" },
    payload: `access_token=${accessToken}`,
  });
  t.equal(inBody.statusCode, 401, "nor in a form");
  t.match(structured(await callTool(world, accessToken)), { id: agent.id });
});

t.test("what the process shows to itself, nobody else can", async (t) => {
  const { accessToken } = await connect(world, owner, agent.id);
  const seen: string[] = [];
  const inject = app.inject.bind(app);
  // As if somebody could read the process's own call while it is made.
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
  t.ok(passes.length > 0, "the inner call has a pass, and not the token");
  t.notOk(seen.includes(`Bearer ${accessToken}`));
  for (const authorization of [...passes, "Bearer pass_", `Bearer pass_${"A".repeat(43)}`])
    for (const url of ["/api/agents/me", "/mcp"]) {
      const method = url === "/mcp" ? "POST" : "GET";
      const answer = await inject({ method, url, headers: { authorization } });
      t.equal(answer.statusCode, 401, `${url}: shown again from outside`);
    }
});

t.test("a session without the wallet connects nothing", async (t) => {
  const connections = async () =>
    (await database.pool.query("SELECT 1 FROM oauth_connections")).rowCount;
  const before = await connections();
  const consent = await requestConsent(world, owner, await register(world));
  const url = `/api/oauth/requests/${consent.id}/allow`;
  const send = (body: unknown, headers = owner.headers) =>
    app.inject({ method: "POST", url, headers, payload: JSON.stringify(body) });
  const asked = await send({ agentId: agent.id });
  t.equal(asked.statusCode, 403);
  const { code, order } = asked.json<{ code: string; order: Record<string, string> }>();
  t.equal(code, "owner_signature_required");
  t.match(order, { agent: agent.id, label: 'Connection to this computer, named "Test Program"' });
  const days = (Number(order["expiresAt"]) - Date.now() / 1000) / 86_400;
  t.ok(days > 89 && days <= 90, "the wallet is shown until when");
  for (const signature of ["0x", `0x${"11".repeat(65)}`]) {
    const forged = await send({ agentId: agent.id, authorization: { order, signature } });
    t.ok([401, 422].includes(forged.statusCode), forged.body);
  }
  const thief = await signIn(world);
  const stranger = await allow(world, { ...thief, headers: owner.headers }, consent.id, agent.id);
  t.equal(stranger.statusCode, 401, "another wallet's signature");
  t.equal(await connections(), before, "nothing was connected");
  const elsewhere = await asOwner(app, owner, {
    method: "POST",
    url: `/api/agents/${agent.id}/keys`,
    body: {
      label: order["label"],
      expiresAt: new Date(Number(order["expiresAt"]) * 1000).toISOString(),
    },
  });
  t.equal(elsewhere.statusCode, 422, "what is signed for a connection makes no key to hold");
  t.equal((await allow(world, owner, consent.id, agent.id)).statusCode, 200, "with the wallet");
  t.equal((await allow(world, owner, consent.id, agent.id)).statusCode, 404, "and once");
});

t.test("a consent is one session's, one owner's, and comes from our own page", async (t) => {
  const clientId = await register(world);
  const consent = await requestConsent(world, owner, clientId);
  const elsewhere = await signIn(world, owner.account);
  t.equal((await allow(world, elsewhere, consent.id, agent.id)).statusCode, 404, "another session");
  const stranger = await signIn(world);
  const theirs = await createAgent(world, stranger);
  t.equal((await allow(world, stranger, consent.id, theirs.id)).statusCode, 404, "another owner");
  t.equal((await allow(world, owner, consent.id, theirs.id)).statusCode, 404, "another's agent");
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
  t.equal((await allow(world, owner, consent.id, agent.id)).statusCode, 404, "too late");
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
  t.equal((await allow(world, owner, denied.id, agent.id)).statusCode, 404, "no is no");
  for (let count = 0; count < 25; count += 1) await requestConsent(world, owner, clientId);
  const open = await database.pool.query(
    "SELECT 1 FROM oauth_requests r JOIN owners o ON o.id = r.owner_id WHERE o.address = $1 AND decided_at IS NULL",
    [owner.account.address.toLowerCase()],
  );
  t.equal(open.rowCount, 20, "few are open");
});

t.test("where nothing is known of the way back, nothing goes there", async (t) => {
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

t.test("a code is good for who asked for it, once, for a minute", async (t) => {
  const stolen = await codeFor(world, owner, agent.id);
  const thief = await register(world);
  for (const [name, other] of Object.entries<Record<string, string>>({
    "without the verifier": { code_verifier: pkce().verifier },
    "the challenge in place of the verifier": {
      code_verifier: createHash("sha256").update(stolen.verifier).digest("base64url"),
    },
    "another program": { client_id: thief },
    "another way back": { redirect_uri: "http://127.0.0.1/other" },
    "a code of nobody": { code: `${stolen.code.slice(0, -1)}x` },
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
  t.equal(answer.statusCode, 200, "whoever asked gets it all the same");
  const tokens = answer.json<{ access_token: string; refresh_token: string; expires_in: number }>();
  t.ok(tokens.expires_in > 0 && tokens.expires_in <= 3600);
  t.match(answer.headers, { "cache-control": "no-store" });
  t.ok(await works(tokens.access_token));

  t.equal(errorOf(await exchange(world, stolen)), "invalid_grant", "twice");
  t.notOk(await works(tokens.access_token), "and what it gave is over");
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
  t.equal(modern.statusCode, 200, "OAuth 2.1 asks for no redirect_uri here");
  const empty = await exchange(world, await codeFor(world, owner, agent.id), { redirect_uri: "" });
  t.equal(empty.statusCode, 200, "and one without a value is none");

  const late = await codeFor(world, owner, agent.id);
  await database.pool.query(
    "UPDATE oauth_requests SET code_expires_at = now() WHERE client_id = $1",
    [late.clientId],
  );
  t.equal(errorOf(await exchange(world, late)), "invalid_grant", "too late");

  const raced = await codeFor(world, owner, agent.id);
  const all = await Promise.all(Array.from({ length: 8 }, () => exchange(world, raced)));
  const good = all.filter(({ statusCode }) => statusCode === 200);
  t.equal(good.length, 1, "of eight at once one gets tokens");
  const [won] = good;
  t.notOk(await works(won?.json<{ access_token: string }>().access_token ?? ""), "and loses them");
});

t.test("refresh tokens change hands; an old one ends all", async (t) => {
  const first = await connect(world, owner, agent.id);
  const answer = await renew(world, first);
  t.equal(answer.statusCode, 200, answer.body);
  const second = answer.json<{ access_token: string; refresh_token: string }>();
  t.not(second.refresh_token, first.refreshToken);
  t.ok(await works(second.access_token));
  t.ok(await works(first.accessToken), "what is under way arrives");
  const { rows } = await database.pool.query<{ left: number }>(
    `SELECT extract(epoch FROM max(expires_at) - now())::float8 AS left FROM oauth_tokens
      WHERE key_id = $1 AND kind = 'access' AND hash = $2`,
    [first.connectionId, createHash("sha256").update(first.accessToken).digest()],
  );
  t.ok((rows[0]?.left ?? 999) <= 60, "and then the old access token is over");

  const thief = await register(world);
  const theirs = await renew(world, { clientId: thief, refreshToken: second.refresh_token });
  t.equal(errorOf(theirs), "invalid_grant", "another program");
  t.ok(await works(second.access_token), "which ends nothing");
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
  t.notOk(await works(second.access_token), "ends the whole family");
  const last = await renew(world, {
    clientId: first.clientId,
    refreshToken: second.refresh_token,
  });
  t.equal(errorOf(last), "invalid_grant");

  const raced = await connect(world, owner, agent.id);
  const all = await Promise.all(Array.from({ length: 8 }, () => renew(world, raced)));
  t.equal(all.filter(({ statusCode }) => statusCode === 200).length, 1, "one of eight at once");
});

t.test("whatever ends the agent's side ends the tokens", async (t) => {
  const url = (id: string) => `/api/agents/${agent.id}/connections/${id}`;
  const ended = await connect(world, owner, agent.id);
  const gone = await app.inject({
    method: "DELETE",
    url: url(ended.connectionId),
    headers: { cookie: owner.cookie, origin: config.publicUrl },
  });
  t.match(gone.json(), { connection: { status: "revoked" } }, "on the session alone");
  const refused = await callTool(world, ended.accessToken);
  t.match(refused.json(), { error: { data: { code: "invalid_access_token" } } });
  t.equal(errorOf(await renew(world, ended)), "invalid_grant");

  const worn = await connect(world, owner, agent.id);
  await database.pool.query(
    "UPDATE oauth_tokens SET expires_at = now() WHERE key_id = $1 AND kind = 'access'",
    [worn.connectionId],
  );
  t.notOk(await works(worn.accessToken), "its time is over");
  t.equal((await renew(world, worn)).statusCode, 200, "and renewed");

  const old = await connect(world, owner, agent.id);
  await database.pool.query("UPDATE api_keys SET expires_at = now() WHERE id = $1", [
    old.connectionId,
  ]);
  t.notOk(await works(old.accessToken), "the connection's own end");
  t.equal(errorOf(await renew(world, old)), "invalid_grant", "cannot be renewed away");

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
  t.match(structured(paused), { code: "agent_paused" }, "a paused agent's pays nothing");
  await asOwner(app, owner, { method: "POST", url: `/api/agents/${other.id}/archive`, body: {} });
  t.notOk(await works(left.accessToken), "an archived agent's is over");
  t.equal(errorOf(await renew(world, left)), "invalid_grant");

  const key = await app.inject({ url: "/api/agents/me", headers: agent.headers });
  t.equal(key.statusCode, 200, "the agent's own key is as it was");
});

t.test("a program gives its tokens back", async (t) => {
  const given = await connect(world, owner, agent.id);
  const nobody = await post(world, "/oauth/revoke", { token: "nonsense" });
  t.equal(nobody.statusCode, 200, "it tells nothing of what was shown");
  const thief = { token: given.refreshToken, client_id: await register(world) };
  t.equal((await post(world, "/oauth/revoke", thief)).statusCode, 200);
  t.ok(await works(given.accessToken), "another program ends nothing");
  await post(world, "/oauth/revoke", { token: given.accessToken, client_id: given.clientId });
  t.notOk(await works(given.accessToken));
  const renewed = await renew(world, given);
  t.equal(renewed.statusCode, 200, "an access token alone was given back");
  const { access_token: token, refresh_token: refreshToken } = renewed.json<{
    access_token: string;
    refresh_token: string;
  }>();
  await post(world, "/oauth/revoke", { token: refreshToken, client_id: given.clientId });
  t.notOk(await works(token), "with the refresh token all is");
});

t.test("the token endpoint speaks OAuth", async (t) => {
  const ask = (form: Record<string, string>) => post(world, "/oauth/token", form);
  t.equal(errorOf(await ask({})), "invalid_request");
  t.equal(errorOf(await ask({ grant_type: "password" })), "unsupported_grant_type");
  t.equal(errorOf(await ask({ grant_type: "client_credentials" })), "unsupported_grant_type");
  t.equal(errorOf(await ask({ grant_type: "refresh_token", client_id: "x" })), "invalid_request");
  const twice = await app.inject({
    method: "POST",
    url: "/oauth/token",
    headers: { "content-type": "application/x-www-form-urlencoded" },
    payload: "grant_type=refresh_token&client_id=a&client_id=b&refresh_token=x",
  });
  t.equal(errorOf(twice), "invalid_request", "one thing said twice");
  const json = await app.inject({ method: "POST", url: "/oauth/token", payload: {} });
  t.equal(json.statusCode, 400);
  t.equal(errorOf(json), "invalid_request", "JSON is no form");
  const inUrl = await app.inject({
    method: "POST",
    url: "/oauth/token?grant_type=refresh_token",
    headers: { "content-type": "application/x-www-form-urlencoded" },
    payload: "",
  });
  t.equal(errorOf(inUrl), "invalid_request", "nothing is read from the address");
  const big = await ask({ grant_type: "x".repeat(20_000) });
  t.equal(big.statusCode, 400);
  t.equal((await app.inject("/oauth/token")).statusCode, 405);
});

t.test("registration: what is said, and what is refused", async (t) => {
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

t.test("the chain of the audit holds, each connection right after its signature", async (t) => {
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

t.test("by the name a client uses, where we have two", async (t) => {
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
  t.match(strange.json(), { resource: `${config.publicUrl}/mcp` }, "never by one that is not ours");
});
