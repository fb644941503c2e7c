// Goal: SMTP errors are classified: an address that is refused, a mail to retry later, or a problem of the server;
// and no text of third parties becomes a header.
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { simpleParser } from "mailparser";
import t from "tap";
import { mailboxOf, parseEmail } from "../../server/core/mail-settings.ts";
import { ConfigError, loadConfig } from "../../server/config.ts";
import { hideConfigured } from "../../server/infra/telemetry.ts";
import { mailServer, type OutgoingMail } from "../../server/plugins/notifications/mail-server.ts";
import { brokenServer, mailbox, MAIL_FROM } from "../helpers/smtp.ts";

const MAIL: OutgoingMail = {
  id: "eml_01kc0r5f3x8q2v7n4m6t9w0yzb",
  to: "owner@mail.example",
  subject: "Purser: a test",
  text: "Words.\n",
  html: "<p>Words.</p>",
  date: new Date("2026-11-22T10:00:00Z"),
  unsubscribeUrl: "https://purser.example/api/email/unsubscribe?token=purser_eu_x",
};

function settingsOf(url: string) {
  const { mail } = loadConfig({ SMTP_URL: url, MAIL_FROM });
  if (!mail) throw new Error("no mail is configured");
  return mail;
}
/** Ample for a server that answers, however slow this machine is; short for one that never answers. */
const AMPLE = { stepMs: 20_000, wholeMs: 25_000 };
const SHORT = { stepMs: 400, wholeMs: 1_200 };
const senderTo = (url: string, patience = AMPLE) => mailServer(settingsOf(url), patience);

t.test("a mail arrives with its id, its date and one-click unsubscribing", async (t) => {
  const box = await mailbox(t);
  t.same(await senderTo(box.url).send(MAIL), { kind: "sent" });
  const [mail] = box.mails;
  t.equal(mail?.messageId, `<${MAIL.id}@mail.example>`);
  t.equal(mail?.date?.toISOString(), MAIL.date.toISOString());
  t.equal(mail?.headers.get("auto-submitted"), "auto-generated");
  t.match(box.raw[0], `List-Unsubscribe: <${MAIL.unsubscribeUrl}>`);
  t.match(box.raw[0], "List-Unsubscribe-Post: List-Unsubscribe=One-Click");
  t.match(box.raw[0], /From: Purser Test <purser@mail\.example>/);
});

t.test("a subject is always one header", async (t) => {
  const box = await mailbox(t);
  const subject = `Purser: x\r\nBcc: victim@mail.example\r\n\r\nBody\u202E\u0000 ${"y".repeat(400)}`;
  t.same(await senderTo(box.url).send({ ...MAIL, subject }), { kind: "sent" });
  const mail = await simpleParser(box.raw[0] ?? "");
  t.equal(mail.bcc, undefined);
  t.notMatch(box.raw[0], /^Bcc:/m);
  t.match(mail.subject, /^Purser: x Bcc: victim@mail\.example Body y+$/);
  t.ok((mail.subject?.length ?? 0) <= 150);
});

t.test("errors about the address are told apart from all others", async (t) => {
  const box = await mailbox(t);
  const sender = senderTo(box.url);
  box.refuseRecipient = { code: 550, text: "no such user" };
  t.match(await sender.send(MAIL), { kind: "refused", reason: /no such user/ });
  box.refuseRecipient = { code: 450, text: "greylisted" };
  t.match(await sender.send(MAIL), { kind: "later", reason: /greylisted/ });
  box.refuseRecipient = undefined;
  box.refuseData = { code: 552, text: "over quota" };
  t.match(await sender.send(MAIL), { kind: "refused", reason: /over quota/ });
  box.refuseData = { code: 451, text: "try again" };
  t.match(await sender.send(MAIL), { kind: "later", reason: /try again/ });
  t.equal(box.mails.length, 0);
});

t.test("a refused sender is not an error of the address", async (t) => {
  const box = await mailbox(t, {
    onMailFrom: (_address, _session, done) =>
      done(Object.assign(new Error("not from you"), { responseCode: 553 })),
  });
  t.match(await senderTo(box.url).send(MAIL), { kind: "trouble", reason: /not from you/ });
});

for (const how of [
  "silent",
  "dribbling",
  "closed-at-once",
  "greets-with-554",
  "gone-after-data",
] as const)
  t.test(`a server that is ${how} counts as in trouble and is disconnected`, async (t) => {
    const server = await brokenServer(t, how);
    const patience = how === "silent" || how === "dribbling" ? SHORT : AMPLE;
    t.match(await senderTo(server.url, patience).send(MAIL), { kind: "trouble", reason: /./ });
    if (how === "gone-after-data") t.equal(server.taken(), 1, "it may have accepted the mail");
  });

