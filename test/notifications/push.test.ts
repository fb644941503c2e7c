// Goal: what needs the owner reaches each of their devices at once, encrypted for that browser and signed as ours; a flood is one
// message, a failure is visible, and a device that was removed, or whose session was ended, gets nothing more.
import t from "tap";
import { newVapidKeys, readVapidKeys } from "../../server/core/push-settings.ts";
import { MOST_PER_MINUTE, planPush, summaryOf } from "../../server/plugins/notifications/push.ts";
import { settlePush } from "../../server/plugins/notifications/push-store.ts";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { testApp } from "../helpers/app.ts";
import { callApi } from "../helpers/call.ts";
import { createAgent, nameRecoveryWallet, signIn, type SignedInOwner } from "../helpers/owner.ts";
import { testAccount } from "../helpers/chain.ts";
import { URGENT_BY_DEFAULT } from "../../server/schemas/email.ts";
import { until } from "../helpers/until.ts";
import { newBrowser, readVapid, type Browser } from "./push-receiver.ts";
import { startTarget, type Json, type Received } from "./world.ts";

const service = await startTarget(t);
const vapidKeys = newVapidKeys();
const { publicKey = "" } = readVapidKeys(vapidKeys) ?? {};
const ctx = await testApp(t, {
  env: {
    FETCH_PRIVATE_ORIGINS: service.origin,
    VAPID_KEYS: vapidKeys,
    RATE_LIMITS: "webhook=6000,sign-in=60000",
  },
  listen: true,
  timings: { webhookLookMs: 50 },
});
const { app, database } = ctx;
const { pool } = database;

let made = 0;
const newSubscription = (): Browser & { path: string } => {
  const path = `/push-${(made += 1)}`;
  return { ...newBrowser(`${service.origin}${path}`), path };
};
const bodyOf = ({ endpoint, keys }: Browser): Json => ({
  endpoint,
  keys,
  label: "Chrome on Android",
});
const add = (owner: SignedInOwner, browser: Browser, more: Json = {}) =>
  callApi(app, owner, "POST", "/api/notifications/push", { ...bodyOf(browser), ...more });
const devices = async (owner: SignedInOwner): Promise<Json[]> =>
  (await callApi(app, owner, "GET", "/api/notifications/push")).json<{ items: Json[] }>().items;
const failing = async (owner: SignedInOwner): Promise<Json[]> =>
  (await callApi(app, owner, "GET", "/api/notifications?limit=1")).json<{ failing: Json[] }>()
    .failing;
const ownerIdOf = async (owner: SignedInOwner): Promise<string> => {
  const { rows } = await pool.query("SELECT id FROM owners WHERE address = $1", [
    owner.account.address.toLowerCase(),
  ]);
  return rows[0].id as string;
};
const notify = (ownerId: string, type: string, data: Json = {}, count = 1) =>
  pool.query(
    "SELECT purser_notify($1, $2, NULL, 'subject_' || n, $3) FROM generate_series(1, $4::integer) n",
    [ownerId, type, JSON.stringify(data), count],
  );
const device = async () => {
  const owner = await signIn(ctx);
  const browser = newSubscription();
  const answer = await add(owner, browser);
  if (answer.statusCode !== 201) throw new Error(answer.body);
  const { id } = answer.json<{ device: { id: string } }>().device;
  return { owner, ownerId: await ownerIdOf(owner), browser, id };
};
const messages = (browser: Browser & { path: string }) =>
  service.at(browser.path).map((one) => browser.open(one));
/** As if the minute, and a rest after a failure, had passed. */
const letTimePass = async (id: string): Promise<void> => {
  await pool.query(
    `UPDATE push_devices SET retry_at = '-infinity', minute_at = '-infinity', leased_until = '-infinity' WHERE id = $1`,
    [id],
  );
  await pool.query("UPDATE push_waiting SET due_at = now() WHERE device_id = $1", [id]);
};
const waiting = async (id: string): Promise<number> => {
  const sql = "SELECT count(*)::int AS count FROM push_waiting WHERE device_id = $1";
  return (await pool.query(sql, [id])).rows[0].count as number;
};

