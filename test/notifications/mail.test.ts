// Goal: an owner gets the confirmed e-mails at least once and recognizably, no mail per payment; and nobody can
// send mails to others through Purser.
import t, { type Test } from "tap";
import { simpleParser } from "mailparser";
import { testApp, type TestApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn, type SignedInOwner } from "../helpers/owner.ts";
import { mailbox, MAIL_FROM, type Mailbox } from "../helpers/smtp.ts";
import { until } from "../helpers/until.ts";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { makeMails } from "../../server/plugins/notifications/mail-store.ts";
import { startReplica } from "../spending/replica.helper.ts";

const box = await mailbox(t);
const world = await testApp(t, { env: { SMTP_URL: box.url, MAIL_FROM } });
const { app, database } = world;

const sql = async <Row extends object = Record<string, unknown>>(
  text: string,
  values: unknown[] = [],
): Promise<Row[]> => (await database.pool.query<Row>(text, values)).rows;

/** Runs the job that normally runs once a minute. An app that only injects requests has no queue. */
const run = async (): Promise<void> => app.sendMails?.();
const to = (address: string, from: Mailbox = box) =>
  from.mails.filter((mail) => [mail.to].flat().some((one) => one?.text === address));
const send = (
  owner: SignedInOwner,
  method: "GET" | "PUT" | "POST" | "DELETE",
  url: string,
  body?: unknown,
) => asOwner(app, owner, { method, url, ...(body === undefined ? {} : { body }) });
const tokenIn = (text: string | undefined): string =>
  /#confirm=(purser_ec_[0-9A-Za-z]+)/.exec(text ?? "")?.[1] ?? "";
const ownerId = async ({ account }: SignedInOwner): Promise<string> => {
  const [row] = await sql<{ id: string }>("SELECT id FROM owners WHERE address = $1", [
    account.address.toLowerCase(),
  ]);
  return row?.id ?? "";
};
const notify = async (
  owner: SignedInOwner,
  type: string,
  data: object = {},
  agentId: string | null = null,
): Promise<unknown> =>
  sql("SELECT purser_notify($1, $2, $3, $4, $5)", [
    await ownerId(owner),
    type,
    agentId,
    agentId ?? "sub_1",
    JSON.stringify(data),
  ]);
let names = 0;
/** Confirms the address in the database; the first test does it through the API. */
async function confirmed(
  settings: { digest?: string; urgent?: string[] } = {},
): Promise<{ owner: SignedInOwner; address: string }> {
  const owner = await signIn(world);
  const address = `owner${(names += 1)}@mail.example`;
  const set = await send(owner, "PUT", "/api/email", { address, ...settings });
  if (set.statusCode !== 200) throw new Error(set.body);
  const id = await ownerId(owner);
  // Independent of the current hour: no digest is due unless a test makes it so.
  await sql(
    `UPDATE email_addresses SET address = pending_address, pending_address = NULL, confirmed_at = now(),
            next_digest_at = now() + interval '1 hour' WHERE owner_id = $1`,
    [id],
  );
  await sql("DELETE FROM mails WHERE owner_id = $1", [id]);
  return { owner, address };
}
const digestNow = async (owner: SignedInOwner): Promise<void> => {
  await sql("UPDATE email_addresses SET next_digest_at = now() WHERE owner_id = $1", [
    await ownerId(owner),
  ]);
  await run();
};

