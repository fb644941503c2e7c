// Goal: an owner sees events and their recipients, sets up and repairs a webhook in the app, confirms an
// email address with a button, and opening a link of a mail changes nothing until its button is pressed.
import { createServer } from "node:http";
import { once } from "node:events";
import { join } from "node:path";
import type { AddressInfo } from "node:net";
import { Webhook } from "standardwebhooks";
import t from "tap";
import { testAccount } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { mailbox, MAIL_FROM } from "../helpers/smtp.ts";
import { until } from "../helpers/until.ts";
import { picture, PICTURES, stepsOf } from "./pictures.ts";
import { asAgent, DEMO_OWNER, signInWithDemoWallet, webWorld } from "./world.ts";

interface Delivery {
  headers: Record<string, string>;
  body: string;
}

t.test("notifications in the app", async (t) => {
  const box = await mailbox(t);
  const deliveries: Delivery[] = [];
  let answer = 500;
  const target = createServer((request, response) => {
    let body = "";
    request.on("data", (part: Buffer) => (body += part.toString()));
    request.on("end", () => {
      deliveries.push({ headers: request.headers as Record<string, string>, body });
      response.writeHead(answer).end(answer === 500 ? "not today" : "ok");
    });
  }).listen(0, "127.0.0.1");
  await once(target, "listening");
  t.teardown(() => void target.close());
  const origin = `http://127.0.0.1:${(target.address() as AddressInfo).port}`;

  const world = await webWorld(t, {
    env: { FETCH_PRIVATE_ORIGINS: origin, SMTP_URL: box.url, MAIL_FROM },
  });
  const { app, database, baseUrl } = world;
  const owner = await signIn(world, DEMO_OWNER);
  const agent = await createAgent(world, owner, {
    name: "research-agent",
    dailyLimit: "8",
    allowlist: [{ address: testAccount(70).address, label: "Weather API" }],
  });
  const { page, faults } = await world.open(t, "/notifications", { reducedMotion: "reduce" });
  await signInWithDemoWallet(page);
  const step = stepsOf(t);
  const sendMails = (): Promise<void> =>
    app.jobs.enqueue("send-mails", {}, { jobKey: "send-mails" });
  const agentRow = async (): Promise<unknown> => {
    const { rows } = await database.pool.query(
      "SELECT status, daily_limit::text AS limit FROM agents WHERE id = $1",
      [agent.id],
    );
    return rows[0];
  };
  let secret = "";

  await step("without recipients, the page already lists what happened", async () => {
    await page.getByText("research-agent was created").waitFor();
    await picture(page, "empty", true);
    await page.getByRole("link", { name: "Webhooks", exact: true }).click();
    await page.getByText("No webhooks").waitFor();
    await picture(page, "webhooks-empty", true);
  });

  await step("a webhook is added, and its secret is shown once", async (t) => {
    await page.getByRole("button", { name: "Add webhook" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Address").fill("http://203.0.113.9/hook");
    await dialog.getByRole("button", { name: "Add webhook" }).click();
    await dialog.getByText("The webhook was not saved").waitFor();
    await dialog.getByLabel("Address").fill(`${origin}/hook`);
    await dialog.getByLabel("Description").fill("Our books");
    await dialog.getByLabel("All events, including new kinds added later").uncheck();
    await dialog.getByLabel("Payment made").check();
    await dialog.getByLabel("Rules changed").check();
    await picture(page, "webhook-new", true);
    await dialog.getByRole("button", { name: "Add webhook" }).click();
    secret = (await dialog.getByTestId("webhook-secret").textContent()) ?? "";
    t.match(secret, /^whsec_/);
    await picture(page, "webhook-secret", true);
    await dialog.getByLabel("I saved the secret").check();
    await dialog.getByRole("button", { name: "Done" }).click();
    await page.getByText("Payment made, Rules changed").waitFor();
    await page.getByText(/· added (just now|\d)/).waitFor();
    t.equal(await page.getByText(secret).count(), 0);
  });

  await step("a failing test shows the reason, is fixed and sent again", async (t) => {
    await page.getByRole("button", { name: "Send a test" }).click();
    const log = page.getByRole("dialog");
    await log.getByText("Failed", { exact: true }).last().waitFor();
    await log.getByText("The server returned 500").waitFor();
    await picture(page, "deliveries-failed", true);
    answer = 204;
    await log.getByRole("button", { name: /^Send again/ }).click();
    await log.getByText("Delivered", { exact: true }).last().waitFor();
    const last = deliveries.at(-1);
    t.match(new Webhook(secret).verify(last?.body ?? "", last?.headers ?? {}), {
      type: "webhook.test",
    });
    t.equal(new Set(deliveries.map(({ headers }) => headers["webhook-id"])).size, 1, "one id");
    await log.getByLabel("Show").selectOption({ label: "Stopped" });
    await log.getByText("No delivery matches").waitFor();
    await page.keyboard.press("Escape");
  });

  await step("its secret is changed, it is paused and resumed", async () => {
    await page.getByRole("button", { name: /^New secret/ }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Create a new secret" }).click();
    await dialog.getByLabel("I saved the secret").check();
    await dialog.getByRole("button", { name: "Done" }).click();
    await page.getByText("The previous secret also works").waitFor();
    await page.getByRole("button", { name: /^Pause/ }).click();
    await page.getByText("Paused", { exact: true }).waitFor();
    await page.getByRole("button", { name: /^Resume/ }).click();
    await page.getByText("Active", { exact: true }).waitFor();
  });

  await step("a disabled webhook shows the reason", async () => {
    await database.pool.query(
      "UPDATE webhooks SET status = 'disabled', disabled_reason = 'It failed 10 times in a row, for more than a day.'",
    );
    await page.reload();
    await page.getByText("Purser stopped sending to this webhook.").waitFor();
    await picture(page, "webhook-disabled", true);
    await page.getByRole("button", { name: /^Resume/ }).click();
    await page.getByText("Active", { exact: true }).waitFor();
  });

  await step("an e-mail address is confirmed by the button, not by opening the link", async (t) => {
    await page.getByRole("link", { name: "E-mail", exact: true }).click();
    await page.getByRole("textbox", { name: "Address" }).fill("not an address");
    await page.getByRole("button", { name: "Save and confirm" }).click();
    await page.getByText("The address was not saved").waitFor();
    await page.getByRole("textbox", { name: "Address" }).fill("owner@mail.example");
    await page.getByRole("button", { name: "Save and confirm" }).click();
    await page.getByText("Not confirmed").waitFor();
    await picture(page, "email-unconfirmed", true);
    await sendMails();
    await until(() => box.mails.length === 1, 30_000);
    const [, link = ""] = /(http\S+#confirm=\S+)/.exec(box.mails[0]?.text ?? "") ?? [];
    await page.goto("about:blank");
    await page.goto(link);
    const press = page.getByRole("button", { name: "Confirm this address" });
    await press.waitFor();
    await picture(page, "email-confirm", true);
    const { rows } = await database.pool.query("SELECT address FROM email_addresses");
    t.same(rows, [{ address: null }], "opening the link confirmed nothing");
    await press.click();
    await page.getByText("Your address is confirmed").waitFor();
    await page.getByText("Confirmed", { exact: true }).waitFor();
    t.notMatch(page.url(), "#");
    await page.getByRole("radio", { name: "Every hour" }).check();
    await page.getByLabel("Listing flagged").check();
    await page.getByRole("button", { name: "Save settings" }).click();
    await page.getByText("Saved.").waitFor();
    await picture(page, "email", true);
    const settings = await database.pool.query("SELECT digest, urgent FROM email_addresses");
    t.match(settings.rows[0], { digest: "hourly" });
    t.ok((settings.rows[0] as { urgent: string[] }).urgent.includes("listing.flagged"));
  });

  await step("an event is sent, and listed", async (t) => {
    await world.chain.mint(agent.walletAddress, 9_000_000n);
    const pay = (amount: string, recipient = testAccount(70).address) =>
      asAgent(world, agent.apiKey, "spend", { recipient, amount });
    t.equal((await pay("2.5")).status, 200);
    t.equal((await pay("1", testAccount(71).address)).status, 403);
    const requested = await asAgent(world, agent.apiKey, "spend", {
      recipient: testAccount(71).address,
      amount: "1.25",
      requestApproval: true,
      reason: "See https://evil.example <b>now</b>",
    });
    t.equal(requested.status, 202);
    await page.getByRole("link", { name: "History" }).click();
    await page.getByText("research-agent paid 2.50 USDC").waitFor();
    await page.getByText("research-agent requests approval for 1.25 USDC").waitFor();
    await until(() => deliveries.some(({ body }) => body.includes('"payment.settled"')), 20_000);
    await picture(page, "happened", true);
    await page.getByLabel("Kind").selectOption({ label: "Payment refused" });
    await page.getByText("A payment of 1.00 USDC by research-agent was refused").first().waitFor();
    t.equal(await page.getByText("research-agent paid").count(), 0);
    await page.getByLabel("Kind").selectOption({ label: "Every kind" });
    await page.getByLabel("Agent", { exact: true }).selectOption({ label: "research-agent" });
    await page.getByText("research-agent paid 2.50 USDC").waitFor();
    t.equal(await page.getByText("New sign-in to your account").count(), 0, "of no agent");
    await page.getByLabel("Unread only").check();
    await page.getByText("research-agent requests approval for 1.25 USDC").waitFor();
    await page.getByText("research-agent paid").waitFor({ state: "detached" });
    await picture(page, "filtered", true);
    await page.getByLabel("Unread only").uncheck();
    await page.getByLabel("Agent", { exact: true }).selectOption({ label: "Every agent" });
  });

  await step("an event appears in the bell without a reload", async () => {
    await page.getByRole("button", { name: "Mark all as read" }).click();
    await page.getByRole("link", { name: "Notifications", exact: true }).waitFor();
    // The app looks again every half minute; the event stream is faster.
    await database.pool.query(
      "SELECT purser_notify(owner_id, 'listing.flagged', NULL, 'lst_x', '{}') FROM agents WHERE id = $1",
      [agent.id],
    );
    const bell = page.getByRole("link", { name: /^Notifications/ });
    await page.getByText("One of your listings was flagged (unread)").waitFor({ timeout: 20_000 });
    // Others may have come meanwhile.
    await bell.filter({ hasText: /[1-9][0-9]* unread/ }).waitFor();
  });

  await step("a way out that fails is named on the page and marked on the bell", async () => {
    await database.pool.query(
      "UPDATE webhooks SET failures = 3, failing_since = now() - interval '2 hours'",
    );
    await page.reload();
    await page.getByText(/^Webhook .* has failed since/).waitFor();
    await page.getByRole("link", { name: /Some messages could not be sent/ }).waitFor();
    await picture(page, "failing", true);
    await database.pool.query("UPDATE webhooks SET failures = 0, failing_since = NULL");
    await page.reload();
    await page.getByText("One of your listings was flagged").waitFor();
    await page.getByText(/has failed since/).waitFor({ state: "detached" });
  });

  let pause = "";
  await step("a mail has a link for pausing, and opening it pauses nothing", async (t) => {
    await sendMails();
    await until(() => box.mails.length >= 2, 30_000);
    const mail = box.mails.at(-1);
    pause = /(http\S+\?do=pause)/.exec(mail?.text ?? "")?.[1] ?? "";
    t.equal(pause, `${baseUrl}/agents/${agent.id}?do=pause`);
    if (PICTURES !== undefined) {
      const reader = await page.context().newPage();
      await reader.setViewportSize({ width: 640, height: 800 });
      await reader.setContent(String(mail?.html));
      await reader.screenshot({ path: join(PICTURES, "mail.png"), fullPage: true });
      await reader.close();
    }
    // On another device, which is not signed in.
    const other = await world.open(t, pause.slice(baseUrl.length), { reducedMotion: "reduce" });
    await other.page.getByRole("heading", { name: "Sign in to Purser" }).waitFor();
    t.match(await agentRow(), { status: "active" });
    await signInWithDemoWallet(other.page);
    await other.page.getByRole("button", { name: "Pause research-agent" }).waitFor();
    t.match(await agentRow(), { status: "active" }, "nor after signing in there");

    await page.goto(pause);
    const press = page.getByRole("button", { name: "Pause research-agent" });
    await press.waitFor();
    await picture(page, "pause-link", true);
    t.match(await agentRow(), { status: "active" });
    await press.click();
    await page.getByText("Paused: this agent cannot pay.").waitFor();
    t.match(await agentRow(), { status: "paused" });
    t.notMatch(page.url(), "do=");
  });

  await step("the links that lower a limit and end sessions require a press too", async (t) => {
    await page.goto(`${baseUrl}/agents/${agent.id}?do=lower`);
    await page.getByRole("button", { name: "Lower it to 4.00 USDC" }).waitFor();
    t.match(await agentRow(), { limit: "8000000" });
    await picture(page, "lower-link", true);
    await page.getByRole("button", { name: "Lower it to 4.00 USDC" }).click();
    await until(async () => ((await agentRow()) as { limit: string }).limit === "4000000");
    await page.goto(`${baseUrl}/settings?do=end-sessions`);
    const press = page.getByRole("button", { name: /^End \d+ session/ });
    await press.waitFor();
    const alive = async (): Promise<number> => {
      const { rows } = await database.pool.query("SELECT 1 FROM sessions WHERE revoked_at IS NULL");
      return rows.length;
    };
    t.ok((await alive()) >= 3);
    await picture(page, "end-sessions-link", true);
    await press.click();
    await until(async () => (await alive()) === 1);
  });

  await step("unsubscribing by a mail's link requires a press too", async (t) => {
    const raw = box.raw.at(-1) ?? "";
    const [, url = ""] = /^List-Unsubscribe: <([^>]+)>/m.exec(raw) ?? [];
    // The session is known only later, and what the user pressed before must stay pressed.
    let allowSession = (): void => undefined;
    const sessionAllowed = new Promise<void>((resolve) => (allowSession = resolve));
    await page.route("**/api/auth/session", async (route) => {
      await sessionAllowed;
      await route.continue();
    });
    await page.goto(url);
    await page.getByRole("button", { name: "Unsubscribe" }).waitFor();
    await picture(page, "unsubscribe", true);
    const stopped = async (): Promise<unknown> =>
      (await database.pool.query("SELECT stopped_reason FROM email_addresses")).rows;
    t.same(await stopped(), [{ stopped_reason: null }]);
    await page.getByRole("button", { name: "Unsubscribe" }).click();
    await page.getByText("Purser sends nothing more to this address").waitFor();
    t.same(await stopped(), [{ stopped_reason: "unsubscribed" }]);
    allowSession();
    await page.getByRole("button", { name: /^Account/ }).waitFor();
    t.ok(await page.getByText("Purser sends nothing more to this address").isVisible());
    await page.unroute("**/api/auth/session");
    await page.goto(`${baseUrl}/notifications/email`);
    await page.getByText("Purser stopped sending because of an unsubscribe link").waitFor();
    await picture(page, "email-unsubscribed", true);
  });
  t.same(faults, [], "no policy violation, no uncaught error");
});