t.test(
  "a request for approval is pushed at once: encrypted, signed, with no third-party text",
  async (t) => {
    const { owner, browser } = await device();
    const agent = await createAgent(ctx, owner, {
      name: "research-agent",
      dailyLimit: "2",
      allowlist: [],
    });
    const asked = await app.inject({
      method: "POST",
      url: "/api/agents/spend",
      headers: agent.headers,
      payload: JSON.stringify({
        recipient: `0x${"7".repeat(40)}`,
        amount: "0.4",
        requestApproval: true,
        reason: "Urgent: open evil.example",
      }),
    });
    t.equal(asked.statusCode, 202);
    const { approvalId } = asked.json<{ approvalId: string }>();
    const find = () => messages(browser).find(({ path }) => String(path).startsWith("/approvals"));
    await until(() => find() !== undefined);
    const message = find() as Json;
    t.match(message, {
      title: "research-agent requests approval for 0.40 USDC",
      body: /^To: 0x7{40} · Open until: 2/,
      path: `/approvals?approval=${approvalId}`,
      tag: /^ntf_/,
    });
    t.same(Object.keys(message).sort(), ["body", "path", "tag", "title"], "and nothing else");
    const [received] = service.at(browser.path) as [Received];
    t.notMatch(received.raw.toString("latin1"), "research-agent", "it is encrypted");
    t.notMatch(JSON.stringify(message), "evil.example");
    t.match(received.headers, {
      "content-encoding": "aes128gcm",
      ttl: "86400",
      urgency: "high",
      "user-agent": /^Purser/,
    });
    const claims = readVapid(received, publicKey);
    t.equal(claims.aud, service.origin);
    t.match(claims.sub, /^mailto:/);
    t.ok(claims.exp * 1000 > Date.now() && claims.exp * 1000 <= Date.now() + 24 * 3_600_000);
    const stranger = newBrowser(browser.endpoint);
    t.throws(() => stranger.open(received), "another browser cannot read it");
    t.throws(() => readVapid(received, readVapidKeys(newVapidKeys())?.publicKey ?? ""));
  },
);

t.test("payments as usual, and what the owner did not choose, are not pushed", async (t) => {
  const { ownerId, id, browser } = await device();
  const chosen = await signIn(ctx);
  const other = newSubscription();
  t.equal((await add(chosen, other, { types: ["listing.flagged"] })).statusCode, 201);
  await notify(ownerId, "payment.settled", { amount: "1" }, 3);
  await notify(ownerId, "payment.blocked", { amount: "1" });
  await notify(ownerId, "agent.limit_reached", { percent: 80 });
  t.equal(await waiting(id), 0);
  await notify(ownerId, "agent.limit_reached", { percent: 100 });
  await notify(await ownerIdOf(chosen), "listing.flagged");
  await notify(await ownerIdOf(chosen), "approval.requested");
  await until(() => messages(browser).length === 1 && messages(other).length === 1);
  t.match(messages(other), [{ title: "One of your listings was flagged" }]);
});

t.test("a flood is one message, and later ones wait for the next minute", async (t) => {
  const { ownerId, id, browser } = await device();
  // In one transaction, so that the sender sees all of them.
  await notify(ownerId, "approval.requested", { amount: "1" }, 150);
  await until(() => messages(browser).length === 1);
  t.match(messages(browser), [
    {
      title: "150 things happened to your agents",
      body: "150 of them are requests for your approval.",
      path: "/approvals",
      tag: "summary",
    },
  ]);
  await until(async () => (await waiting(id)) === 0);
  await pool.query("UPDATE push_devices SET minute_sent = $2, minute_at = now() WHERE id = $1", [
    id,
    MOST_PER_MINUTE,
  ]);
  await notify(ownerId, "key.created");
  await app.sendPushes?.();
  t.equal(messages(browser).length, 1, "the minute has had its messages");
  const { rows } = await pool.query(
    `SELECT w.due_at = d.minute_at + interval '1 minute' AS waits FROM push_waiting w JOIN push_devices d ON d.id = w.device_id
      WHERE d.id = $1`,
    [id],
  );
  t.same(rows, [{ waits: true }]);
  await letTimePass(id);
  await until(() => messages(browser).length === 2);
});

