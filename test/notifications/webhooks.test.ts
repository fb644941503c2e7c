// Goal: what became true reaches every webhook that wants it, signed, at least once and with one id, whatever the target, another owner, a kill or a second replica does.
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
  // A delivery that hangs does so until its test ends it, however slow the machine is.
  timings: { webhookTimeoutMs: 120_000, webhookLookMs: 50, webhookRefillMs: 50 },
});
// Before the app closes: it waits for the deliveries it began.
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
/** As the clock would. */
const makeDue = async (webhookId: string): Promise<void> => {
  await pool.query("UPDATE webhooks SET retry_at = now() WHERE id = $1", [webhookId]);
  await pool.query(
    "UPDATE webhook_deliveries SET next_attempt_at = now() WHERE webhook_id = $1 AND status IN ('waiting', 'failed')",
    [webhookId],
  );
};
let paths = 0;
const path = (): string => `/hook-${(paths += 1)}`;

t.test(
  "the published verifier takes every delivery, during a rotation with both secrets",
  async (t) => {
    const me = await owned();
    const at = path();
    const hook = await me.webhook(`${target.origin}${at}`);
    const { notificationId } = await me.test(hook.id);
    await until(() => target.at(at).length === 1);
    const [first] = target.at(at) as [Received];
    const told = verified(hook.secret, first) as Json;
    t.match(told, { type: "webhook.test", timestamp: /^2.*Z$/, data: { webhookId: hook.id } });
    t.equal(first.headers["webhook-id"], notificationId);
    t.equal(first.headers["content-type"], "application/json");
    t.notOk(
      isVerified(hook.secret, { ...first, body: first.body.replace("test", "best") }),
      "altered",
    );
    t.notOk(
      isVerified(hook.secret, {
        ...first,
        headers: { ...first.headers, "webhook-id": "ntf_other" },
      }),
      "under another id",
    );

    const rotate = async (graceHours: number): Promise<string> =>
      (await me.ask("POST", `/api/webhooks/${hook.id}/rotate-secret`, { graceHours })).json<{
        secret: string;
      }>().secret;
    const second = await rotate(24);
    t.match(await me.status(hook.id), { previousSecretUntil: /^2/, secretHint: /^….{4}$/ });
    await me.test(hook.id);
    await until(() => target.at(at).length === 2);
    const [, both] = target.at(at) as [Received, Received];
    t.ok(isVerified(hook.secret, both) && isVerified(second, both), "both sign during the grace");

    await pool.query("UPDATE webhooks SET previous_secret_until = now() WHERE id = $1", [hook.id]);
    await me.test(hook.id);
    await until(() => target.at(at).length === 3);
    const after = target.at(at)[2] as Received;
    t.ok(isVerified(second, after), "the new one signs");
    t.notOk(isVerified(hook.secret, after), "the old one does no more");
    t.equal((await me.status(hook.id))["previousSecretUntil"], null);
    await pool.query(
      "UPDATE webhooks SET previous_secret_until = now() - interval '1 hour' WHERE id = $1",
      [hook.id],
    );
    await sweep(pool);
    const { rows } = await pool.query("SELECT previous_secret FROM webhooks WHERE id = $1", [
      hook.id,
    ]);
    t.equal(rows[0].previous_secret, null, "and is forgotten");

    const third = await rotate(0);
    await me.test(hook.id);
    await until(() => target.at(at).length === 4);
    const last = target.at(at)[3] as Received;
    t.ok(
      isVerified(third, last) && !isVerified(second, last),
      "without grace the old one ends at once",
    );
  },
);

t.test("the receiver of the how-to runs as it stands there", async (t) => {
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
  let said = "";
  receiver.stdout.on("data", (part: Buffer) => (said += part.toString()));
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
  await me.ask("POST", `/api/webhooks/${hook.id}/deliveries/${id}/resend`);
  await until(async () => (await me.deliveries(hook.id))[0]?.["status"] === "delivered");
  t.equal(said.match(/webhook\.test/g)?.length, 1, "told twice, it acts once");
});