t.test("a new address gets a single mail until it is confirmed in the app", async (t) => {
  const owner = await signIn(world);
  const before = (await send(owner, "GET", "/api/email")).json();
  t.match(before, { available: true, address: null, confirmedAt: null, digest: "daily" });
  const set = await send(owner, "PUT", "/api/email", { address: "First@Mail.Example" });
  t.match(set.json(), { address: "First@mail.example", confirmedAt: null });
  await run();
  await notify(owner, "approval.requested", { amount: "1" });
  await send(owner, "PUT", "/api/email", { address: "First@mail.example", digest: "hourly" });
  await run();
  const mails = to("First@mail.example");
  t.equal(mails.length, 1, "one mail, also when the address is set twice");
  t.equal(mails[0]?.subject, "Confirm this e-mail address for Purser");
  t.match(mails[0]?.text, owner.account.address);
  const token = tokenIn(mails[0]?.text);
  t.match(mails[0]?.html, token);

  const opened = await app.inject({
    url: "/notifications/email",
    headers: { accept: "text/html", cookie: owner.cookie },
  });
  t.equal(opened.statusCode, 200);
  t.match(
    (await send(owner, "GET", "/api/email")).json(),
    { confirmedAt: null },
    "opening the link confirms nothing",
  );
  const [stored] = await sql<{ n: bigint }>(
    "SELECT count(*) AS n FROM mails WHERE content::text LIKE '%purser_ec_%'",
  );
  t.equal(Number(stored?.n), 0, "the token is only in the mail");

  const other = await signIn(world);
  const body = { token };
  t.equal(
    (await send(other, "POST", "/api/email/confirm", body)).statusCode,
    404,
    "another owner cannot use it",
  );
  const anonymous = await app.inject({
    method: "POST",
    url: "/api/email/confirm",
    payload: body,
  });
  t.equal(anonymous.statusCode, 401);
  const done = await send(owner, "POST", "/api/email/confirm", body);
  t.match(done.json(), { address: "First@mail.example", confirmedAt: /^20/, digest: "hourly" });
  t.equal((await send(owner, "POST", "/api/email/confirm", body)).statusCode, 404, "works once");
  t.notOk(world.logs.join("").includes(token), "no log contains it");
});

t.test("an expired link confirms nothing", async (t) => {
  const owner = await signIn(world);
  await send(owner, "PUT", "/api/email", { address: "late@mail.example" });
  await run();
  await sql("UPDATE mail_tokens SET expires_at = now() WHERE address = 'late@mail.example'");
  const token = tokenIn(to("late@mail.example")[0]?.text);
  t.equal((await send(owner, "POST", "/api/email/confirm", { token })).statusCode, 404);
});

t.test("nobody can fill the mailbox of a third party", async (t) => {
  const spellings = ["victim@mail.example", "VICTIM@mail.example", "vic.tim+9@mail.example"];
  for (const address of spellings)
    t.equal((await send(await signIn(world), "PUT", "/api/email", { address })).statusCode, 200);
  const fourth = await send(await signIn(world), "PUT", "/api/email", { address: spellings[0] });
  t.match(fourth.json(), {
    status: 429,
    code: "rate_limited",
    detail: /received 3 confirmation mails/,
  });
  t.ok(Number(fourth.headers["retry-after"]) > 0);

  const busy = await signIn(world);
  const codes = [];
  for (let n = 0; n < 6; n += 1) {
    const address = `many${n}@mail.example`;
    codes.push((await send(busy, "PUT", "/api/email", { address })).statusCode);
  }
  t.same(codes, [200, 200, 200, 200, 200, 429], "five per owner");

  const owners = await Promise.all(Array.from({ length: 6 }, () => signIn(world)));
  const at = await Promise.all(
    owners.map((owner) => send(owner, "PUT", "/api/email", { address: "crowd@mail.example" })),
  );
  const taken = at.filter(({ statusCode }) => statusCode === 200).length;
  t.equal(taken, 3, "also for parallel requests");
  for (const bad of ["x@y.example\r\nBcc: z@y.example", "<x@y.example>", "x@y.example,z@y.example"])
    t.match((await send(busy, "PUT", "/api/email", { address: bad })).json(), {
      code: "validation_failed",
    });
  await run();
  t.equal(to("victim@mail.example").length, 1);
});