t.test("a failure is visible, is tried again, and ends with the next success", async (t) => {
  const { owner, ownerId, id, browser } = await device();
  service.answer(browser.path, (_request, response) => response.writeHead(500).end());
  await notify(ownerId, "key.created");
  await until(async () => (await failing(owner)).length === 1);
  t.match(await failing(owner), [
    {
      channel: "push",
      id,
      name: "Chrome on Android",
      since: /Z$/,
      error: "The server returned 500",
    },
  ]);
  t.match(await devices(owner), [{ failingSince: /Z$/, lastError: "The server returned 500" }]);
  t.equal(await waiting(id), 1, "it is not lost");
  await notify(ownerId, "key.revoked", { by: "nobody" });
  await app.sendPushes?.();
  t.equal(service.at(browser.path).length, 1, "the device rests");
  service.answer(browser.path, (_request, response) => response.writeHead(201).end());
  await letTimePass(id);
  await until(async () => (await waiting(id)) === 0);
  t.same(await failing(owner), []);
  t.match(await devices(owner), [{ failingSince: null, lastError: null, deliveredAt: /Z$/ }]);
  t.ok(messages(browser).some(({ title }) => String(title).includes("key was created")));
});

t.test("a device that is gone (404, 410) is removed, and the owner's record says so", async (t) => {
  for (const status of [404, 410]) {
    const { owner, ownerId, id, browser } = await device();
    service.answer(browser.path, (_request, response) => response.writeHead(status).end());
    await notify(ownerId, "key.created");
    await until(async () => (await devices(owner)).length === 0);
    t.equal(await waiting(id), 0);
    t.same(await failing(owner), [], "nothing is left to mend");
    const { rows } = await pool.query(
      "SELECT body::jsonb ->> 'action' AS action FROM audit_log WHERE owner_id = $1 ORDER BY seq",
      [ownerId],
    );
    t.same(
      rows.map(({ action }) => action as string).filter((action) => action.startsWith("push.")),
      ["push.added", "push.removed"],
    );
  }
});

t.test("a test message says whether the push service took it", async (t) => {
  const { owner, id, browser } = await device();
  const url = `/api/notifications/push/${id}/test`;
  t.same((await callApi(app, owner, "POST", url)).json(), { delivered: true, error: null });
  t.match(messages(browser), [{ title: /work on this device/, path: "/notifications/devices" }]);
  service.answer(browser.path, (_request, response) => response.writeHead(429).end());
  t.same((await callApi(app, owner, "POST", url)).json(), {
    delivered: false,
    error: "The server returned 429",
  });
  t.match(await failing(owner), [{ channel: "push", id }]);
});

t.test("a device belongs to the owner who is signed in there, and to nobody else", async (t) => {
  const { owner, ownerId, id, browser } = await device();
  const stranger = await signIn(ctx);
  t.same(await devices(stranger), []);
  for (const [method, path] of [
    ["DELETE", `/api/notifications/push/${id}`],
    ["POST", `/api/notifications/push/${id}/test`],
  ] as const)
    t.equal((await callApi(app, stranger, method, path)).statusCode, 404);
  const again = await add(owner, browser, { label: "My phone" });
  t.match(again.json(), { device: { id, label: "My phone", endpointHash: browser.endpointHash } });
  t.equal((await devices(owner)).length, 1, "the same browser is one device");
  t.notMatch(again.body, browser.endpoint, "the endpoint is not shown");
  t.notMatch(again.body, browser.keys.auth);
  t.equal((await add(stranger, browser)).statusCode, 201, "the browser's next owner");
  t.same(await devices(owner), []);
  await notify(ownerId, "key.created");
  t.same((await pool.query("SELECT 1 FROM push_waiting WHERE owner_id = $1", [ownerId])).rows, []);
});