t.test("a secret is shown once, and stands nowhere", async (t) => {
  const me = await owned();
  const hook = await me.webhook(`${target.origin}${path()}`);
  const key = hook.secret.slice("whsec_".length);
  const reads = await Promise.all([
    me.ask("GET", "/api/webhooks"),
    me.ask("PATCH", `/api/webhooks/${hook.id}`, { description: "mine" }),
    me.ask("GET", `/api/webhooks/${hook.id}/deliveries`),
    me.ask("GET", "/api/notifications"),
    me.ask("GET", "/api/audit"),
  ]);
  for (const answer of reads) {
    t.equal(answer.statusCode, 200);
    t.notOk(answer.body.includes(key), "no answer repeats it");
  }
  const { rows } = await pool.query<{ text: string; secret: Buffer }>(
    "SELECT to_jsonb(w)::text AS text, secret FROM webhooks w WHERE id = $1",
    [hook.id],
  );
  const [row] = rows as [{ text: string; secret: Buffer }];
  const raw = Buffer.from(key, "base64");
  t.notOk(
    row.text.includes(key) || row.secret.includes(raw) || row.secret.includes(Buffer.from(key)),
    "nor does its row",
  );
  t.notOk(
    ctx.logs.some((line) => line.includes(key)),
    "nor the log",
  );
  // Moved to another row, it opens nothing.
  const second = await me.webhook(`${target.origin}/moved`);
  await pool.query(
    "UPDATE webhooks SET secret = (SELECT secret FROM webhooks WHERE id = $1) WHERE id = $2",
    [hook.id, second.id],
  );
  await me.test(second.id);
  await until(() =>
    ctx.logs.some((line) => line.includes(second.id) && line.includes("does not open")),
  );
  t.equal(target.at("/moved").length, 0, "and nothing is sent with it");
  await until(async () => (await me.deliveries(second.id))[0]?.["status"] === "failed");
  t.match(await me.deliveries(second.id), [{ lastError: /secret cannot be decrypted/ }]);
  const mended = await me.ask("POST", `/api/webhooks/${second.id}/rotate-secret`, {});
  t.match(
    mended.json(),
    { webhook: { previousSecretUntil: null } },
    "what does not open is not kept",
  );
  await makeDue(second.id);
  await until(() => target.at("/moved").length === 1);
  const { secret } = mended.json<{ secret: string }>();
  t.ok(isVerified(secret, target.at("/moved")[0] as Received), "and a new secret mends it");
});

t.test("targets that fail, each in its way", async (t) => {
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
    "nobody there": {
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
    "the owner is told by the others",
  );
  await until(async () => (await me.ask("GET", "/api/audit")).body.includes("webhook.disabled"));
});

t.test(
  "private targets are refused, by their spelling or when their name is looked up",
  async (t) => {
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
      const answer = await me.ask("POST", "/api/webhooks", { url, types: ["*"] });
      t.equal(answer.json<{ code: string }>().code, "url_blocked", url);
    }
    const hook = await me.webhook("https://rebinding.example/");
    t.equal(
      (await me.ask("PATCH", `/api/webhooks/${hook.id}`, { url: "https://192.168.1.1/" }))
        .statusCode,
      403,
      "nor by a change",
    );
    // Its name may say anything by the time it is told: it is judged when the socket connects.
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
  },
);

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

t.test("targets that hang hold up nobody else", async (t) => {
  const quick = await owned();
  // As many as can hold every place of those that were never asked, and of those that failed, with some that wait.
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
  t.equal(other.received.length, places, "while all of them hang, and no more than their places");
  const isOver = async () =>
    (await Promise.all(hooks.map(({ by, id }) => by.deliveries(id))))
      .flat()
      .filter(({ status }) => status === "failed");
  t.same(await isOver(), []);
  other.hangUp();
  await until(async () => (await isOver()).length >= places);
  // One that never failed waits for none that did.
  const late = path();
  const next = await quick.webhook(`${target.origin}${late}`);
  await quick.test(next.id);
  await until(() => target.at(late).length === 1);
  await Promise.all(hooks.map(({ by, id }) => by.ask("DELETE", `/api/webhooks/${id}`)));
});