t.test("urgent notifications are sent at once and together, up to a number per hour", async (t) => {
  const { owner, address } = await confirmed();
  const agent = await createAgent(world, owner, { name: "research-agent" });
  await sql("DELETE FROM mail_waiting");
  await notify(owner, "approval.requested", { amount: "1.5" }, agent.id);
  await notify(owner, "agent.low_balance", { balance: "0.2" }, agent.id);
  await notify(owner, "agent.limit_reached", { percent: 80, limit: "10" }, agent.id);
  await notify(owner, "payment.settled", { amount: "1" }, agent.id);
  await run();
  const [mail, ...others] = to(address);
  t.equal(others.length, 0, "one mail");
  t.equal(mail?.subject, "Purser: 2 alerts need your attention");
  t.match(mail?.text, "research-agent requests approval for 1.5 USDC");
  t.match(mail?.text, "research-agent has only 0.2 USDC left");
  t.match(mail?.text, `${world.baseUrl}/agents/${agent.id}?do=pause`);
  t.match(mail?.text, `${world.baseUrl}/agents/${agent.id}?do=lower`);
  t.notMatch(mail?.text, "80 %");

  for (let n = 0; n < 6; n += 1) {
    await notify(owner, "agent.limit_reached", { percent: 100, limit: "10" }, agent.id);
    await run();
  }
  t.equal(to(address).length, 4, "four in an hour");
  await digestNow(owner);
  const digest = to(address).at(-1);
  t.equal(to(address).length, 5);
  t.equal(digest?.subject, "Purser: 5 events");
  t.match(digest?.text, "research-agent: 4 warnings about a limit");
  t.match(digest?.text, "research-agent: 1 payment, 1 USDC in total");
  await digestNow(owner);
  t.equal(to(address).length, 5, "without events, nothing is sent");
});

t.test("a thousand payments are one line in one mail", async (t) => {
  const { owner, address } = await confirmed({ digest: "hourly", urgent: [] });
  const agent = await createAgent(world, owner, { name: "busy" });
  await sql("DELETE FROM mail_waiting");
  await sql(
    `SELECT purser_notify($1, 'payment.settled', $2, 'pay_' || n, '{"amount":"0.000001"}')
       FROM generate_series(1, 1000) AS n`,
    [await ownerId(owner), agent.id],
  );
  await run();
  t.equal(to(address).length, 0, "no mail per payment");
  await digestNow(owner);
  t.equal(to(address).length, 1);
  t.match(to(address)[0]?.text, "busy: 1000 payments, 0.001 USDC in total");
  t.same(await sql("SELECT 1 FROM mail_waiting WHERE owner_id = $1", [await ownerId(owner)]), []);
});

t.test("events beyond a mail's size are in the next one; rare ones are not lost", async (t) => {
  const { owner, address } = await confirmed({ digest: "daily", urgent: [] });
  const id = await ownerId(owner);
  await sql(
    `SELECT purser_notify($1, 'payment.settled', 'agt_' || (n % 150), 'pay_' || n, '{"amount":"0.000001"}')
       FROM generate_series(1, 700) AS n`,
    [id],
  );
  await notify(owner, "key.created");
  const due = "SELECT next_digest_at <= now() AS due FROM email_addresses WHERE owner_id = $1";
  await sql("UPDATE email_addresses SET next_digest_at = now() WHERE owner_id = $1", [id]);
  t.equal(await app.prisma.$transaction((tx) => makeMails(tx, id, 500)), 1);
  t.same(await sql(due, [id]), [{ due: true }], "due at once, not the next day");
  await run();
  const texts = to(address)
    .map(({ text }) => text ?? "")
    .join("\n");
  t.equal(to(address).length, 2);
  t.match(texts, "This mail lists the first 500 events. Later events are in the next mail.");
  t.match(texts, /And \d+ events in \d+ more lines\. See the app/);
  t.match(texts, "1 new key", "though a hundred and fifty agents have more events");
  t.same(await sql(due, [id]), [{ due: false }]);
});

