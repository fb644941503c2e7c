// Goal: authorization of routes: every route accepts only the permitted credentials; a new route must be in the
// table.
import { randomBytes } from "node:crypto";
import { readdirSync, existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import t, { type Test } from "tap";
import { createApiKey } from "../../server/plugins/auth/api-keys.ts";
import { newId } from "../../server/core/ids.ts";
import type { Credential } from "../../server/plugins/http/refusals.ts";
import { spendAs } from "../helpers/call.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { createAgent, signIn, type NewTestAgent, type SignedInOwner } from "../helpers/owner.ts";
import { requestConsent, connect, register } from "../helpers/oauth.ts";
import { makeTeam, teamCalls } from "../helpers/team.ts";
import { ROLES, type Role } from "../../server/core/teams.ts";
import { ROUTES, TEAM_ROLES, type RouteRow, type Subjects } from "./route-table.ts";

const SHOP = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8";
const FACILITATOR_KEY = "facilitator-key-for-this-test";
const OPERATOR = testAccount(90);

interface Row extends RouteRow {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  url: string;
}
type Shown = Record<string, string>;

const rows: Row[] = Object.entries(ROUTES).map(([name, row]) => {
  const [method, url] = name.split(" ") as [Row["method"], string];
  return { ...row, method, url };
});

const world = await service(t);

t.test("every route is in the table, as it declares itself", async (t) => {
  const { app } = world;
  const declared = app.knownRoutes
    .filter(({ method, url }) => !["HEAD", "OPTIONS"].includes(method) && !isWebFile(url))
    .map(({ method, url, auth }) => `${method} ${url} ${auth}`);
  const expected = rows.map(({ method, url, auth }) => `${method} ${url} ${auth}`);
  t.same(
    declared.filter((name) => !expected.includes(name)),
    [],
    "no route without a row",
  );
  t.same(
    expected.filter((name) => !declared.includes(name)),
    [],
    "no row without a route",
  );
});

t.test("every route with every credential", async (t) => {
  const owner = await signIn(world);
  const otherOwner = await signIn(world);
  const operator = await signIn(world, OPERATOR);
  const otherAgent = await createAgent(world, otherOwner);
  const { accessToken: otherToken } = await connect(world, otherOwner, otherAgent.id);
  const revokedAgent = await createAgent(world, owner);
  const expiredAgent = await createAgent(world, owner);
  const revokedSession = await signIn(world);
  const expiredSession = await signIn(world);
  await world.database.pool.query("UPDATE api_keys SET revoked_at = now() WHERE id = $1", [
    revokedAgent.keyId,
  ]);
  await world.database.pool.query("UPDATE api_keys SET expires_at = now() WHERE id = $1", [
    expiredAgent.keyId,
  ]);
  await endSession(world, revokedSession, "revoked_at = now()");
  await endSession(world, expiredSession, "expires_at = now()");

  const wrongCredentials: Record<string, Shown> = {
    none: {},
    "wrong key": { authorization: `Bearer ${createApiKey().apiKey}` },
    "no key at all": { authorization: "Bearer nonsense" },
    "revoked key": { authorization: `Bearer ${revokedAgent.apiKey}` },
    "expired key": { authorization: `Bearer ${expiredAgent.apiKey}` },
    "agent's token": { authorization: `Bearer ${otherToken}` },
    "agent's key": { authorization: `Bearer ${otherAgent.apiKey}` },
    "wrong session": { cookie: `purser_session=${"x".repeat(43)}` },
    "no session at all": { cookie: "purser_session=1" },
    "revoked session": { cookie: revokedSession.cookie },
    "expired session": { cookie: expiredSession.cookie },
    "owner's session": { cookie: otherOwner.cookie },
  };

  const shared = await createAgent(world, owner);
  const ofShared = await makeSubjects(world, owner, shared, "");
  let minedAtMs = performance.now();
  for (const row of rows) {
    // The newest block must not be too old for payments.
    if (performance.now() - minedAtMs > MINE_EVERY_MS) {
      await world.chain.testClient.mine({ blocks: 1 });
      minedAtMs = performance.now();
    }
    // These end the session, or stop the owner's agents.
    const isLast = row.auth === "owner" && /\/auth\/|\/owner\/stop/.test(row.url);
    const rowOwner = isLast ? await signIn(world) : owner;
    const name = `${row.method} ${row.url}`;
    const isAlone = isLast || NEW_AGENT.test(name);
    const agent = isAlone ? await createAgent(world, rowOwner) : shared;
    const subjects =
      isAlone || NEW_SUBJECTS.test(name)
        ? await makeSubjects(world, rowOwner, agent, row.url, isAlone ? undefined : ofShared)
        : ofShared;
    const sendWith = (shown: Shown) => request(world, row, subjects, shown);
    const credentials: Record<Credential, Shown> = {
      public: {},
      agent: { authorization: `Bearer ${agent.apiKey}` },
      owner: { cookie: rowOwner.cookie },
      operator: { cookie: operator.cookie },
      facilitator: { authorization: `Bearer ${FACILITATOR_KEY}` },
      cell: {},
    };
    const own = credentials[row.auth];

    const tried: [name: string, shown: Shown, expected: string][] = Object.entries(wrongCredentials)
      .map(([name, shown]) => [name, shown, refusal(row, name)] as const)
      // The credential is permitted, and the row has no resource of another owner or agent.
      .filter(([, , expected]) => expected !== "ok")
      .map((one) => [...one]);
    if ((row.auth === "owner" || row.auth === "operator") && row.method !== "GET")
      tried.push([
        "from another origin",
        { ...own, origin: "http://evil.example" },
        "403 origin_not_allowed",
      ]);
    const refused = await Promise.all(
      tried.map(async ([name, shown]) => [name, await sendWith(shown)]),
    );
    const expected = tried.map(([name, , answer]) => [name, answer]);
    // One comparison for all, because each assertion of tap takes milliseconds.
    t.same(
      [...refused, ["the permitted credential", await sendWith(own)]],
      [...expected, ["the permitted credential", row.allowed]],
      name,
    );
  }
});

t.test("every owner's route with every role of a team in which two must sign", async (t) => {
  const owned = rows.filter(({ auth }) => auth === "owner");
  const nameOf = ({ method, url }: Row) => `${method} ${url}`;
  t.same(
    Object.values(TEAM_ROLES)
      .flat()
      .toSorted((a, b) => (a < b ? -1 : 1)),
    owned.map(nameOf).toSorted((a, b) => (a < b ? -1 : 1)),
    "each has one role that it needs",
  );
  const [admin, other, approver, viewer, removed, outsider] = await Promise.all(
    Array.from({ length: 6 }, () => signIn(world)),
  );
  if (!admin || !other || !approver || !viewer || !removed || !outsider) throw new Error("nobody");
  const team = await makeTeam(
    world,
    [
      [admin, "admin"],
      [other, "admin"],
      [approver, "approver"],
      [viewer, "viewer"],
      [removed, "viewer"],
    ],
    { threshold: 2 },
  );
  await world.database.pool.query("DELETE FROM team_members WHERE address = $1", [
    removed.account.address.toLowerCase(),
  ]);
  // Ends the session, so it is called apart.
  const actFor = "POST /api/auth/act-for";
  const { enter } = teamCalls(world.app);
  for (const who of [admin, approver, viewer])
    t.equal((await enter(who, team)).status, 200, actFor);
  t.equal((await enter(outsider, team)).status, 404, "not a member");
  t.equal((await enter(removed, team)).status, 401, "a member no more");
  const agent = await createAgent(world, outsider);
  const made = await makeSubjects(world, outsider, agent, "");
  const subjects = { ...made, connectionId: "none", consentId: "none" };
  const isLast = (row: Row) => row.url === "/api/auth/logout";
  const others = owned.filter((row) => !isLast(row) && nameOf(row) !== actFor);
  for (const row of [...others, ...owned.filter(isLast)]) {
    const mayCall = (role: Role): boolean =>
      ROLES.slice(0, ROLES.indexOf(role) + 1).some((one) => TEAM_ROLES[one].includes(nameOf(row)));
    const answers = await Promise.all(
      (Object.entries({ viewer, approver, admin, removed }) as [Role, SignedInOwner][]).map(
        async ([role, { headers }]) => {
          const answer = await request(world, row, subjects, { cookie: headers["cookie"] ?? "" });
          const isRefused = /role_not_allowed|session_required/.test(answer);
          return [role, isRefused ? answer : "passed"];
        },
      ),
    );
    const expected = ROLES.map((role) => [role, mayCall(role) ? "passed" : "403 role_not_allowed"]);
    t.same(answers, [...expected, ["removed", "401 session_required"]], nameOf(row));
  }
});

t.test("without FACILITATOR_API_KEYS the facilitator is open", async (t) => {
  const world = await testApp(t);
  for (const url of ["/api/x402/verify", "/api/x402/settle"]) {
    const answer = await world.app.inject({ method: "POST", url, payload: {} });
    t.equal(answer.statusCode, 200);
  }
});

const MINE_EVERY_MS = 30_000;

/** Rows that change the agent, or something that only a payment of its own makes. */
const NEW_AGENT =
  /^(PATCH|POST) \/api\/agents\/:id(\/archive)?$|^DELETE \/api\/agents\/|\/rotate$|\/(approve|decline)$/;
/** Rows that change other subjects, or whose subjects are made for them only. */
const NEW_SUBJECTS =
  /\/(merchant|oauth|webhooks|listings|budgets)\b|filters\/:id|push\/:id|^POST .*\/agents\/:id\/allowlist$/;

/** The expected response for a credential that is not permitted. */
function refusal(row: Row, credential: string): string {
  const isToken = credential === "agent's token";
  const isKey = credential.endsWith("key") || credential === "no key at all" || isToken;
  if (row.auth === "public") return row.allowed;
  if (row.auth === "operator") return "404 not_found";
  if (row.auth === "facilitator") return isKey ? "401 invalid_api_key" : "401 missing_api_key";
  if (row.auth === "owner") {
    if (credential !== "owner's session") return "401 session_required";
    return row.isOwned ? "404 not_found" : "ok";
  }
  if (!isKey) return "401 missing_api_key";
  // An OAuth access token is accepted by the MCP route only.
  if (isToken && row.url !== "/mcp") return "401 invalid_access_token";
  if (isToken) return "ok";
  if (credential === "revoked key") return "401 api_key_revoked";
  if (credential === "expired key") return "401 api_key_expired";
  if (credential !== "agent's key") return "401 invalid_api_key";
  return row.isOwned ? "404 not_found" : "ok";
}

async function request(
  { app, config }: TestApp,
  row: Row,
  subjects: Subjects,
  shown: Shown,
): Promise<string> {
  const id = row.url.startsWith("/api/auth/sessions")
    ? subjects.sessionId
    : row.url.startsWith("/api/listings")
      ? subjects.listingId
      : row.url.startsWith("/api/agents/me/payments")
        ? subjects.paymentId
        : row.url.includes("/approvals/")
          ? subjects.approvalId
          : row.url.startsWith("/api/webhooks")
            ? subjects.webhookId
            : row.url.startsWith("/api/notifications/push")
              ? subjects.deviceId
              : row.url.startsWith("/api/oauth/requests")
                ? subjects.consentId
                : row.url.startsWith("/api/merchant/settlements")
                  ? subjects.settlementId
                  : row.url.startsWith("/api/merchant/keys")
                    ? subjects.merchantKeyId
                    : row.url.startsWith("/api/spending/filters")
                      ? subjects.filterId
                      : row.url.startsWith("/api/budgets")
                        ? subjects.budgetId
                        : subjects.agentId;
  const path = row.url
    .replace(":channelId", `0x${"1".repeat(64)}`)
    .replace(":paymentId", subjects.paymentId)
    .replace(":keyId", subjects.keyId)
    .replace(":connectionId", subjects.connectionId)
    .replace(":deliveryId", subjects.deliveryId)
    .replace(":address", subjects.walletAddress)
    .replace(":id", id);
  const body = row.body?.(subjects);
  const answer = await app.inject({
    method: row.method,
    url: row.path ?? path,
    headers: {
      origin: config.publicUrl,
      ...row.headers,
      ...shown,
      ...(body === undefined ? {} : { "content-type": "application/json" }),
    },
    ...(body === undefined ? {} : { payload: JSON.stringify(body) }),
    payloadAsStream: true,
  });
  const stream = answer.stream();
  if (row.isStream && answer.statusCode === 200) {
    stream.destroy();
    return "200";
  }
  const text = Buffer.concat(await stream.toArray()).toString();
  const type = String(answer.headers["content-type"]);
  // On the MCP route, the problem is inside a JSON-RPC error.
  const problem = type.startsWith("application/problem+json")
    ? (JSON.parse(text) as { code: string })
    : row.url === "/mcp" && answer.statusCode === 401
      ? (JSON.parse(text) as { error: { data: { code: string } } }).error.data
      : undefined;
  return problem === undefined ? String(answer.statusCode) : `${answer.statusCode} ${problem.code}`;
}

/** The service with all optional parts configured, so that all routes exist. */
function service(t: Test): Promise<TestApp> {
  return testApp(t, {
    // All refused credentials of this test come from one IP address.
    env: {
      FACILITATOR_API_KEYS: FACILITATOR_KEY,
      OPERATORS: OPERATOR.address,
      RATE_LIMITS: "unproven=60000,address=60000,register=60000",
    },
    configure: (config) => {
      config.local = {
        faucetPrivateKey: testAccount(0).privateKey,
        demoOwnerPrivateKey: testAccount(9).privateKey,
      };
    },
  });
}

async function makeSubjects(
  world: TestApp,
  owner: SignedInOwner,
  agent: NewTestAgent,
  url: string,
  /** Those of this agent that are there already. */
  known?: Pick<Subjects, "paymentId" | "approvalId">,
): Promise<Subjects> {
  const { database, chain } = world;
  const address = owner.account.address.toLowerCase();
  const listingId = newId("lst");
  const { paymentId, approvalId } = known ?? (await spendBoth(world, owner, agent));
  // An owner may have 50 listings: delete those of earlier rows.
  await database.pool.query(
    `DELETE FROM listings WHERE source = 'owner' AND id NOT IN
       (SELECT id FROM listings ORDER BY created_at DESC LIMIT 20)`,
  );
  await database.pool.query(
    `INSERT INTO listings (id, source, owner_id, name, url, method, host, pay_to, asset, network, price,
       price_ceiling, status, requirement)
     SELECT $1, 'owner', o.id, 'a', 'https://example.com/' || $1, 'GET', 'example.com', $2, $3, $4, 1, 1,
       'active', '{}' FROM owners o WHERE o.address = $2`,
    [listingId, address, chain.usdc.toLowerCase(), `eip155:${chain.chainId}`],
  );
  const { rows: sessions } = await database.pool.query<{ id: string }>(
    `SELECT s.id FROM sessions s JOIN owners o ON o.id = s.owner_id
      WHERE o.address = $1 ORDER BY s.created_at DESC LIMIT 1`,
    [address],
  );
  const { webhookId, deliveryId } = await ofWebhook(world, address);
  const ofConsent = async () => (await requestConsent(world, owner, await register(world))).id;
  const deviceId = newId("psh");
  await database.pool.query(
    `INSERT INTO push_devices (id, owner_id, session_id, endpoint, endpoint_hash, p256dh, auth, label, types)
     SELECT $1, o.id, '', 'https://push.example/', $2, '', '', 'a', '{key.created}' FROM owners o WHERE o.address = $3`,
    [deviceId, randomBytes(32), address],
  );
  const filterId = newId("flt");
  await database.pool.query(
    `INSERT INTO saved_filters (owner_id, id, name, filter)
     SELECT o.id, $1, $1, '{}' FROM owners o WHERE o.address = $2 AND $3 LIKE '/api/spending/filters/%'`,
    [filterId, address, url],
  );
  const settlementId = newId("pay");
  const merchantKeyId = newId("mky");
  const budgetId = newId("bud");
  // An agent names its tasks itself.
  await database.pool.query(
    "INSERT INTO tasks (agent_id, id, ceiling) VALUES ($1, $1, 1) ON CONFLICT DO NOTHING",
    [agent.id],
  );
  if (url.startsWith("/api/budgets/"))
    await database.pool.query(
      "INSERT INTO budgets (id, owner_id, name, daily_limit) SELECT $1, id, 'a', 1 FROM owners WHERE address = $2",
      [budgetId, address],
    );
  if (url.startsWith("/api/merchant/")) {
    await database.pool.query(
      `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after,
         valid_before, signature, relay, status, tx_hash, proof, settled_at, final_at)
       VALUES ($1, $2, $3, $4, $5, 'facilitated', $6, 5, 0, 1, '', true, 'settled', $4, '{}', now(), now())`,
      [
        SHOP,
        chain.chainId,
        chain.usdc.toLowerCase(),
        `0x${randomBytes(32).toString("hex")}`,
        settlementId,
        address,
      ],
    );
    await database.pool.query(
      `INSERT INTO merchant_keys (id, owner_id, key_hash, prefix, last4)
       SELECT $1, o.id, $2, 'purser_mk_', 'abcd' FROM owners o WHERE o.address = $3`,
      [merchantKeyId, randomBytes(32), address],
    );
  }
  return {
    consentId: url.startsWith("/api/oauth/") ? await ofConsent() : "",
    connectionId: url.endsWith(":connectionId")
      ? (await connect(world, owner, agent.id)).connectionId
      : "",
    settlementId,
    merchantKeyId,
    filterId,
    budgetId,
    agentId: agent.id,
    keyId: agent.keyId,
    sessionId: sessions[0]?.id ?? "",
    paymentId,
    approvalId,
    webhookId,
    deliveryId,
    deviceId,
    listingId,
    walletAddress: agent.walletAddress,
  };
}

/** A refused payment, and one that waits for approval. */
async function spendBoth({ app }: TestApp, owner: SignedInOwner, agent: NewTestAgent) {
  const recipient = owner.account.address;
  const blocked = await spendAs(app, agent, { recipient, amount: "1" });
  const asked = await spendAs(app, agent, { recipient, amount: "2", requestApproval: true });
  return {
    paymentId: blocked.json<{ paymentId: string }>().paymentId,
    approvalId: asked.json<{ approvalId: string }>().approvalId,
  };
}

/** The owner's only webhook: ten are the maximum. */
async function ofWebhook(
  { database }: TestApp,
  address: string,
): Promise<{ webhookId: string; deliveryId: string }> {
  const [webhookId, deliveryId, notificationId] = [newId("whk"), newId("dlv"), newId("ntf")];
  await database.pool.query(
    "DELETE FROM webhooks w USING owners o WHERE o.id = w.owner_id AND o.address = $1",
    [address],
  );
  await database.pool.query(
    `WITH made AS (
       INSERT INTO webhooks (id, owner_id, url, types, secret, secret_kid, secret_hint)
       SELECT $2, o.id, 'https://example.com/', '{*}', '', 'test', '' FROM owners o WHERE o.address = $1 RETURNING owner_id),
     notified AS (
       INSERT INTO notifications (owner_id, id, type, subject_id, data)
       SELECT owner_id, $4, 'webhook.test', $2, '{}' FROM made)
     INSERT INTO webhook_deliveries (owner_id, id, webhook_id, notification_id, type)
     SELECT owner_id, $3, $2, $4, 'webhook.test' FROM made`,
    [address, webhookId, deliveryId, notificationId],
  );
  return { webhookId, deliveryId };
}

async function endSession({ database }: TestApp, owner: SignedInOwner, set: string): Promise<void> {
  await database.pool.query(
    `UPDATE sessions s SET ${set} FROM owners o WHERE o.id = s.owner_id AND o.address = $1`,
    [owner.account.address.toLowerCase()],
  );
}

/** The files of the built web app are routes too, one per file; they contain no data of users. */
function isWebFile(url: string): boolean {
  const root = fileURLToPath(new URL("../../web/dist/", import.meta.url));
  if (url === "/*") return true;
  if (!existsSync(root)) return false;
  const files = readdirSync(root, { recursive: true, encoding: "utf8" });
  return url === "/" || files.some((file) => url === `/${file.replaceAll("\\", "/")}`);
}