t.test(
  "each device gets the events chosen for it, also after the next sign-in there",
  async (t) => {
    const { owner, ownerId, browser, id } = await device();
    const other = newSubscription();
    t.equal((await add(owner, other)).statusCode, 201);
    const url = `/api/notifications/push/${id}`;
    const choose = (types: string[], by = owner) => callApi(app, by, "PATCH", url, { types });
    t.same((await devices(owner)).at(-1)?.["types"], URGENT_BY_DEFAULT);
    t.match((await choose(["approval.requested", "nothing.known"])).json(), {
      code: "validation_failed",
    });
    for (const types of [[], ["payment.settled"], ["agent.funded", "agent.funded"]])
      t.equal((await choose(types)).statusCode, 422, JSON.stringify(types));
    t.equal((await choose(["agent.funded"], await signIn(ctx))).statusCode, 404);
    t.same(
      (await devices(owner)).at(-1)?.["types"],
      URGENT_BY_DEFAULT,
      "a refusal changes nothing",
    );

    t.match((await choose(["agent.funded"])).json(), { device: { id, types: ["agent.funded"] } });
    await notify(ownerId, "key.created");
    t.equal(await waiting(id), 0, "what it does not want");
    await until(() => messages(other).length === 1);
    await notify(ownerId, "agent.funded");
    await until(() => messages(browser).length === 1);
    t.equal(messages(other).length, 1, "the other device keeps its own choice");
    t.match((await add(owner, browser)).json(), { device: { id, types: ["agent.funded"] } });
    const { rows } = await pool.query(
      `SELECT body::jsonb -> 'before' AS before, body::jsonb -> 'after' AS after FROM audit_log
      WHERE owner_id = $1 AND body::jsonb ->> 'action' = 'push.changed'`,
      [ownerId],
    );
    t.match(rows, [
      { before: { deviceId: id, types: URGENT_BY_DEFAULT }, after: { types: ["agent.funded"] } },
    ]);
    t.equal(rows.length, 1);
  },
);

t.test("the recovery wallet removes a device, and cannot silence or add one", async (t) => {
  const { owner, id } = await device();
  const wallet = testAccount(58);
  await nameRecoveryWallet(app, owner, wallet);
  const second = await signIn(ctx, wallet, owner.account.address);
  const url = `/api/notifications/push/${id}`;
  const tightens = { code: "second_wallet_only_tightens" };
  const silence = await callApi(app, second, "PATCH", url, { types: ["agent.funded"] });
  t.match(silence.json(), tightens);
  t.match((await add(second, newSubscription())).json(), tightens);
  t.equal((await callApi(app, second, "DELETE", url)).statusCode, 200);
  t.same(await devices(owner), []);
});

