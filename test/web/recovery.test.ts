// Goal: an owner adds a recovery wallet with one press; it signs in for the owner, pauses, restricts and
// withdraws to the owner, and the app explains what it may not do. Orders that differ from the request are not signed.
import type { Page } from "playwright-core";
import t from "tap";
import { openPage } from "../helpers/browser.ts";
import { testAccount } from "../helpers/chain.ts";
import { asOwner, createAgent, signIn } from "../helpers/owner.ts";
import { usdcOf } from "../spending/ledger.helper.ts";
import { injectWallet } from "./injected-wallet.ts";
import { picture } from "./pictures.ts";
import { asAgent, DEMO_OWNER, signInAsSecond, signInWithDemoWallet, webWorld } from "./world.ts";

const DIFFERS = "The order from the service differs from your request";

/** The service responds with an order that has another value, also in its typed data. */
async function changeOrder(page: Page, url: string, change: object): Promise<void> {
  await page.route(url, async (route) => {
    const response = await route.fetch();
    const body = (await response.json()) as { order: object; typedData: { message: object } };
    Object.assign(body.order, change);
    Object.assign(body.typedData.message, change);
    await route.fulfill({ response, json: body });
  });
}

t.test("the recovery wallet", async (t) => {
  const world = await webWorld(t);
  const second = testAccount(57);
  const agent = await createAgent(world, await signIn(world, DEMO_OWNER), {
    name: "research-agent",
    dailyLimit: "5",
  });
  await world.chain.mint(agent.walletAddress, 2_000_000n);
  const { page, faults } = await openPage(t, world.browser, { reducedMotion: "reduce" });
  const spare = await injectWallet(page, second, { chainId: world.chain.chainId });

  await t.test("is added in the settings, with two wallets of one browser", async (t) => {
    await page.goto(`${world.baseUrl}/settings`);
    await signInWithDemoWallet(page);
    await page.getByLabel("Address of your recovery wallet").fill(second.address);
    await page.getByRole("button", { name: "Add recovery wallet" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("the recovery wallet.").waitFor();
    await dialog.getByRole("region", { name: "What your wallet shows" }).waitFor();
    await dialog.getByRole("button", { name: "Other wallet" }).click();
    await dialog.getByRole("button", { name: /Test Wallet/ }).click();
    await dialog.getByRole("button", { name: "Sign", exact: true }).click();
    await dialog.getByText("the owner's wallet.").waitFor();
    t.equal(await page.getByText("Make the recovery wallet the owner").count(), 0, "not named yet");
    await dialog.getByRole("button", { name: "Other wallet" }).click();
    await dialog.getByRole("button", { name: /Demo wallet/ }).click();
    await dialog.getByRole("button", { name: "Sign", exact: true }).click();
    await page.getByText("Make the recovery wallet the owner").waitFor();
    t.equal(spare.windows(), 1, "it signed once, before the owner");
    await page.getByText(second.address).waitFor();
    const shots = process.env["SCREENSHOTS"];
    if (shots !== undefined) await page.screenshot({ path: `${shots}/second.png`, fullPage: true });
  });

  await t.test("signs in for its owner, and does what it may", async (t) => {
    const { page: own, faults } = await openPage(t, world.browser, { reducedMotion: "reduce" });
    const wallet = await injectWallet(own, second, { chainId: world.chain.chainId });
    await t.test("not for another owner", async () => {
      await own.goto(`${world.baseUrl}/agents`);
      await own.getByRole("button", { name: "Use a recovery wallet" }).click();
      await own.getByRole("button", { name: /Test Wallet/ }).click();
      await own.getByLabel("The owner's address").fill("0x12");
      await own.getByRole("button", { name: "Sign in", exact: true }).click();
      await own.getByText("The owner's address: An address is 0x").waitFor();
      t.notOk(wallet.requests.some(({ method }) => method === "personal_sign"));
      await own.getByLabel("The owner's address").fill(testAccount(58).address);
      await own.getByRole("button", { name: "Try again" }).click();
      await own.getByText("this account is not the recovery wallet of").waitFor();
    });
    await signInAsSecond(own, `${world.baseUrl}/agents/${agent.id}/rules`, DEMO_OWNER.address);
    t.match(
      await own.getByRole("complementary", { name: "Recovery wallet" }).innerText(),
      /pause agents, tighten rules and withdraw to\s+0x/,
    );

    await own.setViewportSize({ width: 360, height: 740 });
    await own.getByLabel("Daily limit").fill("50");
    await own.getByText("so the owner must sign them").waitFor();
    await picture(own, "recovery-phone-rules");
    await own.setViewportSize({ width: 1280, height: 720 });
    for (const hidden of ["Sign and save changes", "Paste many"])
      t.equal(await own.getByRole("button", { name: hidden }).count(), 0, hidden);
    await own.getByLabel("Daily limit").fill("4");
    await own.getByRole("button", { name: "Save changes" }).click();
    await own.getByText("The rules are saved and apply now.").waitFor();
    await own.getByRole("button", { name: "Pause", exact: true }).click();
    await own.getByText("Paused: this agent cannot pay.").waitFor();
    t.equal(await own.getByRole("button", { name: "Resume" }).count(), 0);
    t.equal(wallet.windows(), 0, "nothing so far needed a signature");
    await own.getByRole("link", { name: "Keys" }).click();
    await own
      .getByRole("button", { name: /^Revoke/ })
      .first()
      .waitFor();
    for (const hidden of [/^New key/, /^Rotate/])
      t.equal(await own.getByRole("button", { name: hidden }).count(), 0, String(hidden));

    await own.getByRole("link", { name: "Withdraw" }).click();
    t.equal(await own.getByRole("radio", { name: "Another address" }).count(), 0);
    await own.getByRole("button", { name: "Max" }).click();
    await changeOrder(own, "**/withdrawals/prepare", { to: second.address });
    await own.getByRole("button", { name: "Review withdrawal" }).click();
    await own.getByText(DIFFERS).waitFor();
    await own.unroute("**/withdrawals/prepare");
    await own.getByRole("button", { name: "Review withdrawal" }).click();
    await own.getByText("goes from research-agent to the owner's wallet.").waitFor();
    await own.getByRole("button", { name: "Sign and withdraw" }).click();
    await own.getByText("Confirmed on chain.").waitFor();
    t.equal(await usdcOf(world, DEMO_OWNER.address), 2_000_000n);
    t.equal(wallet.windows(), 1, "one window, for the withdrawal");

    const refused = { recipient: testAccount(71).address, amount: "1" };
    t.equal((await asAgent(world, agent.apiKey, "spend", refused)).status, 403);
    const marks: string[] = [];
    own.on("request", (request) => {
      if (request.url().endsWith("/api/notifications/read")) marks.push(request.url());
    });
    await own.goto(`${world.baseUrl}/notifications`);
    const bell = own.getByRole("link", { name: /^Notifications/ });
    await bell.filter({ hasText: "unread" }).waitFor();
    const blocked = own.getByRole("link", { name: /A payment of 1.00 USDC by research-agent/ });
    await blocked.waitFor();
    t.equal(await own.getByRole("button", { name: "Mark all as read" }).count(), 0);
    await blocked.click();
    await own.getByRole("dialog").getByText("Decision").waitFor();
    t.same(marks, [], "only the owner's wallet may");

    await own.goto(`${world.baseUrl}/agents/new`);
    await own.getByText("You are signed in as the recovery wallet.").waitFor();
    await own.getByText("Sign in with the owner’s wallet to do this.").waitFor();
    t.equal(await own.getByRole("button", { name: "Create agent" }).count(), 0);
    t.same(faults, []);
  });

  await t.test("stops everything on any screen; the owner's wallet resumes", async (t) => {
    const { page: own, faults } = await openPage(t, world.browser, { reducedMotion: "reduce" });
    await injectWallet(own, second, { chainId: world.chain.chainId });
    await signInAsSecond(own, `${world.baseUrl}/agents`, DEMO_OWNER.address);
    await own.goto(`${world.baseUrl}/marketplace`);
    const statusOf = async () =>
      (await world.database.pool.query("SELECT status, paused_by FROM agents")).rows;
    await asOwner(world.app, await signIn(world, DEMO_OWNER), {
      method: "PATCH",
      url: `/api/agents/${agent.id}`,
      body: { status: "active" },
    });
    await own.getByRole("button", { name: "Stop everything" }).click();
    const dialog = own.getByRole("dialog");
    await dialog.getByText("To resume, you sign").waitFor();
    await picture(own, "stop-confirm");
    await dialog.getByRole("button", { name: "Stop everything" }).click();
    const banner = own.getByRole("region", { name: "Everything is stopped" });
    await banner.getByText("1 agent is paused").waitFor();
    t.equal(await banner.getByRole("button", { name: "Resume" }).count(), 0, "not by this wallet");
    t.same(await statusOf(), [{ status: "paused", paused_by: "stop" }]);
    t.same(faults, []);

    const shown = page.getByRole("region", { name: "Everything is stopped" });
    await shown.getByText("The account 0x").waitFor();
    t.equal(await page.getByRole("button", { name: "Stop everything" }).count(), 0);
    await picture(page, "stopped", true);
    await changeOrder(page, "**/owner/resume", { owner: second.address });
    await shown.getByRole("button", { name: "Resume" }).click();
    await page.getByText(DIFFERS).first().waitFor();
    await page.unroute("**/owner/resume");
    await shown.getByRole("button", { name: "Resume" }).click();
    const sign = page.getByRole("dialog").getByRole("button", { name: "Sign", exact: true });
    await sign.waitFor();
    await picture(page, "stop-resume");
    await sign.click();
    await shown.waitFor({ state: "detached" });
    t.same(await statusOf(), [{ status: "active", paused_by: null }]);
  });

  await t.test("is removed, and its session ends", async (t) => {
    await page.getByRole("button", { name: "Revoke", exact: true }).click();
    await page.getByLabel("Address of your recovery wallet").waitFor();
    t.equal(await page.getByText(second.address).count(), 0);
    const { rows } = await world.database.pool.query(
      "SELECT action FROM audit_log WHERE action = 'second.named'",
    );
    t.equal(rows.length, 2);
  });

  await t.test("becomes the owner, when both wallets sign on one screen", async (t) => {
    const { page: both, faults } = await openPage(t, world.browser, { reducedMotion: "reduce" });
    const wallet = await injectWallet(both, DEMO_OWNER, { chainId: world.chain.chainId });
    await both.goto(`${world.baseUrl}/settings`);
    await both.getByRole("button", { name: /Test Wallet/ }).click();
    await both.getByRole("button", { name: "Sign in", exact: true }).click();
    await both.getByLabel("Address of your recovery wallet").fill(second.address);
    await changeOrder(both, "**/recovery/second", { second: testAccount(58).address });
    await both.getByRole("button", { name: "Add recovery wallet" }).click();
    await both.getByText(DIFFERS).waitFor();
    await both.unroute("**/recovery/second");
    t.equal(wallet.windows(), 0, "the wallet saw no order that was not requested");
    const sign = both.getByRole("dialog").getByRole("button", { name: "Sign", exact: true });
    await both.getByRole("button", { name: "Add recovery wallet" }).click();
    await both.getByText("the recovery wallet.", { exact: false }).last().waitFor();
    await wallet.switchAccount(both, second);
    await sign.click();
    await both.getByRole("dialog").getByText("the owner's wallet.").waitFor();
    await wallet.switchAccount(both, DEMO_OWNER);
    await sign.click();
    await both.getByText("Make the recovery wallet the owner").waitFor();
    t.equal(wallet.windows(), 2, "one window in each wallet to add it");

    const move = both.getByRole("button", { name: "Sign with both wallets and move" });
    await changeOrder(both, "**/recovery/move", { to: testAccount(58).address });
    await move.click();
    await both.getByText(DIFFERS).waitFor();
    await both.unroute("**/recovery/move");
    t.equal(wallet.windows(), 2, "the wallet saw only the order that was requested");
    await move.click();
    await both.getByRole("dialog").getByText("the recovery wallet.").waitFor();
    await wallet.switchAccount(both, second);
    await sign.click();
    await both.getByText("The recovery wallet is now the owner").waitFor();
    if (process.env["SCREENSHOTS"] !== undefined)
      await both.screenshot({ path: `${process.env["SCREENSHOTS"]}/moved.png` });
    t.equal(wallet.windows(), 4, "one window in each wallet to add it, and to move");
    const { rows } = await world.database.pool.query(
      "SELECT o.address FROM agents a JOIN owners o ON o.id = a.owner_id",
    );
    t.same(rows, [{ address: second.address.toLowerCase() }]);
    t.same(faults, []);
  });
  t.same(faults, []);
});