t.test("a target that hangs is given up in time, before its claim runs out", async (t) => {
  t.ok(TIMINGS.webhookTimeoutMs < LEASE_SECONDS * 1000, "nobody else begins the same meanwhile");
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

t.test(
  "attempts go on for a day, then it is given up, and the webhook disabled; a resend begins anew",
  async (t) => {
    const delays = Array.from({ length: 11 }, (_, index) => delayAfter(index + 1, 0) ?? Infinity);
    t.equal(delays.at(-1), Infinity, "eleven attempts");
    const hours = delays.slice(0, -1).reduce((sum, seconds) => sum + seconds, 0) / 3600;
    t.ok(hours > 23 && hours < 24, `in ${hours} hours`);

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
      // A burst of failures is no day of them.
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
      "one id all the way",
    );
    for (const url of [
      `/api/webhooks/${hook.id}/test`,
      `/api/webhooks/${hook.id}/deliveries/${id}/resend`,
    ])
      t.equal((await me.ask("POST", url)).json<{ code: string }>().code, "webhook_not_active");

    target.answer(at, (_request, response) => void response.writeHead(204).end());
    await me.ask("PATCH", `/api/webhooks/${hook.id}`, { status: "active" });
    t.match(await me.status(hook.id), { status: "active", disabledReason: null });
    const again = await me.ask("POST", `/api/webhooks/${hook.id}/deliveries/${id}/resend`);
    t.equal(again.statusCode, 202);
    await until(() => target.at(at).length === 12);
    t.equal(target.at(at)[11]?.headers["webhook-id"], notificationId);
    t.ok(isVerified(hook.secret, target.at(at)[11] as Received));
    await until(async () => (await me.deliveries(hook.id))[0]?.["status"] === "delivered");
  },
);

t.test(
  "paused is told nothing and misses nothing that waited; what waits too long is given up",
  async (t) => {
    const me = await owned();
    const at = path();
    const hook = await me.webhook(`${target.origin}${at}`, ["webhook.test", "session.created"]);
    await pool.query("UPDATE webhooks SET retry_at = 'infinity' WHERE id = $1", [hook.id]);
    await me.test(hook.id);
    await me.ask("PATCH", `/api/webhooks/${hook.id}`, { status: "paused" });
    await signIn(ctx, me.owner.account);
    t.equal(
      (await me.notifications("?type=session.created")).length,
      0,
      "what happens meanwhile is not kept",
    );
    await makeDue(hook.id);
    await app.deliverWebhooks();
    t.equal(target.at(at).length, 0);
    await me.ask("PATCH", `/api/webhooks/${hook.id}`, { status: "active" });
    await until(() => target.at(at).length === 1);
    await me.ask("PATCH", `/api/webhooks/${hook.id}`, { status: "paused" });
    await pool.query(
      "UPDATE webhook_deliveries SET status = 'waiting', delivered_at = NULL, give_up_at = now() - interval '2 hours', next_attempt_at = now() WHERE webhook_id = $1",
      [hook.id],
    );
    await sweep(pool);
    t.match(await me.deliveries(hook.id, "?status=given_up"), [{ lastError: /in time/ }]);
  },
);

t.test("a flood of one owner leaves the next owner's place", async (t) => {
  const flood = await owned();
  const next = await owned();
  const [slowAt, quickAt] = [path(), path()];
  const held: ServerResponse[] = [];
  // It takes the first ones, so that it is trusted as the next owner's is; then it answers no more.
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
  t.equal(held.length, perWebhook, "long before the flood was over");
  await flood.ask("DELETE", `/api/webhooks/${flooded.id}`);
  for (const response of held) response.writeHead(204).end();
});

t.test(
  "a webhook with very many deliveries is gone at once, and they follow some at a time",
  async (t) => {
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
    t.equal((await me.ask("DELETE", `/api/webhooks/${hook.id}`)).statusCode, 200);
    t.same(await me.status(hook.id), {}, "not listed");
    for (const [method, url] of [
      ["GET", `/api/webhooks/${hook.id}/deliveries`],
      ["PATCH", `/api/webhooks/${hook.id}`],
      ["POST", `/api/webhooks/${hook.id}/test`],
      ["DELETE", `/api/webhooks/${hook.id}`],
    ] as const)
      t.equal(
        (await me.ask(method, url, method === "PATCH" ? { status: "active" } : undefined))
          .statusCode,
        404,
        url,
      );
    await signIn(ctx, me.owner.account);
    const heard = target.at(at).length;
    const left = async () => {
      const { rows } = await pool.query(
        `SELECT (SELECT count(*)::int FROM webhook_deliveries WHERE webhook_id = $1) AS deliveries,
              (SELECT count(*)::int FROM webhooks WHERE id = $1) AS webhooks`,
        [hook.id],
      );
      return rows[0];
    };
    await sweepDeleted(pool, performance.now());
    t.equal((await left()).webhooks, 1, "a run that has no time left goes on the next time");
    await sweepDeleted(pool);
    t.same(await left(), { deliveries: 0, webhooks: 0 });
    t.ok(target.at(at).length - heard < 20, "and nothing of it is told any more");
  },
);

t.test("two attempts that fail at once, and either ends the webhook", async (t) => {
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
  // Both are under way before either has the webhook's row.
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

t.test("a drain holds one worker of its queue, however often it is asked for", async (t) => {
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
  t.match((await me.deliveries(hook.id))[0], { status: "waiting" }, "while the first still hangs");
  await me.ask("DELETE", `/api/webhooks/${hook.id}`);
  other.hangUp();
});

t.test("a webhook that is deleted while a fact is written fails no fact", async (t) => {
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

t.test("owners see, change and send nothing of each other's", async (t) => {
  const me = await owned();
  const stranger = await owned();
  const at = path();
  const hook = await me.webhook(`${target.origin}${at}`);
  const { id } = await me.test(hook.id);
  await until(() => target.at(at).length === 1);
  const asks: [Parameters<typeof me.ask>[0], string, unknown?][] = [
    ["PATCH", `/api/webhooks/${hook.id}`, { status: "paused" }],
    ["DELETE", `/api/webhooks/${hook.id}`],
    ["POST", `/api/webhooks/${hook.id}/rotate-secret`, {}],
    ["POST", `/api/webhooks/${hook.id}/test`],
    ["GET", `/api/webhooks/${hook.id}/deliveries`],
    ["POST", `/api/webhooks/${hook.id}/deliveries/${id}/resend`],
  ];
  for (const ask of asks) t.equal((await stranger.ask(...ask)).statusCode, 404, ask.join(" "));
  const own = await stranger.webhook(`${other.origin}${path()}`);
  t.equal(
    (await stranger.ask("POST", `/api/webhooks/${own.id}/deliveries/${id}/resend`)).statusCode,
    404,
  );
  t.same(await stranger.notifications(), []);
  t.equal((await me.notifications()).length, 1);
  t.match(await me.status(hook.id), { status: "active" });
  // Ten, also when they come at once.
  const answers = await Promise.all(
    Array.from({ length: 12 }, () =>
      stranger.ask("POST", "/api/webhooks", { url: "https://example.com/", types: ["*"] }),
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

t.test("old notifications are forgotten, with their deliveries; what waits is not", async (t) => {
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
  t.equal((await me.notifications()).length, 1);
});

t.test(
  "killed between commit and delivery, and between delivery and its record; two replicas",
  async (t: Test) => {
    // It only injects: it delivers when the test says so.
    const world = await testApp(t, { env });
    const owner = await signIn(world);
    const me = api(world.app, owner);
    const sql = world.database.pool;
    const [heldAt, heardAt] = [path(), path()];
    const held = await me.webhook(`${target.origin}${heldAt}`);
    const heard = await me.webhook(`${target.origin}${heardAt}`);
    await sql.query("UPDATE webhooks SET retry_at = 'infinity' WHERE id = $1", [held.id]);
    // It takes the message, and its sender dies before it hears so.
    target.answer(heardAt, () => undefined);
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
    const ids = { held: await commit(held.id), heard: await commit(heard.id) };
    await until(() => target.at(heardAt).length === 1, 20_000);
    first.child.kill("SIGKILL");
    await first.ended;
    t.equal(target.at(heldAt).length, 0, "killed before anybody was told of the one");
    t.match(
      await me.deliveries(heard.id),
      [{ status: "waiting", attempts: 1 }],
      "and before it heard that the other arrived",
    );

    target.answer(heardAt, (_request, response) => void response.writeHead(204).end());
    await sql.query("UPDATE webhooks SET retry_at = now()");
    const second = await testApp(t, { database: world.database, chain: world.chain, env });
    const deliver = () => Promise.all([world.app.deliverWebhooks(), second.app.deliverWebhooks()]);
    await deliver();
    t.equal(target.at(heldAt).length, 1);
    t.equal(target.at(heldAt)[0]?.headers["webhook-id"], ids.held);
    t.equal(target.at(heardAt).length, 1, "a claim holds while its process may live");
    await sql.query(
      "UPDATE webhook_deliveries SET next_attempt_at = now() WHERE webhook_id = $1 AND status = 'waiting'",
      [heard.id],
    );
    await deliver();
    t.match((await me.deliveries(heard.id))[0], { status: "delivered" });
    t.same(
      target.at(heardAt).map(({ headers }) => headers["webhook-id"]),
      [ids.heard, ids.heard],
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
    // Other facts may come true meanwhile.
    const told = target.received
      .slice(before)
      .filter(({ body }) => body.includes('"type":"payment.settled"'))
      .map(({ path: at, headers }) => `${at} ${headers["webhook-id"]}`);
    t.equal(told.length, 400, "each of 200 once to each of two");
    t.equal(new Set(told).size, 400);
  },
);
