// Goal: client metadata documents are read safely (SSRF); a flood of registrations blocks no other client; a moved
// agent's connections end.
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { testApp, type TestAppOptions } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { createAgent, nameRecoveryWallet, signIn, signOrder } from "../helpers/owner.ts";
import {
  allow,
  callTool,
  CALLBACK,
  connect,
  exchange,
  pkce,
  register,
  renew,
  tryRequestConsent,
  tryRegister,
} from "../helpers/oauth.ts";

/** A web server that publishes a program's client metadata document. */
async function publisher(
  t: Test,
): Promise<{ origin: string; serve: (to: RequestListener) => void; requested: string[] }> {
  const requested: string[] = [];
  let listener: RequestListener = (_request, response) => response.writeHead(404).end();
  const server = createServer((request, response) => {
    requested.push(request.url ?? "");
    listener(request, response);
  });
  await new Promise<void>((done) => {
    server.listen(0, "127.0.0.1", done);
  });
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { origin: `http://127.0.0.1:${port}`, requested, serve: (to) => void (listener = to) };
}

const json =
  (body: unknown, type = "application/json"): RequestListener =>
  (_request, response) =>
    response.setHeader("content-type", type).end(JSON.stringify(body));

/** Local mode, in which a document may be served over http. */
const local: TestAppOptions["configure"] = (config) => {
  config.local = {
    faucetPrivateKey: testAccount(0).privateKey,
    demoOwnerPrivateKey: testAccount(9).privateKey,
  };
};

t.test("a client id that is the URL of its metadata document", async (t) => {
  const { origin, serve, requested } = await publisher(t);
  const world = await testApp(t, {
    configure: (config) => {
      local(config);
      config.fetchPrivateOrigins = [origin];
    },
  });
  const owner = await signIn(world);
  const agent = await createAgent(world, owner);
  const clientId = `${origin}/client.json`;
  const metadata = { client_id: clientId, client_name: "Documented", redirect_uris: [CALLBACK] };
  const requestConsent = (id = clientId, more: Record<string, unknown> = {}) =>
    tryRequestConsent(world, owner, { client_id: id, ...more });
  const refusedAs = async (t: Test, name: string, id = clientId, why = /./) => {
    const answer = await requestConsent(id);
    t.equal(answer.statusCode, 422, name);
    const { code, detail } = answer.json<{ code: string; detail: string }>();
    t.equal(code, "program_refused", name);
    t.match(detail, why, name);
  };

  await t.test("invalid documents", async (t) => {
    serve(json({ ...metadata, client_id: `${origin}/other.json` }));
    await refusedAs(t, "names another program", clientId, /different program/);
    serve((_request, response) => response.writeHead(302, { location: "/real.json" }).end());
    await refusedAs(t, "redirects", clientId, /could not be read/);
    t.notOk(requested.includes("/real.json"), "it is not followed");
    serve((_request, response) =>
      response
        .setHeader("content-type", "application/json")
        .end(JSON.stringify({ ...metadata, padding: "x".repeat(20_000) })),
    );
    await refusedAs(t, "huge", clientId, /could not be read/);
    serve(json(metadata, "text/html"));
    await refusedAs(t, "a page", clientId, /could not be read/);
    serve((_request, response) => response.setHeader("content-type", "application/json").end("{"));
    await refusedAs(t, "no JSON");
    serve(json([metadata]));
    await refusedAs(t, "a list");
    serve(json({ ...metadata, redirect_uris: ["javascript:alert(1)"] }));
    await refusedAs(t, "with a way back that acts", clientId, /javascript/);
    serve(json({ ...metadata, token_endpoint_auth_method: "private_key_jwt" }));
    await refusedAs(t, "with a key of its own", clientId, /PKCE/);
    serve(json({ ...metadata, client_secret: "hunter2hunter2" }));
    await refusedAs(t, "with a secret that everybody reads");
  });

  await t.test("URLs that are never requested", async (t) => {
    const before = requested.length;
    for (const id of [
      `${origin}/`,
      `${origin}/x#y`,
      `${origin}/a/../client.json`,
      `${origin.replace("http://", "http://user@")}/client.json`,
      "https://127.0.0.1/client.json",
      "https://10.0.0.1/client.json",
      "https://[::1]/client.json",
      "https://169.254.169.254/latest/meta-data",
      "https://localhost/client.json",
      "http://127.0.0.1:1/client.json",
    ])
      await refusedAs(t, id, id);
    t.equal(requested.length, before);
    const inside = (await requestConsent("https://10.0.0.1/client.json")).json<{ detail: string }>()
      .detail;
    const absent = (await requestConsent("https://127.0.0.1:9/client.json")).json<{
      detail: string;
    }>().detail;
    t.equal(inside, absent, "the error reveals nothing about the internal network");
  });

  await t.test("a valid document connects, and is cached", async (t) => {
    serve(json(metadata));
    const before = requested.length;
    const { verifier, challenge } = pkce();
    const answer = await requestConsent(clientId, { code_challenge: challenge });
    t.equal(answer.statusCode, 201, answer.body);
    t.match(answer.json(), {
      thirdParty: { untrusted: true, name: "Documented" },
      describedAt: new URL(origin).host,
      place: "this computer",
    });
    const consent = answer.json<{ id: string }>();
    const allowed = await allow(world, owner, consent.id, agent.id);
    const { redirectTo } = allowed.json<{ redirectTo: string }>();
    const code = new URL(redirectTo).searchParams.get("code") ?? "";
    const tokens = await exchange(world, { clientId, code, verifier });
    t.equal(tokens.statusCode, 200);
    await requestConsent();
    t.equal(requested.length, before + 1, "cached for ten minutes");
    const evil = await requestConsent(clientId, { redirect_uri: "http://127.0.0.1/other" });
    t.equal(evil.json<{ code: string }>().code, "return_address_refused");
  });
});

