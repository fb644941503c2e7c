// Goal: a session belongs to one browser and one owner, accepts only Purser's own origin (CSRF), and ends on
// request or by timeout.
import t from "tap";
import { callApi } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { freshNonce, signIn, siweMessage, verify } from "../helpers/owner.ts";

t.test("sessions", async (t) => {
  const service = await testApp(t);
  const { app, config, database } = service;
  const session = (cookie: string) => app.inject({ url: "/api/auth/session", headers: { cookie } });

  await t.test("the token is stored as a hash only", async (t) => {
    const owner = await signIn(service);
    const token = owner.cookie.split("=")[1] ?? "";
    const { rows } = await database.pool.query<{ row: string }>(
      "SELECT s::text AS row FROM sessions s",
    );
    t.ok(rows.length > 0);
    for (const { row } of rows) {
      t.notOk(row.includes(token));
      t.notOk(row.includes(Buffer.from(token).toString("hex")));
      t.notOk(row.includes(Buffer.from(token, "base64url").toString("hex")));
    }
  });

  await t.test("a cookie sent with the sign-in is never adopted (fixation)", async (t) => {
    const victim = await signIn(service);
    const planted = `purser_session=${"A".repeat(43)}`;
    const nonce = await freshNonce(app);
    const message = siweMessage(service, { nonce, address: victim.account.address });
    const answer = await verify(
      service,
      { message, signature: await victim.account.signMessage({ message }) },
      { cookie: planted },
    );
    t.equal(answer.statusCode, 200);
    const [cookie = ""] = [answer.headers["set-cookie"]].flat();
    t.notMatch(cookie, planted);
    t.equal((await session(planted)).statusCode, 401);
  });

  await t.test("signing in again ends the browser's previous session", async (t) => {
    const owner = await signIn(service);
    const nonce = await freshNonce(app);
    const message = siweMessage(service, { nonce, address: owner.account.address });
    const signature = await owner.account.signMessage({ message });
    const answer = await verify(service, { message, signature }, { cookie: owner.cookie });
    t.equal(answer.statusCode, 200);
    t.equal((await session(owner.cookie)).statusCode, 401);
  });

  await t.test("unsafe requests need the exact Origin", async (t) => {
    const owner = await signIn(service);
    const post = (headers: Record<string, string>) =>
      app.inject({
        method: "POST",
        url: "/api/agents",
        headers: { cookie: owner.cookie, "content-type": "application/json", ...headers },
        payload: JSON.stringify({ name: "a", dailyLimit: "1", allowlist: [] }),
      });
    const port = new URL(config.publicUrl).port;
    for (const origin of [
      undefined,
      "null",
      "",
      "http://evil.example",
      `http://localhost:${port}.evil.example`,
      `http://localhost.evil.example:${port}`,
      `http://evil-localhost:${port}`,
      `https://localhost:${port}`,
      `http://localhost:${Number(port) - 1}`,
      `http://localhost:${port}/`,
      `http://LOCALHOST:${port}`,
      "http://localhost",
    ]) {
      const answer = await post(origin === undefined ? {} : { origin });
      t.equal(answer.statusCode, 403, `Origin ${origin}`);
      t.equal(answer.json<{ code: string }>().code, "origin_not_allowed");
    }
    // Requests from Purser's own origins are accepted, and then need the owner's signature.
    for (const origin of [config.publicUrl, `http://127.0.0.1:${port}`])
      t.match((await post({ origin })).json(), { code: "owner_signature_required" }, origin);
    const { rows } = await database.pool.query<{ count: string }>("SELECT count(*) FROM agents");
    t.equal(Number(rows[0]?.count), 0, "nothing was created");
  });

  await t.test("sign-in and sign-out need it as well", async (t) => {
    const owner = await signIn(service);
    const message = siweMessage(service, {
      nonce: await freshNonce(app),
      address: owner.account.address,
    });
    const signature = await owner.account.signMessage({ message });
    const foreign = await verify(
      service,
      { message, signature },
      { origin: "http://evil.example" },
    );
    t.equal(foreign.json<{ code: string }>().code, "origin_not_allowed");
    const logout = await app.inject({
      method: "POST",
      url: "/api/auth/logout",
      headers: { cookie: owner.cookie, origin: "http://evil.example" },
    });
    t.equal(logout.statusCode, 403);
    t.equal((await session(owner.cookie)).statusCode, 200, "still signed in");
  });

  await t.test("content types that an HTML form can send are refused", async (t) => {
    const owner = await signIn(service);
    for (const type of [
      "text/plain",
      "text/plain;charset=UTF-8",
      "application/x-www-form-urlencoded",
      "multipart/form-data; boundary=x",
      "application/jsonp",
    ]) {
      for (const url of ["/api/agents", "/api/auth/verify"]) {
        const answer = await app.inject({
          method: "POST",
          url,
          headers: { cookie: owner.cookie, origin: config.publicUrl, "content-type": type },
          payload: JSON.stringify({ name: "a", dailyLimit: "1", allowlist: [] }),
        });
        t.equal(answer.statusCode, 415, `${url} ${type}`);
        t.equal(answer.json<{ code: string }>().code, "unsupported_media_type");
      }
    }
  });

  await t.test("owners' routes send no CORS headers to other origins", async (t) => {
    const owner = await signIn(service);
    const answer = await app.inject({
      url: "/api/agents",
      headers: { cookie: owner.cookie, origin: "http://evil.example" },
    });
    t.equal(answer.headers["access-control-allow-origin"], undefined);
  });

  await t.test("list sessions, end another one, end the current one", async (t) => {
    const first = await signIn(service);
    const second = await signIn(service, first.account);
    const otherOwner = await signIn(service);
    const list = await app.inject({
      url: "/api/auth/sessions",
      headers: { cookie: second.cookie },
    });
    const { items } = list.json<{ items: { id: string; current: boolean; userAgent: string }[] }>();
    t.equal(items.length, 2);
    t.same(
      items.map(({ current }) => current),
      [true, false],
    );
    const firstId = items[1]?.id ?? "";

    const remove = (id: string, headers: Record<string, string>) =>
      app.inject({ method: "DELETE", url: `/api/auth/sessions/${id}`, headers });
    t.equal(
      (await remove(firstId, otherOwner.headers)).statusCode,
      404,
      "a session of another owner",
    );
    t.equal((await session(first.cookie)).statusCode, 200);
    t.equal((await remove(firstId, second.headers)).statusCode, 200);
    t.equal((await session(first.cookie)).statusCode, 401, "ended from the other browser");
    t.equal((await remove(firstId, second.headers)).statusCode, 404, "already ended");

    const logout = await callApi(app, second, "POST", "/api/auth/logout");
    t.equal(logout.statusCode, 200);
    t.match([logout.headers["set-cookie"]].flat()[0], /^purser_session=; Max-Age=0;/);
    t.equal((await session(second.cookie)).statusCode, 401);
  });

  await t.test("a session ends after a day without use, or after a week", async (t) => {
    const idle = await signIn(service);
    await age(idle.cookie, "last_seen_at = now() - interval '23 hours 59 minutes'");
    t.equal((await session(idle.cookie)).statusCode, 200, "used in time");
    await age(idle.cookie, "last_seen_at = now() - interval '24 hours 1 second'");
    t.equal((await session(idle.cookie)).statusCode, 401, "a day unused");

    const old = await signIn(service);
    const answer = await session(old.cookie);
    const { createdAt, expiresAt } = answer.json<{ createdAt: string; expiresAt: string }>();
    t.equal(Date.parse(expiresAt) - Date.parse(createdAt), 7 * 24 * 3_600_000);
    await age(old.cookie, "expires_at = now()");
    t.equal((await session(old.cookie)).statusCode, 401, "a week old");
  });

  await t.test("use extends the idle timeout, at most once a minute", async (t) => {
    const owner = await signIn(service);
    await age(owner.cookie, "last_seen_at = now() - interval '2 hours'");
    t.equal((await session(owner.cookie)).statusCode, 200);
    const { rows } = await database.pool.query<{ fresh: boolean }>(
      "SELECT last_seen_at > now() - interval '1 minute' AS fresh FROM sessions ORDER BY created_at DESC LIMIT 1",
    );
    t.equal(rows[0]?.fresh, true);
  });

  /** Changes the newest session, which must be the one of this cookie. */
  async function age(_cookie: string, set: string): Promise<void> {
    await database.pool.query(
      `UPDATE sessions SET ${set} WHERE id = (SELECT id FROM sessions ORDER BY created_at DESC LIMIT 1)`,
    );
  }
});