t.test("removed while a message to it ends: neither waits for the other", async (t) => {
  const { ownerId, id } = await device();
  await pool.query(
    "INSERT INTO push_waiting (device_id, owner_id, notification_id, due_at) VALUES ($1, $2, 'not_1', 'infinity')",
    [id, ownerId],
  );
  const remover = await pool.connect();
  t.teardown(() => remover.release());
  await remover.query("BEGIN");
  await remover.query("DELETE FROM push_devices WHERE id = $1", [id]);
  const ended = app.prisma.$transaction((tx) =>
    settlePush(tx, { id, ownerId, label: "" }, { kind: "delivered", status: 201 }, ["not_1"]),
  );
  const blocked = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%push_devices%'
                     AND wait_event_type = 'Lock'`;
  await until(async () => (await pool.query(blocked)).rowCount === 1);
  await remover.query("DELETE FROM push_waiting WHERE device_id = $1", [id]);
  await remover.query("COMMIT");
  await ended;
  t.equal(await waiting(id), 0);
});

t.test("removed by its owner, it gets nothing more", async (t) => {
  const { owner, ownerId, id } = await device();
  t.equal((await callApi(app, owner, "DELETE", `/api/notifications/push/${id}`)).statusCode, 200);
  await notify(ownerId, "key.created");
  t.equal(await waiting(id), 0);
});

t.test("an ended session takes its devices with it; one that only expires does not", async (t) => {
  const first = await device();
  const second = await signIn(ctx, first.owner.account);
  const phone = newSubscription();
  t.equal((await add(second, phone)).statusCode, 201);
  t.equal((await callApi(app, second, "POST", "/api/auth/logout")).statusCode, 200);
  t.match(await devices(first.owner), [{ id: first.id }], "only the other one");
  t.equal((await devices(first.owner)).length, 1);
  await pool.query("DELETE FROM sessions WHERE owner_id = $1", [first.ownerId]);
  t.match(await devices(await signIn(ctx, first.owner.account)), [{ id: first.id }]);
  await pool.query(
    "INSERT INTO audit_notes (owner_id, actor, action) SELECT id, address, 'owner.moved' FROM owners WHERE id = $1",
    [first.ownerId],
  );
  const { rows } = await pool.query("SELECT 1 FROM push_devices WHERE owner_id = $1", [
    first.ownerId,
  ]);
  t.same(rows, [], "the agents have another owner");
});

t.test("addresses of our own network, wrong keys and too many devices are refused", async (t) => {
  const { owner } = await device();
  const browser = newSubscription();
  for (const endpoint of [
    "https://127.0.0.1/x",
    "http://169.254.169.254/latest",
    "ftp://a.example",
  ])
    t.match((await add(owner, { ...browser, endpoint })).json(), { code: "url_blocked" }, endpoint);
  const offCurve = Buffer.concat([Buffer.from([4]), Buffer.alloc(64, 1)]).toString("base64url");
  t.match((await add(owner, { ...browser, keys: { ...browser.keys, p256dh: offCurve } })).json(), {
    code: "validation_failed",
    errors: [{ path: "body.keys.p256dh" }],
  });
  t.match((await add(owner, browser, { types: ["payment.settled"] })).json(), {
    code: "validation_failed",
  });
  while ((await devices(owner)).length < 20)
    t.equal((await add(owner, newSubscription())).statusCode, 201);
  t.match((await add(owner, browser)).json(), { code: "push_quota_exceeded" });
});

t.test("messages for a device that cannot be reached are forgotten after a day", async (t) => {
  const { ownerId, id, browser } = await device();
  service.answer(browser.path, (_request, response) => response.writeHead(503).end());
  await notify(ownerId, "key.created");
  await until(
    async () =>
      (
        await pool.query(
          "SELECT failures = 1 AND leased_until = '-infinity' AS rests FROM push_devices WHERE id = $1",
          [id],
        )
      ).rows[0].rests,
  );
  await pool.query("UPDATE push_devices SET leased_until = 'infinity' WHERE id = $1", [id]);
  await pool.query(
    "UPDATE push_waiting SET due_at = now() - interval '25 hours' WHERE device_id = $1",
    [id],
  );
  await deleteOldRows(pool, ctx.config.retention);
  t.equal(await waiting(id), 0);
});

t.test("without keys the app says that there is no push", async (t) => {
  const { app: without } = await testApp(t, {
    database,
    chain: ctx.chain,
    env: { PUBLIC_URL: ctx.config.publicUrl },
  });
  const { owner, browser, id } = await device();
  t.match((await callApi(without, owner, "GET", "/api/notifications/push")).json(), {
    publicKey: null,
    items: [{ id }],
  });
  for (const [path, body] of [
    ["", bodyOf(browser)],
    [`/${id}/test`, undefined],
  ] as const)
    t.match(
      (await callApi(without, owner, "POST", `/api/notifications/push${path}`, body)).json(),
      {
        code: "push_not_available",
      },
    );
  t.equal(without.sendPushes, undefined);
});

t.test("the plan of a minute", async (t) => {
  for (let sent = 0; sent <= MOST_PER_MINUTE; sent += 1)
    for (let count = 1; count <= 8; count += 1) {
      const plan = planPush({ waiting: count, sent });
      const cost = { wait: 0, each: count, summary: 1 }[plan];
      t.ok(sent + cost <= MOST_PER_MINUTE, `${count} after ${sent}: ${plan}`);
      t.equal(plan === "wait", sent === MOST_PER_MINUTE, "it waits only if it must");
    }
  t.equal(planPush({ waiting: 4, sent: 0 }), "each");
  t.equal(planPush({ waiting: 5, sent: 0 }), "summary");
  const event = { data: {}, agentId: null, subjectId: "x", agentName: undefined };
  t.match(
    summaryOf([
      { ...event, type: "key.created" },
      { ...event, type: "approval.requested" },
    ]),
    {
      title: "2 things happened to your agents",
      body: "One of them is a request for your approval.",
      path: "/approvals",
    },
  );
  t.match(summaryOf([{ ...event, type: "key.created" }]), { path: "/notifications" });
});