t.test("outside of local mode a document needs https and a public address", async (t) => {
  const { origin, requested } = await publisher(t);
  const world = await testApp(t);
  const owner = await signIn(world);
  for (const id of [`${origin}/client.json`, `${origin.replace("http:", "https:")}/client.json`]) {
    const answer = await tryRequestConsent(world, owner, { client_id: id });
    t.equal(answer.json<{ code: string }>().code, "program_refused", id);
  }
  t.same(requested, []);
});

t.test("a flood of registrations", async (t) => {
  const world = await testApp(t, { env: { RATE_LIMITS: "register=30" } });
  const { database } = world;
  const owner = await signIn(world);
  const agent = await createAgent(world, owner);
  const used = await connect(world, owner, agent.id);
  const answers = await Promise.all(
    Array.from({ length: 60 }, () => tryRegister(world, {}, "203.0.113.7")),
  );
  const refused = answers.filter(({ statusCode }) => statusCode === 429);
  t.ok(refused.length >= 25, `${refused.length} from one address are refused`);
  t.match(refused[0]?.json(), { error: "temporarily_unavailable" });
  t.ok(refused[0]?.headers["retry-after"]);
  t.equal(
    (await tryRegister(world, {}, "203.0.114.8")).statusCode,
    201,
    "another address is not affected",
  );

  await database.pool.query(
    `INSERT INTO oauth_clients (id, name, redirect_uris, created_at)
     SELECT 'ocl_' || n, 'Flood', '{http://localhost/}', now() - interval '1 hour' FROM generate_series(1, 10050) n`,
  );
  const late = await register(world);
  const { rows } = await database.pool.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM oauth_clients WHERE used_at IS NULL",
  );
  t.ok((rows[0]?.count ?? 0) <= 10_000, `${rows[0]?.count} are kept`);
  t.equal((await tryRequestConsent(world, owner, { client_id: late })).statusCode, 201);
  t.equal((await renew(world, used)).statusCode, 200, "an existing connection is not affected");

  await database.pool.query("UPDATE oauth_clients SET created_at = now() - interval '8 days'");
  await database.pool.query("UPDATE oauth_requests SET created_at = now() - interval '2 days'");
  await deleteOldRows(world.app.pool, world.app.config.retention);
  const left = await database.pool.query("SELECT id FROM oauth_clients");
  t.same(left.rows, [{ id: used.clientId }], "after a week only connected programs are kept");
});

t.test("renewals are limited per connection", async (t) => {
  const world = await testApp(t, { env: { RATE_LIMITS: "renewal=3" } });
  const owner = await signIn(world);
  const agent = await createAgent(world, owner);
  let { refreshToken, clientId } = await connect(world, owner, agent.id);
  const statuses: number[] = [];
  for (let count = 0; count < 5; count += 1) {
    const answer = await renew(world, { clientId, refreshToken });
    statuses.push(answer.statusCode);
    if (answer.statusCode === 200) ({ refresh_token: refreshToken } = answer.json());
  }
  t.same(statuses, [200, 200, 200, 429, 429]);
  const next = await connect(world, owner, agent.id);
  t.equal((await renew(world, next)).statusCode, 200, "another connection has a separate limit");
});

t.test("connections of a former owner end when the agents move", async (t) => {
  const world = await testApp(t);
  const { app } = world;
  const owner = await signIn(world);
  const second = privateKeyToAccount(generatePrivateKey());
  const agent = await createAgent(world, owner);
  const connected = await connect(world, owner, agent.id);
  await nameRecoveryWallet(app, owner, second);
  const send = (body: unknown) =>
    app.inject({
      method: "POST",
      url: "/api/recovery/move",
      headers: owner.headers,
      payload: JSON.stringify(body),
    });
  const prepared = (await send({})).json<Record<string, unknown>>();
  const firstSigned = await signOrder(owner.account, prepared);
  const secondSigned = await signOrder(second, prepared);
  const moved = await send({
    authorization: { ...firstSigned, secondSignature: secondSigned?.signature },
  });
  t.equal(moved.statusCode, 200, moved.body);
  t.equal((await callTool(world, connected.accessToken)).statusCode, 401);
  t.equal((await renew(world, connected)).json<{ error: string }>().error, "invalid_grant");
  const audit = await app.inject({ url: "/api/audit", headers: owner.headers });
  const { items } = audit.json<{ items: { action: string }[] }>();
  t.match(
    items.filter(({ action }) => action === "connection.revoked"),
    [
      {
        agentId: agent.id,
        before: { id: connected.connectionId },
        after: { by: "move to the second wallet" },
      },
    ],
    "the former owner's audit log has it, once",
  );
});
