// Goal: every event reaches every subscribed webhook at least once, signed and with a stable id, whatever the
// target, other owners, a kill or a second replica do.
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { fileURLToPath } from "node:url";
import { Webhook as Verifier } from "standardwebhooks";
import t, { type Test } from "tap";
import { TIMINGS } from "../../server/core/timings.ts";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { Deliveries, LANES } from "../../server/plugins/notifications/deliveries.ts";
import { freePort } from "../../server/local/free-port.ts";
import {
  finishAttempt,
  LEASE_SECONDS,
  sweep,
  sweepDeleted,
  type Claimed,
} from "../../server/plugins/notifications/deliveries-store.ts";
import { delayAfter } from "../../server/plugins/notifications/message.ts";
import { Outbound } from "../../server/infra/outbound/outbound.ts";
import { testApp } from "../helpers/app.ts";
import { signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { startReplica } from "../spending/replica.helper.ts";
import { api, startTarget, type Json, type Received } from "./world.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const target = await startTarget(t);
const other = await startTarget(t);
const env = {
  FETCH_PRIVATE_ORIGINS: [target.origin, other.origin, "http://closed.example"].join(","),
  RATE_LIMITS: "webhook=6000,sign-in=60000",
};
const ctx = await testApp(t, {
  env,
  listen: true,
  // A hanging delivery lasts until its test ends it, however slow the machine is.
  timings: { webhookTimeoutMs: 120_000, webhookLookMs: 50, webhookRefillMs: 50 },
});
// Runs before the app closes, as closing waits for open deliveries.
t.teardown(() => {
  target.hangUp();
  other.hangUp();
});
const { app, database } = ctx;
const { pool } = database;

const owned = async () => {
  const owner = await signIn(ctx);
  return { owner, ...api(app, owner) };
};
const verified = (secret: string, { headers, body }: Received): unknown =>
  new Verifier(secret).verify(body, headers);
const isVerified = (secret: string, received: Received): boolean => {
  try {
    verified(secret, received);
    return true;
  } catch {
    return false;
  }
};
/** Makes the deliveries due, as time would. */
const makeDue = async (webhookId: string): Promise<void> => {
  await pool.query("UPDATE webhooks SET retry_at = now() WHERE id = $1", [webhookId]);
  await pool.query(
    "UPDATE webhook_deliveries SET next_attempt_at = now() WHERE webhook_id = $1 AND status IN ('waiting', 'failed')",
    [webhookId],
  );
};
let paths = 0;
const path = (): string => `/hook-${(paths += 1)}`;

t.test("the published verifier accepts every delivery, in a rotation with both keys", async (t) => {
  const me = await owned();
  const at = path();
  const hook = await me.webhook(`${target.origin}${at}`);
  const { notificationId } = await me.test(hook.id);
  await until(() => target.at(at).length === 1);
  const [first] = target.at(at) as [Received];
  const message = verified(hook.secret, first) as Json;
  t.match(message, { type: "webhook.test", timestamp: /^2.*Z$/, data: { webhookId: hook.id } });
  t.equal(first.headers["webhook-id"], notificationId);
  t.equal(first.headers["content-type"], "application/json");
  t.notOk(
    isVerified(hook.secret, { ...first, body: first.body.replace("test", "best") }),
    "with an altered body",
  );
  t.notOk(
    isVerified(hook.secret, {
      ...first,
      headers: { ...first.headers, "webhook-id": "ntf_other" },
    }),
    "with another id",
  );

  const rotate = async (graceHours: number): Promise<string> =>
    (await me.send("POST", `/api/webhooks/${hook.id}/rotate-secret`, { graceHours })).json<{
      secret: string;
    }>().secret;
  const second = await rotate(24);
  t.match(await me.status(hook.id), { previousSecretUntil: /^2/, secretHint: /^….{4}$/ });
  await me.test(hook.id);
  await until(() => target.at(at).length === 2);
  const [, both] = target.at(at) as [Received, Received];
  t.ok(
    isVerified(hook.secret, both) && isVerified(second, both),
    "both secrets sign during the grace period",
  );

  await pool.query("UPDATE webhooks SET previous_secret_until = now() WHERE id = $1", [hook.id]);
  await me.test(hook.id);
  await until(() => target.at(at).length === 3);
  const after = target.at(at)[2] as Received;
  t.ok(isVerified(second, after), "the new secret signs");
  t.notOk(isVerified(hook.secret, after), "the old secret no longer signs");
  t.equal((await me.status(hook.id))["previousSecretUntil"], null);
  await pool.query(
    "UPDATE webhooks SET previous_secret_until = now() - interval '1 hour' WHERE id = $1",
    [hook.id],
  );
  await sweep(pool);
  const { rows } = await pool.query("SELECT previous_secret FROM webhooks WHERE id = $1", [
    hook.id,
  ]);
  t.equal(rows[0].previous_secret, null, "it is deleted");

  const third = await rotate(0);
  await me.test(hook.id);
  await until(() => target.at(at).length === 4);
  const last = target.at(at)[3] as Received;
  t.ok(
    isVerified(third, last) && !isVerified(second, last),
    "without a grace period the old secret ends at once",
  );
});

t.test("the example receiver of the how-to page works unchanged", async (t) => {
  const guide = await readFile(`${ROOT}docs/how-to/receive-webhooks.md`, "utf8");
  const [, source = ""] = /```js\n([\s\S]*?)```/.exec(guide) ?? [];
  const me = await owned();
  const port = await freePort();
  const origin = `http://127.0.0.1:${port}`;
  ctx.config.fetchPrivateOrigins.push(origin);
  const hook = await me.webhook(`${origin}/`);
  const receiver = spawn(process.execPath, ["--input-type=module", "--eval", source], {
    cwd: ROOT,
    env: { PATH: process.env["PATH"], PORT: String(port), PURSER_WEBHOOK_SECRET: hook.secret },
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.teardown(() => receiver.kill());
  let output = "";
  receiver.stdout.on("data", (part: Buffer) => (output += part.toString()));
  const forged = (): Promise<number> =>
    fetch(origin, {
      method: "POST",
      body: "{}",
      headers: { "webhook-id": "ntf_1", "webhook-timestamp": "1", "webhook-signature": "v1,x" },
    })
      .then(({ status }) => status)
      .catch(() => 0);
  await until(async () => (await forged()) === 401);
  const { id } = await me.test(hook.id);
  await until(async () => (await me.deliveries(hook.id))[0]?.["status"] === "delivered");
  await me.send("POST", `/api/webhooks/${hook.id}/deliveries/${id}/resend`);
  await until(async () => (await me.deliveries(hook.id))[0]?.["status"] === "delivered");
  t.equal(output.match(/webhook\.test/g)?.length, 1, "delivered twice, handled once");
});

t.test("a secret is shown once, and is stored nowhere in plain text", async (t) => {
  const me = await owned();
  const hook = await me.webhook(`${target.origin}${path()}`);
  const key = hook.secret.slice("whsec_".length);
  const reads = await Promise.all([
    me.send("GET", "/api/webhooks"),
    me.send("PATCH", `/api/webhooks/${hook.id}`, { description: "mine" }),
    me.send("GET", `/api/webhooks/${hook.id}/deliveries`),
    me.send("GET", "/api/notifications"),
    me.send("GET", "/api/audit"),
  ]);
  for (const answer of reads) {
    t.equal(answer.statusCode, 200);
    t.notOk(answer.body.includes(key), "no response repeats it");
  }
  const { rows } = await pool.query<{ text: string; secret: Buffer }>(
    "SELECT to_jsonb(w)::text AS text, secret FROM webhooks w WHERE id = $1",
    [hook.id],
  );
  const [row] = rows as [{ text: string; secret: Buffer }];
  const raw = Buffer.from(key, "base64");
  t.notOk(
    row.text.includes(key) || row.secret.includes(raw) || row.secret.includes(Buffer.from(key)),
    "the row does not contain it",
  );
  t.notOk(
    ctx.logs.some((line) => line.includes(key)),
    "the log does not contain it",
  );
  // Copied to another row, it cannot be decrypted.
  const second = await me.webhook(`${target.origin}/moved`);
  await pool.query(
    "UPDATE webhooks SET secret = (SELECT secret FROM webhooks WHERE id = $1) WHERE id = $2",
    [hook.id, second.id],
  );
  await me.test(second.id);
  await until(() =>
    ctx.logs.some((line) => line.includes(second.id) && line.includes("does not open")),
  );
  t.equal(target.at("/moved").length, 0, "nothing is sent with it");
  await until(async () => (await me.deliveries(second.id))[0]?.["status"] === "failed");
  t.match(await me.deliveries(second.id), [{ lastError: /secret cannot be decrypted/ }]);
  const mended = await me.send("POST", `/api/webhooks/${second.id}/rotate-secret`, {});
  t.match(
    mended.json(),
    { webhook: { previousSecretUntil: null } },
    "a secret that cannot be decrypted is not kept as the previous one",
  );
  await makeDue(second.id);
  await until(() => target.at("/moved").length === 1);
  const { secret } = mended.json<{ secret: string }>();
  t.ok(isVerified(secret, target.at("/moved")[0] as Received), "a new secret repairs the webhook");
});

t.test("failing targets, each in its own way", async (t) => {
  const me = await owned();
  const cases: Record<
    string,
    { answer?: Parameters<typeof target.answer>[1]; url?: string; ends: Json }
  > = {
    garbage: {
      answer: (_request, response) =>
        void response.writeHead(200, { "content-type": "text/html" }).end("<h1>\u0000nonsense"),
      ends: { status: "delivered", lastStatus: 200 },
    },
    "an error": {
      answer: (_request, response) => void response.writeHead(500).end("boom"),
      ends: { status: "failed", lastStatus: 500, lastError: "The server returned 500" },
    },
    "a redirect": {
      answer: (_request, response) =>
        void response.writeHead(307, { location: `${target.origin}/followed` }).end(),
      ends: { status: "failed", lastStatus: 307, lastError: /redirects are not followed/ },
    },
    "an answer that never ends": {
      answer: (_request, response) => {
        response.writeHead(200);
        const pour = (): void => {
          if (!response.destroyed && response.write("x".repeat(65_536))) setImmediate(pour);
          else response.once("drain", pour);
        };
        pour();
      },
      ends: { status: "delivered", lastStatus: 200 },
    },
    "a length that is not its own": {
      answer: (request) => {
        request.socket.end("HTTP/1.1 500 No\r\ncontent-length: 5\r\n\r\nfar more than five bytes");
      },
      ends: { status: "failed", lastStatus: 500 },
    },
    "no HTTP": {
      answer: (request) => void request.socket.end("SSH-2.0-OpenSSH\r\n"),
      ends: { status: "failed", lastStatus: null, lastError: /could not be reached/ },
    },
    "headers without an end": {
      answer: (request) => {
        const pour = (): void => {
          if (!request.socket.destroyed && request.socket.write(`x-a: ${"a".repeat(8_192)}\r\n`))
            setImmediate(pour);
        };
        request.socket.write("HTTP/1.1 200 OK\r\n");
        pour();
      },
      ends: { status: "failed", lastStatus: null, lastError: /larger than allowed/ },
    },
    "closed port": {
      url: "http://closed.example/",
      ends: { status: "failed", lastStatus: null, lastError: /could not be reached/ },
    },
    "gone for good": {
      answer: (_request, response) => void response.writeHead(410).end(),
      ends: { status: "given_up", lastStatus: 410 },
    },
  };
  await me.webhook(`${target.origin}${path()}`, ["webhook.disabled"]);
  const made = await Promise.all(
    Object.entries(cases).map(async ([name, { answer, url, ends }]) => {
      const at = path();
      if (answer) target.answer(at, answer);
      const hook = await me.webhook(url ?? `${target.origin}${at}`, ["refund.failed"]);
      await me.test(hook.id);
      return { name, hook, ends };
    }),
  );
  for (const { name, hook, ends } of made) {
    await until(
      async () =>
        (await me.deliveries(hook.id)).some(
          ({ attempts, lastStatus, lastError }) =>
            Number(attempts) > 0 && (lastStatus ?? lastError) !== null,
        ),
      20_000,
    );
    const all = await me.deliveries(hook.id);
    t.match(
      all.find(({ type }) => type === "webhook.test"),
      ends,
      name,
    );
  }
  t.equal(target.at("/followed").length, 0, "the redirect was not followed");
  const gone = made.find(({ name }) => name === "gone for good")?.hook.id ?? "";
  t.match(await me.status(gone), {
    status: "disabled",
    disabledReason: "The server returned 410 Gone",
  });
  t.equal(
    (await me.notifications("?type=webhook.disabled")).length,
    1,
    "the owner is notified through the other webhooks",
  );
  await until(async () => (await me.send("GET", "/api/audit")).body.includes("webhook.disabled"));
});

t.test("SSRF: private targets are refused, by URL or when the name is resolved", async (t) => {
  const me = await owned();
  for (const url of [
    "http://example.com/",
    "https://10.0.0.1/",
    "https://[::1]/",
    "https://2130706433/",
    "https://localhost/x",
    "https://user:pass@example.com/",
    "https://example.com:25/",
    "ftp://example.com/",
    "nonsense",
  ]) {
    const answer = await me.send("POST", "/api/webhooks", { url, types: ["*"] });
    t.equal(answer.json<{ code: string }>().code, "url_blocked", url);
  }
  const hook = await me.webhook("https://rebinding.example/");
  t.equal(
    (await me.send("PATCH", `/api/webhooks/${hook.id}`, { url: "https://192.168.1.1/" }))
      .statusCode,
    403,
    "neither by a change",
  );
  // The name may resolve to another address later (DNS rebinding): the address is checked when the socket
  // connects.
  const outbound = new Outbound({
    isHttpAllowed: false,
    privateOrigins: [],
    userAgent: "test",
    resolver: async () => [{ address: "10.1.2.3", family: 4 }],
  });
  t.teardown(() => outbound.close());
  const ends: unknown[] = [];
  let isFirst = true;
  await new Deliveries({
    timings: TIMINGS,
    claim: async ({ targets }) => {
      const claimed =
        isFirst && targets === "new" ? [fakeClaim(hook.id, "https://rebinding.example/")] : [];
      isFirst &&= targets !== "new";
      return { claimed, nextAfter: "" };
    },
    finish: async (_claimed, outcome) => {
      ends.push(outcome);
      return "failed";
    },
    send: (request) => outbound.request(request),
    openSecret: async () => hook.secret,
    now: () => new Date(),
    trouble: (error) => void ends.push(error),
    counted: () => undefined,
  }).drain();
  t.match(ends, [{ kind: "failed", status: null, error: /only public http\(s\) addresses/ }]);
});

const fakeClaim = (webhookId: string, url: string): Claimed => ({
  ownerId: "own_x",
  deliveryId: "dlv_x",
  webhookId,
  claims: 1n,
  attempts: 1,
  url,
  secrets: [new Uint8Array()],
  event: { id: "ntf_x", type: "webhook.test", data: {}, createdAt: new Date() },
});

t.test("hanging targets delay no other owner", async (t) => {
  const quick = await owned();
  // Enough to occupy every slot of the lanes for new and for failed targets, with some left waiting.
  const slow = await Promise.all(Array.from({ length: 8 }, owned));
  const hanging = Array.from({ length: 16 }, path);
  for (const at of hanging) other.answer(at, () => undefined);
  const hooks = await Promise.all(
    hanging.map(async (at, index) => {
      const by = slow[index % 8] as Awaited<ReturnType<typeof owned>>;
      return { by, ...(await by.webhook(`${other.origin}${at}`, ["webhook.test"])) };
    }),
  );
  const good = path();
  const hook = await quick.webhook(`${target.origin}${good}`);
  await quick.test(hook.id);
  await until(async () => (await quick.deliveries(hook.id))[0]?.["status"] === "delivered");
  await Promise.all(hooks.map(({ by, id }) => by.test(id)));
  const places = LANES.find(({ targets }) => targets === "new")?.places ?? 0;
  await until(() => other.received.length === places);
  await quick.test(hook.id);
  await until(() => target.at(good).length === 2);
  t.equal(other.received.length, places, "delivered while all slots of the lane hang");
  const isOver = async () =>
    (await Promise.all(hooks.map(({ by, id }) => by.deliveries(id))))
      .flat()
      .filter(({ status }) => status === "failed");
  t.same(await isOver(), []);
  other.hangUp();
  await until(async () => (await isOver()).length >= places);
  // A target that never failed does not wait for failed ones.
  const late = path();
  const next = await quick.webhook(`${target.origin}${late}`);
  await quick.test(next.id);
  await until(() => target.at(late).length === 1);
  await Promise.all(hooks.map(({ by, id }) => by.send("DELETE", `/api/webhooks/${id}`)));
});

t.test("a hanging target times out before its claim expires", async (t) => {
  t.ok(
    TIMINGS.webhookTimeoutMs < LEASE_SECONDS * 1000,
    "no other replica can claim it in the meantime",
  );
  const { webhookTimeoutMs } = ctx.config.timings;
  ctx.config.timings.webhookTimeoutMs = 200;
  t.teardown(() => void (ctx.config.timings.webhookTimeoutMs = webhookTimeoutMs));
  const me = await owned();
  const at = path();
  other.answer(at, () => undefined);
  const hook = await me.webhook(`${other.origin}${at}`, ["webhook.test"]);
  await me.test(hook.id);
  await until(async () => (await me.deliveries(hook.id))[0]?.["status"] === "failed");
  t.match(await me.deliveries(hook.id), [
    { lastError: "The target did not answer in time", lastStatus: null },
  ]);
  // The second attempt would hang for two minutes.
  other.hangUp();
});

t.test("after a day of attempts the webhook is disabled; a resend starts again", async (t) => {
  const delays = Array.from({ length: 11 }, (_, index) => delayAfter(index + 1, 0) ?? Infinity);
  t.equal(delays.at(-1), Infinity, "eleven attempts");
  const hours = delays.slice(0, -1).reduce((sum, seconds) => sum + seconds, 0) / 3600;
  t.ok(hours > 23 && hours < 24, `within ${hours} hours`);

  const me = await owned();
  const at = path();
  target.answer(at, (_request, response) => void response.writeHead(503).end());
  const hook = await me.webhook(`${target.origin}${at}`);
  const { id, notificationId } = await me.test(hook.id);
  for (let attempt = 1; attempt <= 11; attempt += 1) {
    await until(() => target.at(at).length === attempt);
    await until(async () => {
      const { rows } = await pool.query("SELECT failures FROM webhooks WHERE id = $1", [hook.id]);
      return rows[0].failures === attempt;
    });
    // Many failures within minutes do not disable it: the first must be a day old.
    if (attempt === 10) {
      t.equal((await me.status(hook.id))["status"], "active");
      await pool.query(
        "UPDATE webhooks SET failing_since = now() - interval '24 hours' WHERE id = $1",
        [hook.id],
      );
    }
    await makeDue(hook.id);
  }
  await until(async () => (await me.status(hook.id))["status"] === "disabled");
  t.match(await me.status(hook.id), {
    disabledReason: /failed for a day: The server returned 503/,
  });
  t.match(await me.deliveries(hook.id), [
    { id, status: "given_up", attempts: 11, nextAttemptAt: null, lastStatus: 503 },
  ]);
  t.equal(
    new Set(target.at(at).map(({ headers }) => headers["webhook-id"])).size,
    1,
    "the same id in all attempts",
  );
  for (const url of [
    `/api/webhooks/${hook.id}/test`,
    `/api/webhooks/${hook.id}/deliveries/${id}/resend`,
  ])
    t.equal((await me.send("POST", url)).json<{ code: string }>().code, "webhook_not_active");

  target.answer(at, (_request, response) => void response.writeHead(204).end());
  await me.send("PATCH", `/api/webhooks/${hook.id}`, { status: "active" });
  t.match(await me.status(hook.id), { status: "active", disabledReason: null });
  const again = await me.send("POST", `/api/webhooks/${hook.id}/deliveries/${id}/resend`);
  t.equal(again.statusCode, 202);
  await until(() => target.at(at).length === 12);
  t.equal(target.at(at)[11]?.headers["webhook-id"], notificationId);
  t.ok(isVerified(hook.secret, target.at(at)[11] as Received));
  await until(async () => (await me.deliveries(hook.id))[0]?.["status"] === "delivered");
});

t.test("a paused webhook keeps its deliveries, until they waited too long", async (t) => {
  const me = await owned();
  const at = path();
  const hook = await me.webhook(`${target.origin}${at}`, ["webhook.test", "session.created"]);
  await pool.query("UPDATE webhooks SET retry_at = 'infinity' WHERE id = $1", [hook.id]);
  await me.test(hook.id);
  await me.send("PATCH", `/api/webhooks/${hook.id}`, { status: "paused" });
  await signIn(ctx, me.owner.account);
  t.equal(
    (await me.deliveries(hook.id)).filter(({ type }) => type === "session.created").length,
    0,
    "events during the pause are not kept for it",
  );
  await makeDue(hook.id);
  await app.deliverWebhooks();
  t.equal(target.at(at).length, 0);
  await me.send("PATCH", `/api/webhooks/${hook.id}`, { status: "active" });
  await until(() => target.at(at).length === 1);
  await me.send("PATCH", `/api/webhooks/${hook.id}`, { status: "paused" });
  await pool.query(
    "UPDATE webhook_deliveries SET status = 'waiting', delivered_at = NULL, give_up_at = now() - interval '2 hours', next_attempt_at = now() WHERE webhook_id = $1",
    [hook.id],
  );
  await sweep(pool);
  t.match(await me.deliveries(hook.id, "?status=given_up"), [{ lastError: /in time/ }]);
});

t.test("many events of one owner leave slots for the next owner", async (t) => {
  const flood = await owned();
  const next = await owned();
  const [slowAt, quickAt] = [path(), path()];
  const held: ServerResponse[] = [];
  // The first deliveries succeed, so that the target counts as trusted; later ones hang.
  target.answer(slowAt, (_request, response) => {
    if (target.at(slowAt).length > 8) held.push(response);
    else response.writeHead(204).end();
  });
  const flooded = await flood.webhook(`${target.origin}${slowAt}`);
  const quick = await next.webhook(`${target.origin}${quickAt}`);
  await next.test(quick.id);
  await until(() => target.at(quickAt).length === 1);
  await pool.query(
    "SELECT purser_notify(owner_id, 'payment.settled', NULL, 'pay_' || n, '{}') FROM webhooks, generate_series(1, 500) n WHERE id = $1",
    [flooded.id],
  );
  const perWebhook = LANES.find(({ targets }) => targets === "trusted")?.perWebhook ?? 0;
  await until(() => held.length === perWebhook);
  await next.test(quick.id);
  await until(() => target.at(quickAt).length === 2);
  t.equal(held.length, perWebhook, "delivered long before the flood was over");
  await flood.send("DELETE", `/api/webhooks/${flooded.id}`);
  for (const response of held) response.writeHead(204).end();
});

t.test("a webhook is deleted at once, and its many deliveries in batches", async (t) => {
  const me = await owned();
  const at = path();
  const hook = await me.webhook(`${target.origin}${at}`);
  await pool.query(
    `INSERT INTO webhook_deliveries (owner_id, id, webhook_id, notification_id, type)
     SELECT owner_id, 'dlv_' || left(md5(n::text || id) || md5(id), 26), id, 'ntf_' || n, 'payment.settled'
       FROM webhooks, generate_series(1, 1200) n WHERE id = $1`,
    [hook.id],
  );
  await pool.query(`
    CREATE FUNCTION not_too_many() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
      IF (SELECT count(*) FROM gone) > 500 THEN RAISE EXCEPTION 'too many in one statement'; END IF;
      RETURN NULL;
    END; $$;
    CREATE TRIGGER not_too_many AFTER DELETE ON webhook_deliveries REFERENCING OLD TABLE AS gone
      FOR EACH STATEMENT EXECUTE FUNCTION not_too_many();`);
  t.teardown(() => pool.query("DROP FUNCTION not_too_many CASCADE"));
  t.equal((await me.send("DELETE", `/api/webhooks/${hook.id}`)).statusCode, 200);
  t.same(await me.status(hook.id), {}, "not listed");
  for (const [method, url] of [
    ["GET", `/api/webhooks/${hook.id}/deliveries`],
    ["PATCH", `/api/webhooks/${hook.id}`],
    ["POST", `/api/webhooks/${hook.id}/test`],
    ["DELETE", `/api/webhooks/${hook.id}`],
  ] as const)
    t.equal(
      (await me.send(method, url, method === "PATCH" ? { status: "active" } : undefined))
        .statusCode,
      404,
      url,
    );
  await signIn(ctx, me.owner.account);
  const receivedBefore = target.at(at).length;
  const left = async () => {
    const { rows } = await pool.query(
      `SELECT (SELECT count(*)::int FROM webhook_deliveries WHERE webhook_id = $1) AS deliveries,
              (SELECT count(*)::int FROM webhooks WHERE id = $1) AS webhooks`,
      [hook.id],
    );
    return rows[0];
  };
  await sweepDeleted(pool, performance.now());
  t.equal((await left()).webhooks, 1, "a run that is out of time continues the next time");
  await sweepDeleted(pool);
  t.same(await left(), { deliveries: 0, webhooks: 0 });
  t.ok(target.at(at).length - receivedBefore < 20, "its deliveries stop");
});

t.test("two attempts that fail in parallel, each of which disables the webhook", async (t) => {
  const me = await owned();
  const at = path();
  const hook = await me.webhook(`${target.origin}${at}`, ["webhook.test"]);
  await pool.query(
    `UPDATE webhooks SET failures = 20, failing_since = now() - interval '2 days', retry_at = 'infinity' WHERE id = $1`,
    [hook.id],
  );
  await me.test(hook.id);
  await me.test(hook.id);
  const { rows: claimed } = await pool.query<Claimed>(
    `SELECT d.owner_id AS "ownerId", d.id AS "deliveryId", w.id AS "webhookId", d.claims, 1 AS attempts, w.url
       FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id WHERE w.id = $1`,
    [hook.id],
  );
  t.equal(claimed.length, 2);
  // Both start before either locks the webhook's row.
  const client = await pool.connect();
  t.teardown(() => client.release());
  await client.query("BEGIN");
  await client.query("SELECT 1 FROM webhooks WHERE id = $1 FOR UPDATE", [hook.id]);
  const failed = { kind: "failed", status: 500, error: "no", isGone: false } as const;
  const ends = Promise.all(claimed.map((one) => finishAttempt(pool, one, failed)));
  await until(async () => {
    const { rows } = await pool.query(
      "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%webhooks%'",
    );
    return rows.length === 2;
  });
  await client.query("COMMIT");
  await t.resolves(ends, "without a deadlock");
  t.equal((await me.status(hook.id))["status"], "disabled");
});

t.test("a drain occupies one worker of the queue, however often it is enqueued", async (t) => {
  const me = await owned();
  const at = path();
  other.answer(at, () => undefined);
  const hook = await me.webhook(`${other.origin}${at}`, ["webhook.test"]);
  await me.test(hook.id);
  await until(() => other.at(at).length === 1, 20_000);
  for (let count = 0; count < 4; count += 1)
    await app.jobs.enqueue("deliver-webhooks", {}, { jobKey: `again-${count}` });
  const again = async () =>
    (await pool.query("SELECT 1 FROM graphile_worker.jobs WHERE key LIKE 'again-%'")).rows.length;
  await until(async () => (await again()) === 0);
  t.match(
    (await me.deliveries(hook.id))[0],
    { status: "waiting" },
    "while the first delivery still hangs",
  );
  await me.send("DELETE", `/api/webhooks/${hook.id}`);
  other.hangUp();
});

t.test("deleting a webhook does not fail the transaction that writes an event", async (t) => {
  const me = await owned();
  const hook = await me.webhook(`${target.origin}${path()}`);
  const client = await pool.connect();
  t.teardown(() => client.release());
  await client.query("BEGIN");
  await client.query("DELETE FROM webhooks WHERE id = $1", [hook.id]);
  const fact = pool.query(
    "SELECT purser_notify(id, 'payment.settled', NULL, 'pay_x', '{}') FROM owners WHERE address = $1",
    [me.owner.account.address.toLowerCase()],
  );
  await until(async () => {
    const { rows } = await pool.query(
      "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%purser_notify%pay_x%'",
    );
    return rows.length > 0;
  });
  await client.query("COMMIT");
  await t.resolves(fact);
});

t.test("owners cannot see, change or resend anything of each other", async (t) => {
  const me = await owned();
  const otherOwner = await owned();
  const at = path();
  const hook = await me.webhook(`${target.origin}${at}`);
  const { id } = await me.test(hook.id);
  await until(() => target.at(at).length === 1);
  const requests: [Parameters<typeof me.send>[0], string, unknown?][] = [
    ["PATCH", `/api/webhooks/${hook.id}`, { status: "paused" }],
    ["DELETE", `/api/webhooks/${hook.id}`],
    ["POST", `/api/webhooks/${hook.id}/rotate-secret`, {}],
    ["POST", `/api/webhooks/${hook.id}/test`],
    ["GET", `/api/webhooks/${hook.id}/deliveries`],
    ["POST", `/api/webhooks/${hook.id}/deliveries/${id}/resend`],
  ];
  for (const request of requests)
    t.equal((await otherOwner.send(...request)).statusCode, 404, request.join(" "));
  const own = await otherOwner.webhook(`${other.origin}${path()}`);
  t.equal(
    (await otherOwner.send("POST", `/api/webhooks/${own.id}/deliveries/${id}/resend`)).statusCode,
    404,
  );
  t.same(await otherOwner.notifications("?type=webhook.test"), []);
  t.equal((await me.notifications("?type=webhook.test")).length, 1);
  t.match(await me.status(hook.id), { status: "active" });
  // Ten webhooks at most, also with parallel requests.
  const answers = await Promise.all(
    Array.from({ length: 12 }, () =>
      otherOwner.send("POST", "/api/webhooks", { url: "https://example.com/", types: ["*"] }),
    ),
  );
  const codes = answers.map(({ statusCode, body }) =>
    statusCode === 201 ? "made" : (JSON.parse(body) as { code: string }).code,
  );
  t.same(codes.sort(), [
    ...Array.from({ length: 9 }, () => "made"),
    ...Array.from({ length: 3 }, () => "webhook_quota_exceeded"),
  ]);
});

t.test("old notifications are deleted with their deliveries, but not waiting ones", async (t) => {
  const me = await owned();
  const at = path();
  const hook = await me.webhook(`${target.origin}${at}`);
  await me.test(hook.id);
  await until(async () => (await me.deliveries(hook.id))[0]?.["status"] === "delivered");
  await pool.query("UPDATE webhooks SET retry_at = 'infinity' WHERE id = $1", [hook.id]);
  await me.test(hook.id);
  const age = (days: number) =>
    pool.query(
      "UPDATE notifications SET created_at = now() - make_interval(days => $2) WHERE subject_id = $1",
      [hook.id, days],
    );
  const forget = () => deleteOldRows(pool, ctx.config.retention);
  await age(29);
  await forget();
  t.equal((await me.deliveries(hook.id)).length, 2);
  await age(31);
  t.match(await forget(), { notifications: 1 });
  t.match(await me.deliveries(hook.id), [{ status: "waiting" }]);
  t.equal((await me.notifications("?type=webhook.test")).length, 1);
});

t.test("killed before a delivery, and before its record; two replicas", async (t: Test) => {
  // An app that only injects requests: it delivers when the test calls it.
  const world = await testApp(t, { env });
  const owner = await signIn(world);
  const me = api(world.app, owner);
  const sql = world.database.pool;
  const [heldAt, unansweredAt] = [path(), path()];
  const held = await me.webhook(`${target.origin}${heldAt}`);
  const unanswered = await me.webhook(`${target.origin}${unansweredAt}`);
  await sql.query("UPDATE webhooks SET retry_at = 'infinity' WHERE id = $1", [held.id]);
  // The target receives the message, and the sender is killed before the response.
  target.answer(unansweredAt, () => undefined);
  const first = await startReplica(t, world, env);
  const origin = first.url.replace("127.0.0.1", "localhost");
  const commit = async (id: string): Promise<string> => {
    const answer = await fetch(`${origin}/api/webhooks/${id}/test`, {
      method: "POST",
      headers: { ...owner.headers, origin },
    });
    t.equal(answer.status, 202, "committed");
    return ((await answer.json()) as { delivery: { notificationId: string } }).delivery
      .notificationId;
  };
  const ids = { held: await commit(held.id), unanswered: await commit(unanswered.id) };
  await until(() => target.at(unansweredAt).length === 1, 20_000);
  first.child.kill("SIGKILL");
  await first.ended;
  t.equal(target.at(heldAt).length, 0, "killed before the first delivery began");
  t.match(
    await me.deliveries(unanswered.id),
    [{ status: "waiting", attempts: 1 }],
    "and before the response to the second one",
  );

  target.answer(unansweredAt, (_request, response) => void response.writeHead(204).end());
  await sql.query("UPDATE webhooks SET retry_at = now()");
  const second = await testApp(t, { database: world.database, chain: world.chain, env });
  const deliver = () => Promise.all([world.app.deliverWebhooks(), second.app.deliverWebhooks()]);
  await deliver();
  t.equal(target.at(heldAt).length, 1);
  t.equal(target.at(heldAt)[0]?.headers["webhook-id"], ids.held);
  t.equal(target.at(unansweredAt).length, 1, "a claim holds while its process may be running");
  await sql.query(
    "UPDATE webhook_deliveries SET next_attempt_at = now() WHERE webhook_id = $1 AND status = 'waiting'",
    [unanswered.id],
  );
  await deliver();
  t.match((await me.deliveries(unanswered.id))[0], { status: "delivered" });
  t.same(
    target.at(unansweredAt).map(({ headers }) => headers["webhook-id"]),
    [ids.unanswered, ids.unanswered],
    "twice, with one id",
  );
  const before = target.received.length;
  await sql.query(
    "SELECT purser_notify(owner_id, 'payment.settled', NULL, 'pay_' || n, '{}') FROM owners o JOIN (SELECT DISTINCT owner_id FROM webhooks) w ON w.owner_id = o.id, generate_series(1, 200) n",
  );
  await deliver();
  const { rows: undelivered } = await sql.query(
    "SELECT 1 FROM webhook_deliveries WHERE status <> 'delivered' LIMIT 1",
  );
  t.same(undelivered, []);
  // Other events may occur meanwhile.
  const deliveredIds = target.received
    .slice(before)
    .filter(({ body }) => body.includes('"type":"payment.settled"'))
    .map(({ path: at, headers }) => `${at} ${headers["webhook-id"]}`);
  t.equal(deliveredIds.length, 400, "each of 200 once to both webhooks");
  t.equal(new Set(deliveredIds).size, 400);
});