t.test("owners whose mails fail slowly delay nobody else", async (t) => {
  await sql(`
    CREATE FUNCTION no_mail() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
      PERFORM pg_advisory_xact_lock_shared(4711);
      RAISE EXCEPTION 'no mail for you';
    END; $$`);
  const failing = [];
  for (let count = 0; count < 8; count += 1)
    failing.push(await confirmed({ urgent: ["key.created"] }));
  const ids = await Promise.all(failing.map(({ owner }) => ownerId(owner)));
  await sql(
    `CREATE TRIGGER no_mail BEFORE INSERT ON mails FOR EACH ROW
       WHEN (NEW.owner_id IN (${ids.map((id) => `'${id}'`).join(",")})) EXECUTE FUNCTION no_mail()`,
  );
  t.teardown(() => sql("DROP FUNCTION no_mail CASCADE"));
  for (const { owner } of failing) await notify(owner, "key.created");
  await run();
  const good = await confirmed({ urgent: ["key.created"] });
  await notify(good.owner, "key.created");
  // Making their mails blocks until this lock is released.
  const holder = await database.pool.connect();
  // Closing its connection releases the lock.
  t.teardown(() => holder.release(true));
  await holder.query("SELECT pg_advisory_lock(4711)");
  const running = run();
  await until(() => to(good.address).length === 1);
  await until(async () => {
    const waiting = await sql(
      `SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    );
    return waiting.length > 1;
  });
  t.pass("sent while several of the others still wait");
  await holder.query("SELECT pg_advisory_unlock(4711)");
  await running;
});

t.test("old rows are deleted in batches", async (t) => {
  const { owner } = await confirmed();
  await sql(
    `INSERT INTO mail_waiting (owner_id, notification_id, urgent, created_at)
     SELECT $1, 'ntf_' || n, FALSE, now() - interval '9 days' FROM generate_series(1, 5000) n`,
    [await ownerId(owner)],
  );
  await sql(`
    CREATE FUNCTION not_too_many() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
      IF (SELECT count(*) FROM gone) > 2000 THEN RAISE EXCEPTION 'too many in one statement'; END IF;
      RETURN NULL;
    END; $$`);
  await sql(`
    CREATE TRIGGER not_too_many AFTER DELETE ON mail_waiting REFERENCING OLD TABLE AS gone
      FOR EACH STATEMENT EXECUTE FUNCTION not_too_many()`);
  t.teardown(() => sql("DROP FUNCTION not_too_many CASCADE"));
  const deleted = await deleteOldRows(app.pool, app.config.retention);
  t.ok((deleted["waitingForMail"] ?? 0) >= 5_000);
  t.same(await sql("SELECT 1 FROM mail_waiting WHERE notification_id ~ '^ntf_[0-9]{1,4}$'"), []);
});

t.test("with the digest off, only urgent notifications are mailed or stored", async (t) => {
  const { owner, address } = await confirmed({ digest: "off", urgent: ["key.created"] });
  await notify(owner, "payment.blocked", { amount: "1" });
  await notify(owner, "key.created");
  const waiting = await sql("SELECT urgent FROM mail_waiting WHERE owner_id = $1", [
    await ownerId(owner),
  ]);
  t.same(waiting, [{ urgent: true }]);
  await run();
  t.match(to(address)[0]?.subject, /key was created/);
});

t.test("a sign-in is urgent only from a new device", async (t) => {
  const { owner, address } = await confirmed({ digest: "off" });
  const id = await ownerId(owner);
  const [known] = await sql<{ user_agent: string; ip: string }>(
    "SELECT user_agent, ip FROM sessions WHERE owner_id = $1",
    [id],
  );
  const notifySignIn = (userAgent: string, ip: string) =>
    notify(owner, "session.created", { ip, thirdParty: { userAgent } });
  await notifySignIn(known?.user_agent ?? "", known?.ip ?? "");
  t.same(await sql("SELECT 1 FROM mail_waiting WHERE owner_id = $1", [id]), []);
  await notifySignIn("Mozilla/5.0 <b>evil</b>", "203.0.113.9");
  await run();
  const mail = to(address)[0];
  t.equal(mail?.subject, "Purser: New sign-in to your account from 203.0.113.9");
  t.match(mail?.text, `${world.baseUrl}/settings?do=end-sessions`);
  t.match(mail?.html, "&lt;b&gt;evil&lt;/b&gt;");
});

t.test("texts of third parties stay text: no header, markup or link", async (t) => {
  const { owner, address } = await confirmed();
  const agent = await createAgent(world, owner, { name: "x" });
  const evil = "Evil\r\nBcc: v@mail.example\u202E<script>alert(1)</script> www.evil.example";
  await sql("UPDATE agents SET name = $2 WHERE id = $1", [agent.id, evil]);
  await sql("DELETE FROM mail_waiting");
  const reason = `Click https://evil.example/login </li><a href="x">now</a>\r\n\r\n-- \r\nPurser ${"z".repeat(500)}`;
  await notify(
    owner,
    "approval.requested",
    { amount: "1\r\nX: y", thirdParty: { reason, site: "https://evil.example" } },
    agent.id,
  );
  await run();
  const raw = box.raw.at(-1) ?? "";
  const mail = await simpleParser(raw);
  t.same(
    [mail.to].flat().map((one) => one?.text),
    [address],
  );
  t.equal(mail.bcc, undefined);
  t.notMatch(raw, /^Bcc:/im);
  t.notMatch(mail.subject, /[\r\n\u202E]/);
  t.ok((mail.subject?.length ?? 0) <= 150);
  const { text = "", html } = mail;
  t.notMatch(String(html), /<script|<a href="x"|src=|evil\.example/);
  t.notMatch(text, /evil\.example|\u202E/);
  t.match(
    text,
    "Reason (third-party text, not from Purser): “Click https[:]//evil[.]example/login",
  );
  t.match(text, "requests approval for ? USDC", "an invalid amount is not repeated");
  const links = [...String(html).matchAll(/href="([^"]*)"/g)].map(([, href = ""]) => href);
  t.ok(links.length > 3);
  t.same(
    links.filter((href) => !href.startsWith(`${world.baseUrl}/`)),
    [],
  );
});

t.test("a new address is used after its confirmation, and the old one is notified", async (t) => {
  const { owner, address } = await confirmed();
  const next = "next@mail.example";
  const response = await send(owner, "PUT", "/api/email", { address: next });
  t.match(response.json(), { address, confirmedAt: /^20/, pendingAddress: next });
  await notify(owner, "key.created");
  await run();
  t.same(
    to(address)
      .map(({ subject = "" }) => subject)
      .toSorted((left, right) => left.localeCompare(right)),
    ["Purser: A key was created for An agent", "Your e-mail address at Purser was changed"],
    "mails still go to the old address",
  );
  const token = tokenIn(to(next)[0]?.text);
  t.match((await send(owner, "POST", "/api/email/confirm", { token })).json(), {
    address: next,
    pendingAddress: null,
  });
  await run();
  t.match(to(address).at(-1)?.text, "A different address was confirmed");
  await send(owner, "DELETE", "/api/email");
  await notify(owner, "key.created");
  await run();
  t.match(to(next).at(-1)?.text, "This address was removed");
  t.match((await send(owner, "GET", "/api/email")).json(), { address: null });
  t.same(await sql("SELECT 1 FROM mail_waiting WHERE owner_id = $1", [await ownerId(owner)]), []);
  const actions = await sql<{ action: string }>(
    "SELECT body::jsonb ->> 'action' AS action FROM audit_log WHERE owner_id = $1 ORDER BY seq",
    [await ownerId(owner)],
  );
  t.same(
    actions.map(({ action }) => action).filter((action) => action.startsWith("email.")),
    ["email.named", "email.named", "email.confirmed", "email.removed"],
  );
});

t.test("unsubscribing is one POST (RFC 8058); opening the link changes nothing", async (t) => {
  const { owner, address } = await confirmed();
  await notify(owner, "key.created");
  await run();
  const raw = box.raw.at(-1) ?? "";
  t.match(raw, "List-Unsubscribe-Post: List-Unsubscribe=One-Click");
  const [, url = ""] = /^List-Unsubscribe: <([^>]+)>/m.exec(raw) ?? [];
  const path = url.slice(world.baseUrl.length);
  const opened = await app.inject({ url: path });
  t.equal(opened.statusCode, 303);
  t.match(opened.headers.location, /^\/unsubscribe#token=purser_eu_/);
  t.match((await send(owner, "GET", "/api/email")).json(), { stopped: null });
  // Like a mail client: no cookie, no origin, a form.
  const press = (at: string, type = "application/x-www-form-urlencoded") =>
    app.inject({
      method: "POST",
      url: at,
      headers: { "content-type": type },
      payload: "List-Unsubscribe=One-Click",
    });
  t.equal((await press(path)).statusCode, 200);
  t.equal(
    (await press(path, "multipart/form-data; boundary=x")).statusCode,
    200,
    "a second click is no error",
  );
  t.match((await send(owner, "GET", "/api/email")).json(), { address, stopped: "unsubscribed" });
  await notify(owner, "key.created");
  await digestNow(owner);
  t.equal(to(address).length, 1, "no further mail");
  const wrong = await press("/api/email/unsubscribe?token=purser_eu_wrong");
  t.match(wrong.json(), { status: 404, code: "not_found" });

  await send(owner, "PUT", "/api/email", { address });
  await run();
  const token = tokenIn(to(address).at(-1)?.text);
  t.match((await send(owner, "POST", "/api/email/confirm", { token })).json(), { stopped: null });
});

t.test("a mail is retried after 4xx; an address that refuses for days is stopped", async (t) => {
  const { owner, address } = await confirmed();
  const id = await ownerId(owner);
  box.refuseRecipient = { code: 451, text: "greylisted, come back" };
  await notify(owner, "key.created");
  await run();
  const [later] = await sql(
    "SELECT status, attempts, last_error ~ 'greylisted' AS explained, next_attempt_at > now() AS waits FROM mails WHERE owner_id = $1 AND kind = 'urgent'",
    [id],
  );
  t.same(later, { status: "waiting", attempts: 1, explained: true, waits: true });
  box.refuseRecipient = undefined;
  await sql("UPDATE mails SET next_attempt_at = now() WHERE status = 'waiting'");
  await run();
  t.equal(to(address).length, 1);

  box.refuseRecipient = { code: 550, text: "no such user here" };
  for (let n = 0; n < 2; n += 1) {
    await notify(owner, "key.created");
    await run();
  }
  t.match((await send(owner, "GET", "/api/email")).json(), {
    stopped: null,
    lastError: /no such user/,
  });
  await sql(
    "UPDATE email_addresses SET failing_since = now() - interval '4 days' WHERE owner_id = $1",
    [id],
  );
  await notify(owner, "key.created");
  await run();
  t.match((await send(owner, "GET", "/api/email")).json(), { stopped: "refused" });
  box.refuseRecipient = undefined;
  await notify(owner, "key.created");
  await run();
  t.equal(to(address).length, 1, "no further mail");
});

t.test("a mail that was not accepted for a day is given up", async (t) => {
  const { owner } = await confirmed();
  box.refuseRecipient = { code: 451, text: "not now" };
  await notify(owner, "key.created");
  await run();
  await sql(
    "UPDATE mails SET created_at = now() - interval '25 hours', next_attempt_at = now() WHERE status = 'waiting'",
  );
  await run();
  box.refuseRecipient = undefined;
  const rows = await sql("SELECT status FROM mails WHERE owner_id = $1 AND kind = 'urgent'", [
    await ownerId(owner),
  ]);
  t.same(rows, [{ status: "given_up" }]);
  const metrics = await app.metrics.metrics();
  t.match(metrics, /purser_mails_total\{kind="urgent",outcome="given_up"\} 1/);
});

t.test("two replicas in parallel send each mail once", async (t) => {
  const second = await testApp(t, {
    database,
    chain: world.chain,
    env: { SMTP_URL: box.url, MAIL_FROM },
  });
  const owners = [];
  for (let n = 0; n < 6; n += 1) owners.push(await confirmed());
  for (const { owner } of owners) await notify(owner, "key.created");
  await Promise.all([app.sendMails?.(), second.app.sendMails?.(), app.sendMails?.()]);
  for (const { address } of owners) t.equal(to(address).length, 1);
});

async function withoutServer(t: Test): Promise<TestApp> {
  return testApp(t, { database, chain: world.chain, listen: true });
}

t.test("without an SMTP server the API says so, and no mails accumulate", async (t) => {
  const { owner, address } = await confirmed();
  await notify(owner, "key.created");
  // Its queue deletes old rows at its start, and every hour.
  const other = await withoutServer(t);
  t.equal(other.app.sendMails, undefined);
  const get = await other.app.inject({ url: "/api/email", headers: { cookie: owner.cookie } });
  t.match(get.json(), { available: false, address });
  const put = await other.app.inject({
    method: "PUT",
    url: "/api/email",
    headers: { ...owner.headers, origin: other.baseUrl },
    payload: JSON.stringify({ address }),
  });
  t.match(put.json(), { status: 409, code: "email_not_available" });
  const waiting = async () => sql("SELECT 1 FROM mail_waiting");
  await until(async () => (await waiting()).length === 0, 20_000);
});

t.test("killed before the acceptance is recorded: the same mail is sent once more", async (t) => {
  const taken = await mailbox(t);
  const env = { SMTP_URL: taken.url, MAIL_FROM };
  // An app that only injects requests: it sends when the test calls it.
  const still = await testApp(t, { chain: world.chain, env });
  const owner = await signIn(still);
  const { pool } = still.database;
  await pool.query(
    `INSERT INTO email_addresses (owner_id, address, confirmed_at, digest, urgent, next_digest_at)
     SELECT id, 'kill@mail.example', now(), 'off', '{key.created}', 'infinity' FROM owners WHERE address = $1`,
    [owner.account.address.toLowerCase()],
  );
  const notified = pool.query(
    "SELECT purser_notify(id, 'key.created', NULL, 'key_1', '{}') FROM owners",
  );
  t.equal((await notified).rows.length, 1);
  const state = async () =>
    (await pool.query("SELECT status, attempts FROM mails ORDER BY created_at")).rows;

  let isTaken = false;
  taken.beforeAnswer = () => {
    isTaken = true;
    return new Promise(() => {});
  };
  const replica = await startReplica(t, still, env);
  await until(() => isTaken, 30_000);
  replica.child.kill("SIGKILL");
  await replica.ended;
  t.same(await state(), [{ status: "waiting", attempts: 1 }], "the acceptance is not recorded");

  taken.beforeAnswer = async () => {};
  await still.app.sendMails?.();
  t.equal(taken.mails.length, 1, "a claim holds while its process may be running");
  await pool.query("UPDATE mails SET next_attempt_at = now()");
  await still.app.sendMails?.();
  t.match(await state(), [{ status: "sent" }]);
  const [one, other] = taken.mails;
  t.equal(taken.mails.length, 2);
  t.match(one?.messageId, /^<eml_[0-9a-z]{26}@mail\.example>$/);
  t.equal(one?.messageId, other?.messageId, "the Message-ID is the same");
  t.same(one?.date, other?.date);
  t.equal(one?.subject, other?.subject);
});