t.test("no mail is sent to a remote server without TLS", async (t) => {
  const settings = settingsOf("smtp://user:a-long-password@smtp.example");
  t.match(settings, { port: 587, needsTls: true, isSecure: false, isLoopback: false });
  t.match(settingsOf("smtps://smtp.example"), { port: 465, isSecure: true });
  t.match(settingsOf("smtp://127.0.0.1:2525"), { port: 2525, needsTls: false });
  const box = await mailbox(t, { onAuth: (_auth, _session, done) => done(null, { user: "user" }) });
  // The settings are those of a remote server, but the socket connects to the test's server.
  const far = { ...settings, host: "127.0.0.1", port: box.port };
  t.match(await mailServer(far, AMPLE).send(MAIL), { kind: "trouble" });
  t.equal(box.mails.length, 0);
});

t.test("a certificate for another name is refused", async (t) => {
  const box = await mailbox(t, { disabledCommands: [] });
  const far = { ...settingsOf("smtp://smtp.example"), host: "127.0.0.1", port: box.port };
  const outcome = await mailServer(far, AMPLE).send(MAIL);
  t.match(outcome, { kind: "trouble", reason: /certificate|altnames|self.signed/i });
  t.equal(box.mails.length, 0);
});

t.test("a refused password is the server's trouble, and is not in the reason", async (t) => {
  const box = await mailbox(t, {
    authOptional: false,
    onAuth: ({ password }, _session, done) => done(new Error(`bad password ${password}`)),
  });
  const url = `smtp://user:correct-horse-battery@127.0.0.1:${box.port}`;
  const outcome = await senderTo(url).send(MAIL);
  t.match(outcome, { kind: "trouble", reason: /bad password \[secret\]/ });
});

t.test("no log line contains the password in any encoding", async (t) => {
  const password = "correct horse/battery";
  const url = `smtp://user:${encodeURIComponent(password)}@smtp.example`;
  const hide = hideConfigured(loadConfig({ SMTP_URL: url, MAIL_FROM }));
  const plain = Buffer.from(`\0user\0${password}`).toString("base64");
  const login = Buffer.from(password).toString("base64");
  for (const carried of [url, password, encodeURIComponent(password), plain, login])
    t.equal(hide(`before ${carried} after`), "before [secret] after", carried);
});

t.test("a closed port counts as trouble of the server", async (t) => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  t.match(await senderTo(`smtp://127.0.0.1:${port}`).send(MAIL), { kind: "trouble" });
});

t.test("an e-mail address must be one plain address", async (t) => {
  for (const good of ["a@b.co", "first.last+tag@Sub.Example.com", "o'neil@xn--bcher-kva.example"])
    t.ok(parseEmail(good).ok, good);
  for (const bad of [
    "",
    "a",
    "a@b",
    "@b.co",
    "a@b.co, c@d.co",
    "a@b.co\r\nBcc: c@d.co",
    "<a@b.co>",
    '"a b"@b.co',
    "a@[127.0.0.1]",
    "a@127.0.0.1",
    "a..b@b.co",
    "a@-b.co",
    "a@b.co ",
    "ä@b.co",
    "a@bücher.example",
    `${"a".repeat(65)}@b.co`,
    `a@${"b".repeat(63)}.${"c".repeat(63)}.${"d".repeat(63)}.${"e".repeat(63)}.co`,
  ])
    t.notOk(parseEmail(bad).ok, JSON.stringify(bad));
  t.equal(mailboxOf("First.Last+x@Mail.Example"), mailboxOf("firstlast@mail.example"));
});

t.test("a configuration error names the problem without the password", async (t) => {
  const problemsOf = (environment: Record<string, string>): string => {
    try {
      loadConfig(environment);
      return "";
    } catch (error) {
      if (error instanceof ConfigError) return error.message;
      throw error;
    }
  };
  t.equal(problemsOf({}), "");
  t.match(problemsOf({ MAIL_FROM }), "SMTP_URL is not");
  t.match(problemsOf({ SMTP_URL: "smtp://mail.example" }), "MAIL_FROM");
  for (const url of ["http://mail.example", "smtp://", "smtp://u:secret-word@h/x", "smtp://u@h"]) {
    t.match(problemsOf({ SMTP_URL: url, MAIL_FROM }), "SMTP_URL", url);
    t.notMatch(problemsOf({ SMTP_URL: url, MAIL_FROM }), "secret-word");
  }
});
