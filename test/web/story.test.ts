// Goal: an owner can do everything from the first visit to the archived agent in the browser, against the real service and chain.
import { readFile } from "node:fs/promises";
import type { Locator } from "playwright-core";
import t, { type Test } from "tap";
import { parseAbi, type Address } from "viem";
import { AGENT_FIELDS } from "../../packages/rules/src/fields.ts";
import { testAccount } from "../helpers/chain.ts";
import { downloadBy, openPage } from "../helpers/browser.ts";
import { nameRecoveryWallet, signIn } from "../helpers/owner.ts";
import { firstRun } from "./first-run.ts";
import { injectWallet } from "./injected-wallet.ts";
import { picture } from "./pictures.ts";
import { scriptedSeller } from "../x402-client/scripted-seller.ts";
import { formatUsdc } from "../../web/src/lib/money.ts";
import {
  asAgent,
  confirmWithDemoWallet,
  DEMO_OWNER,
  inWallet,
  signInAsSecond,
  webWorld,
} from "./world.ts";

const PAYEE = testAccount(50);
const STRANGER = testAccount(51);
const BALANCE_OF = parseAbi(["function balanceOf(address) view returns (uint256)"]);

t.test("the whole story", async (t) => {
  const world = await webWorld(t);
  const { chain } = world;
  const startedMs = performance.now();
  const { page, faults } = await world.open(t, "/", { reducedMotion: "reduce" });
  const balanceOf = (address: Address) =>
    chain.publicClient.readContract({
      address: chain.usdc,
      abi: BALANCE_OF,
      functionName: "balanceOf",
      args: [address],
    });
  let apiKey = "";
  let archived: Address = "0x";
  const canPay = async (amount: string, why: string) => {
    const card = page.getByRole("region", { name: "Limit", exact: true });
    await card.filter({ hasText: `Can pay now${amount} USDC${why}` }).waitFor();
  };
  // Each step depends on the one before; after a failure the others would only time out.
  const step = async (name: string, work: (t: Test) => Promise<void>): Promise<void> => {
    if (t.passing()) await t.test(name, work);
  };

  await step("the landing page shows live numbers and leads into the app", async () => {
    await page.getByText("Arc Testnet, block").waitFor();
    await page.getByText(/curl -i http.*\/api\/arc-stats/).waitFor();
    await page.getByRole("link", { name: "Try it now" }).click();
    await page.getByRole("heading", { name: "Sign in to Purser" }).waitFor();
  });

  await step("signing in shows the message first, and leads to an empty list", async (t) => {
    await page.getByRole("button", { name: /Demo wallet/ }).click();
    await page.getByText("What you will sign").click();
    const message = await page.getByRole("region", { name: "Sign-in message" }).innerText();
    t.match(message, "wants you to sign in with your Ethereum account");
    t.match(message, DEMO_OWNER.address);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByText("No agents yet").waitFor();
  });

  await step("a template fills the form at once, and its payees come later", async (t) => {
    let release = (): void => {};
    const released = new Promise<void>((resolve) => (release = resolve));
    await page.route("**/api/listings/suggested", async (route) => {
      await released;
      await route.continue();
    });
    await page.getByRole("link", { name: /^Research agent/ }).click();
    await page.getByText("Its limit is 2.00 USDC in any 24 hours.").waitFor();
    t.equal(await page.getByLabel("Name").inputValue(), "Research agent");
    await page.getByRole("button", { name: "Loading its payees…" }).click({ force: true });
    t.equal(await page.getByText("Creating…").count(), 0, "nothing is created without them");
    release();
    await page.getByRole("button", { name: "Create agent" }).waitFor();
    const suggested = page.getByRole("group", { name: "Suggested payees" });
    t.equal(await suggested.getByRole("checkbox").first().isChecked(), true);
    await page.getByRole("button", { name: /^Start empty/ }).click();
    await page.getByRole("link", { name: "Agents" }).first().click();
    await page.getByText("No agents yet").waitFor();
  });

  await step("creating an agent describes its rules and shows the key once", async (t) => {
    await page.getByRole("link", { name: "New agent" }).click();
    await page.getByRole("button", { name: "Create agent" }).click();
    await page.getByText("Give the agent a name.").waitFor();
    await page.getByLabel("Name").fill("research-agent");
    await page.getByLabel("Daily limit").fill("5");
    await page.getByLabel("Limit per payment").fill("4");
    // One letter in the wrong case, so the checksum is wrong.
    const wrong = PAYEE.address.replace(/[a-f](?=[^a-f]*$)/, (letter) => letter.toUpperCase());
    await page.getByLabel("Website or address").fill(wrong);
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await page.getByText("The checksum does not match").waitFor();
    await page.getByLabel("Website or address").fill(PAYEE.address);
    await page.getByLabel("Label", { exact: true }).fill("Weather API");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await page.getByRole("button", { name: "Paste many" }).click();
    await page
      .getByLabel("One address per line")
      .fill(`${PAYEE.address}\n# a note\nNews, ${testAccount(52).address.toLowerCase()}`);
    await page.getByRole("button", { name: "Check and add" }).click();
    await page
      .getByText("can spend at most 5.00 USDC in any 24 hours, only to 2 addresses.")
      .waitFor();
    await page.getByRole("button", { name: "Create agent" }).click();
    await page.getByRole("heading", { name: "research-agent is ready" }).waitFor();
    t.ok(performance.now() - startedMs < 120_000, "creating the first agent does not take minutes");
    t.match(await page.getByTestId("api-key").innerText(), /•{10}/, "masked at first");
    t.equal(
      await page.getByRole("button", { name: "Go to the agent" }).isDisabled(),
      true,
      "the button is disabled until the key is saved",
    );
    await page.getByRole("button", { name: "Show", exact: true }).click();
    apiKey = await page.getByTestId("api-key").innerText();
    t.match(apiKey, /^purser_/);
    const download = await downloadBy(page, page.getByRole("button", { name: "Download .env" }));
    t.match(await readFile(await download.path(), "utf8"), `AGENT_API_KEY=${apiKey}`);
    // Leaving without saving the key requires confirmation.
    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByRole("button", { name: "Stay" }).click();
    await page.getByLabel("I saved the key").check();
    await page.getByRole("button", { name: "Go to the agent" }).click();
    await page.getByRole("heading", { name: "research-agent", exact: true }).waitFor();
    const kept = await page.evaluate(
      () =>
        JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage)]) +
        location.href,
    );
    t.notMatch(kept, apiKey.slice(7), "the key is not in storage or in the URL");
    await canPay("0.00", "capped by the balance");
  });

  await step("the faucet funds it, and so does the owner's own wallet", async () => {
    await page.getByRole("button", { name: "Fund", exact: true }).click();
    await page.getByRole("button", { name: /^Get / }).click();
    await page.getByText("arrived.").waitFor();
    await chain.mint(DEMO_OWNER.address, 25_000_000n);
    await page.getByRole("radio", { name: "Your wallet" }).check();
    await page.getByLabel("Amount").fill("20.5");
    await page.getByRole("button", { name: "Sign and send" }).click();
    await page.getByText("Settled.").waitFor();
    await page.keyboard.press("Escape");
    await page.getByText("120.50 USDC").first().waitFor();
    await canPay("4.00", "capped by the limit per payment");
  });

  await step("the agent's spend appears live, without a reload", async (t) => {
    const marker = await page.evaluate(() => ((globalThis as { marker?: number }).marker = 1));
    const spent = await asAgent(world, apiKey, "spend", {
      recipient: PAYEE.address,
      amount: "3",
      memo: "Forecast",
    });
    t.equal(spent.status, 200, JSON.stringify(spent.body));
    const row = page
      .getByRole("listitem")
      .filter({ hasText: "Weather API" })
      .filter({ hasText: "Settled" });
    await row.waitFor();
    await page.getByText("3.00 of 5.00 USDC in the last 24 h").waitFor();
    await canPay("2.00", "capped by the daily limit");
    const minted = page.getByRole("listitem").filter({ hasText: "+100.00" });
    t.match(await minted.innerText(), "Newly minted", "the faucet's transfer is shown as minted");
    t.equal(await page.evaluate(() => (globalThis as { marker?: number }).marker), marker);
  });

  await step("a payee that is not allowed is blocked, and allowed with one press", async (t) => {
    const blocked = await asAgent(world, apiKey, "spend", {
      recipient: STRANGER.address,
      amount: "0.5",
    });
    t.match(blocked, { status: 403, body: { code: "recipient_not_allowed" } });
    await page
      .getByRole("listitem")
      .filter({ hasText: "recipient not allowed" })
      .getByRole("button")
      .click();
    const drawer = page.getByRole("dialog").first();
    await drawer.getByText("The payee is not on the allowlist.").first().waitFor();
    await drawer.getByText(String(blocked.body.requestId)).waitFor();
    await drawer.getByRole("button", { name: "Allow this payee" }).click();
    await confirmWithDemoWallet(page, "Payee added", STRANGER.address);
    await drawer.getByText("This payee is now allowed.").waitFor();
    const again = await asAgent(world, apiKey, "spend", {
      recipient: STRANGER.address,
      amount: "0.5",
    });
    t.equal(again.status, 200, JSON.stringify(again.body));
    await page.keyboard.press("Escape");
  });

  await step(
    "a payment over the daily limit is blocked, and the limit raised from it",
    async (t) => {
      const blocked = await asAgent(world, apiKey, "spend", {
        recipient: PAYEE.address,
        amount: "2",
      });
      t.match(blocked, { status: 403, body: { code: "daily_limit_exceeded" } });
      await page
        .getByRole("listitem")
        .filter({ hasText: "daily limit exceeded" })
        .getByRole("button")
        .click();
      const drawer = page.getByRole("dialog").first();
      await drawer
        .getByText(
          "The payment of 2.00 USDC exceeded the 1.50 USDC left of the daily limit of 5.00 USDC.",
        )
        .waitFor();
      t.equal(await drawer.getByLabel("New daily limit").inputValue(), "5.5");
      await drawer.getByRole("button", { name: "Raise limit" }).click();
      await confirmWithDemoWallet(page, "5.00 USDC", "5.50 USDC");
      await drawer.getByText("The amount now fits the limit.").waitFor();
      await page.keyboard.press("Escape");
      t.equal(
        (await asAgent(world, apiKey, "spend", { recipient: PAYEE.address, amount: "2" })).status,
        200,
      );
    },
  );

  await step("rules are edited with a diff before they are saved", async () => {
    await page.getByRole("link", { name: "Rules" }).click();
    await page.getByText("More limits").click();
    for (const { label } of AGENT_FIELDS) await page.getByLabel(label).first().waitFor();
    await page.getByLabel("Daily limit").fill("50");
    const changes = page.getByRole("list", { name: "Changes" });
    await changes.getByText("50.00 USDC").waitFor();
    // By keyboard, because the toasts of earlier steps cover the button for some seconds.
    await page.getByRole("button", { name: "Save changes" }).press("Enter");
    await page.getByText("The rules are saved and apply now.").waitFor();
    await page.getByText("of 50.00 USDC in the last 24 h").waitFor();
  });

  await step("declining in the wallet changes nothing; restricting needs no wallet", async (t) => {
    const base = new URL(page.url()).pathname;
    const opened = await openPage(t, world.browser, { reducedMotion: "reduce" });
    const wallet = await injectWallet(opened.page, DEMO_OWNER, { chainId: chain.chainId });
    const other = opened.page;
    await other.goto(world.baseUrl + base);
    await other.getByRole("button", { name: /Test Wallet/ }).click();
    await other.getByRole("button", { name: "Sign in", exact: true }).click();
    await other.getByLabel("Daily limit").fill("500");
    await other.getByText("These rules allow more than before").waitFor();
    wallet.rejectNext("eth_signTypedData_v4");
    await other.getByRole("button", { name: "Sign and save changes" }).click();
    const dialog = other.getByRole("dialog");
    await dialog.getByText("You declined in your wallet. Nothing was signed").waitFor();
    await dialog.getByText("50.00 USDC", { exact: true }).waitFor();
    await inWallet(dialog, "500.00 USDC").waitFor();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await other.getByText("You did not sign. Nothing was changed.").waitFor();
    t.equal(await other.getByLabel("Daily limit").inputValue(), "500", "the input is kept");
    await page.getByText("of 50.00 USDC in the last 24 h").waitFor();
    await other.getByLabel("Daily limit").fill("40");
    await other.getByText("Tighter limits apply immediately, without your wallet.").waitFor();
    await other.getByRole("button", { name: "Save changes" }).click();
    await other.getByText("The rules are saved and apply now.").waitFor();
    await page.getByText("of 40.00 USDC in the last 24 h").waitFor();
    t.equal(wallet.windows(), 1, "one wallet window, for the change that loosens a rule");
    t.same(opened.faults, []);
  });

  await step("a paid API is fetched once its seller is allowed; its request is kept", async (t) => {
    const demo = { url: `${world.baseUrl}/api/arc-stats` };
    t.match(await asAgent(world, apiKey, "x402-fetch", demo), {
      status: 403,
      body: { code: "recipient_not_allowed" },
    });
    await page.getByRole("link", { name: "Activity" }).click();
    const requests = page.getByRole("listitem").filter({ hasText: "/api/arc-stats" });
    await requests.filter({ hasText: "Blocked" }).getByRole("button").click();
    const drawer = page.getByRole("dialog").first();
    await drawer.getByRole("button", { name: "Allow this payee" }).click();
    await confirmWithDemoWallet(page, "Payee added");
    await drawer.getByText("This payee is now allowed.").waitFor();
    await page.keyboard.press("Escape");
    const fetched = await asAgent(world, apiKey, "x402-fetch", demo);
    t.match(fetched, { status: 200, body: { paid: true, amountPaid: "0.001" } });
    await requests.filter({ hasText: "Settled" }).getByRole("button").click();
    await drawer.getByText("The seller's 402 response").waitFor();
    await drawer.getByText(String(fetched.body.txHash).slice(0, 10)).waitFor();
  });

  await step("activity is filtered, survives a refresh, and exports CSV", async (t) => {
    // The drawer closes and the filter changes at the same moment; neither change of the URL may overwrite
    // the other.
    await page.getByLabel("Status").evaluate((select: HTMLSelectElement) => {
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
      select.value = "blocked";
      select.dispatchEvent(new Event("change", { bubbles: true }));
    });
    await page.getByRole("dialog").waitFor({ state: "hidden" });
    await page.waitForURL((url) => url.search === "?status=blocked");
    await page.getByRole("listitem").filter({ hasText: "daily limit exceeded" }).waitFor();
    t.equal(await page.getByRole("listitem").filter({ hasText: "Settled" }).count(), 0);
    await page.reload();
    await page.getByRole("listitem").filter({ hasText: "daily limit exceeded" }).waitFor();
    const download = await downloadBy(page, page.getByRole("button", { name: "CSV" }));
    const csv = await readFile(await download.path(), "utf8");
    t.equal(csv.trim().split("\n").length, 4, "a heading and three blocked payments");
    t.match(csv, "daily_limit_exceeded");
  });

  await step("a refused payment channel is allowed with one signature", async (t) => {
    const [, , agentId] = new URL(page.url()).pathname.split("/");
    const payeeLimits = page.getByRole("group", { name: "Limits of Weather API" });
    // The message of an earlier save may still be visible, so the response counts.
    const save = async (): Promise<void> => {
      const saved = page.waitForResponse(
        (response) => response.request().method() === "PATCH" && response.ok(),
      );
      const button = page.getByRole("button", { name: "Save changes", exact: true });
      await button.press("Enter");
      await saved;
      // A page that is left before would keep what was typed.
      await button.waitFor({ state: "hidden" });
    };
    await page.getByRole("link", { name: "Rules" }).click();
    await page.getByRole("button", { name: "Limits of Weather API" }).click();
    await payeeLimits.getByLabel("Held in channels").fill("0");
    await save();
    // As a payment through a channel of a week's delay leaves it.
    await world.database.pool.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, url, denial_code, policy)
       VALUES ($1, 'pay_channel', 'x402', 'blocked', $2, $3, $4, 1000, 'https://news.example/today', 'channel_not_allowed', $5)`,
      [
        agentId,
        chain.chainId,
        chain.usdc.toLowerCase(),
        PAYEE.address.toLowerCase(),
        {
          status: "active",
          expired: false,
          refusal: null,
          allowed: true,
          maxAmount: null,
          perPaymentLimit: null,
          requested: "1000",
          limit: "40000000",
          spent: "0",
          reserved: "0",
          balance: "1000000",
          outstanding: "0",
          channelDeposit: "20000",
          channelHeld: "0",
          channelLimit: "0",
          channelDelay: "604800",
          channelLongestDelay: "86400",
          payeeChannelHeld: "0",
          payeeChannelLimit: "0",
        },
      ],
    );
    await page.goto(`${world.baseUrl}/agents/${agentId}?payment=pay_channel`);
    const drawer = page.getByRole("dialog");
    await drawer
      .getByText("You have not allowed this agent to pay through payment channels.")
      .waitFor();
    const [inAll, delay, toPayee] = [
      "Held in payment channels",
      "Withdraw delay of channels",
      "Held in channels",
    ].map((label) => drawer.getByLabel(label, { exact: true })) as [Locator, Locator, Locator];
    t.equal(await inAll.inputValue(), "0.02");
    t.equal(await delay.inputValue(), "604800");
    t.equal(await toPayee.inputValue(), "0.02");
    await picture(page, "channel-refused");
    const allow = drawer.getByRole("button", { name: "Allow channels" });
    await inAll.fill("0.01");
    await allow.click();
    await drawer.getByText("This payment needs at least 0.02 USDC.").waitFor();
    await inAll.fill("1.5");
    await allow.click();
    await confirmWithDemoWallet(page, "1.50 USDC", "7 days");
    await drawer.getByText("The payment channel is now allowed.").waitFor();
    await page.keyboard.press("Escape");
    await page.getByText("At most 1.50 USDC lies unspent in payment channels").waitFor();

    await page.getByRole("link", { name: "Rules" }).click();
    const [held, longest] = [
      page.getByLabel("Held in payment channels"),
      page.getByLabel("Withdraw delay of channels"),
    ];
    await held.waitFor();
    t.equal(await held.inputValue(), "1.5", "the limits are shown where one is set");
    t.equal(await longest.locator("option:checked").innerText(), "7 days");
    await page.getByRole("button", { name: "Limits of Weather API" }).click();
    t.equal(await payeeLimits.getByLabel("Held in channels").inputValue(), "0.02");
    await picture(page, "channel-rules", true);
    await longest.selectOption("1 hour");
    await held.fill("");
    await page.getByText("Tighter limits apply immediately, without your wallet.").waitFor();
    await save();
    t.equal(await held.inputValue(), "");
    const message = page.getByText("The rules are saved and apply now.").first();
    await message.waitFor();
    await message.waitFor({ state: "hidden" });
  });

  await step("the agent requests approval for one payment, and may make it once", async (t) => {
    const wish = {
      recipient: testAccount(53).address,
      amount: "1.25",
      requestApproval: true,
      reason: "Only sold there.",
    };
    t.equal((await asAgent(world, apiKey, "spend", wish)).status, 202);
    const head = page.getByRole("link", { name: /^Approvals/ });
    await head.getByText("1 waiting for you").waitFor();
    await head.click();
    const row = page.getByRole("listitem").filter({ hasText: "1.25" });
    await row.getByRole("button", { name: "research-agent" }).click();
    const drawer = page.getByRole("dialog");
    await drawer.getByText("Only sold there.").waitFor();
    await drawer.getByRole("button", { name: "Allow once" }).click();
    await drawer.getByText("Allowed", { exact: true }).waitFor();
    const paid = await asAgent(world, apiKey, "spend", wish);
    t.equal(paid.status, 200, JSON.stringify(paid.body));
    await drawer.getByText("Used", { exact: true }).waitFor();
    t.equal(await balanceOf(testAccount(53).address), 1_250_000n, "once");
    await page.keyboard.press("Escape");
  });

  await step(
    "a website is allowed by its URL; when its payee changes, the new one is allowed",
    async (t) => {
      const next = testAccount(55).address;
      const seller = await scriptedSeller(t, chain, testAccount(54).address);
      world.config.fetchPrivateOrigins.push(seller.origin);
      await openAgent();
      await page.getByRole("link", { name: "Rules" }).click();
      await page.getByLabel("Website or address").fill(seller.url);
      await page.getByLabel("Website or address").press("Enter");
      await page.getByRole("button", { name: "Add to the list" }).click();
      await page.getByRole("button", { name: "Sign and save changes" }).click();
      await page.getByText("The rules are saved and apply now.").waitFor();
      const fetchIt = () =>
        asAgent(world, apiKey, "x402-fetch", { url: seller.url, detail: "full" });
      t.match(await fetchIt(), { status: 200, body: { paid: true } });
      seller.script = { terms: () => seller.entry({ payTo: next }) };
      const refused = await fetchIt();
      t.match(refused, { status: 403, body: { code: "site_payee_changed", seenPayee: next } });
      await page.getByRole("link", { name: "Activity" }).click();
      const row = page.getByRole("listitem").filter({ hasText: "site payee changed" });
      await row.getByRole("button").first().click();
      const drawer = page.getByRole("dialog").first();
      await drawer.getByRole("button", { name: "Sign the new address" }).click();
      await confirmWithDemoWallet(page, "Payee added", "Payee removed");
      await drawer.getByText("The new address is now allowed.").waitFor();
      t.match(await fetchIt(), { status: 200, body: { paid: true, payTo: next } });
      await page.keyboard.press("Escape");
    },
  );

  await step("a recovery wallet is added and pauses; the owner resumes", async (t) => {
    const second = testAccount(56);
    // In this browser the owner has one wallet; recovery.test.ts adds one with two.
    await nameRecoveryWallet(world.app, await signIn(world, DEMO_OWNER), second);
    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByText("Make the recovery wallet the owner").waitFor();
    await openAgent();
    const opened = await openPage(t, world.browser, { reducedMotion: "reduce" });
    const wallet = await injectWallet(opened.page, second, { chainId: chain.chainId });
    await signInAsSecond(opened.page, page.url(), DEMO_OWNER.address);
    await opened.page.getByRole("button", { name: "Pause", exact: true }).click();
    await page.getByText("Paused: this agent cannot pay.").waitFor();
    t.equal(wallet.windows(), 0, "pausing needs no signature");
    await canPay("0.00", "paused");
    await opened.page.getByRole("link", { name: "Agents", exact: true }).first().click();
    await opened.page.getByText("Cannot pay now: paused").waitFor();
    await page.getByRole("button", { name: "Resume", exact: true }).click();
    await confirmWithDemoWallet(page, "paused", "active");
    await page.getByText("research-agent can pay again.").waitFor();
    t.same(opened.faults, []);
  });

  await step("a key is rotated with a grace period, and the old one revoked", async (t) => {
    await page.getByRole("link", { name: "Keys" }).click();
    // By keyboard, for the same reason as above.
    await page.getByRole("button", { name: /^Rotate/ }).press("Enter");
    await page.getByRole("button", { name: "Rotate key" }).click();
    await page.getByRole("button", { name: "Show", exact: true }).click();
    const newKey = await page.getByTestId("api-key").innerText();
    await page.getByLabel("I saved the key").check();
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByText("Being replaced").waitFor();
    const pay = { recipient: PAYEE.address, amount: "0.01" };
    t.equal((await asAgent(world, newKey, "spend", pay)).status, 200);
    t.equal(
      (await asAgent(world, apiKey, "spend", pay)).status,
      200,
      "the old key works during the grace period",
    );
    await page
      .getByRole("listitem")
      .filter({ hasText: "Being replaced" })
      .getByRole("button", { name: /^Revoke/ })
      .click();
    await page.getByRole("button", { name: "Revoke key" }).click();
    await page.getByText("Revoked", { exact: true }).waitFor();
    t.match(await asAgent(world, apiKey, "spend", pay), {
      status: 401,
      body: { code: "api_key_revoked" },
    });
  });

  await step("pausing stops payments; withdrawing still works", async (t) => {
    await page.getByRole("button", { name: "Pause", exact: true }).click();
    await page.getByText("Paused: this agent cannot pay.").waitFor();
    await page.getByRole("link", { name: "Withdraw" }).click();
    t.equal(
      await page.getByRole("button", { name: "Archive agent…" }).isDisabled(),
      true,
      "an agent with money cannot be archived",
    );
  });

  await step("another address requires its last characters to be typed", async () => {
    await page.getByRole("radio", { name: "Another address" }).check();
    await page.getByLabel("Amount").fill("1");
    await page.getByLabel("Address", { exact: true }).fill(STRANGER.address);
    await page.getByLabel("Type its last 6 characters").fill("abcdef");
    await page.getByRole("button", { name: "Review withdrawal" }).click();
    await page.getByText("must match the address").waitFor();
    const wrong = page.getByLabel("Type its last 6 characters").and(page.locator(":focus"));
    await wrong.waitFor();
    await page.getByLabel("Type its last 6 characters").fill(STRANGER.address.slice(-6));
    await page.getByRole("button", { name: "Review withdrawal" }).click();
    await page.getByText("goes from research-agent to another address.").waitFor();
    await page.getByRole("button", { name: "Sign and withdraw" }).click();
    await page.getByText("Confirmed on chain.").waitFor();
    await page.getByRole("button", { name: "Done" }).click();
  });

  await step("the remaining balance is withdrawn to the owner's own wallet", async (t) => {
    const left = formatUsdc(await balanceOf(await agentAddress()));
    await page.getByText(`${left} USDC`).first().waitFor();
    await page.getByRole("radio", { name: "To my wallet" }).check();
    const before = await balanceOf(DEMO_OWNER.address);
    await page.getByRole("button", { name: "Max" }).click();
    await page.getByRole("button", { name: "Review withdrawal" }).click();
    await page.getByText("goes from research-agent to your wallet.").waitFor();
    await page.getByText("Deadline").waitFor();
    await page.getByRole("button", { name: "Sign and withdraw" }).click();
    await page.getByText("Confirmed on chain.").waitFor();
    t.ok((await balanceOf(DEMO_OWNER.address)) > before, "the money is in the owner's wallet");
    await page.getByRole("button", { name: "Done" }).click();
  });

  await step("every change is in the audit log; the empty agent is archived", async (t) => {
    await page.getByRole("link", { name: "Audit" }).click();
    await page
      .getByText(/paused/i)
      .first()
      .waitFor();
    await page.getByText(/Verified up to entry \d+/).waitFor();
    const downloading = page.waitForEvent("download");
    await page.getByRole("button", { name: "Download" }).click();
    t.equal((await downloading).suggestedFilename(), "purser-audit.jsonl");
    await page.getByRole("link", { name: "Withdraw" }).click();
    await page.getByRole("button", { name: "Archive agent…" }).click();
    archived = await agentAddress();
    await page.getByRole("button", { name: "Archive", exact: true }).click();
    await page.getByText("No agents yet").waitFor();
  });

  await step("money that reaches an archived agent can be withdrawn", async (t) => {
    await chain.mint(archived, 700_000n);
    await page.getByText("Archived agents").click();
    await page.getByRole("link", { name: "research-agent" }).click();
    await page.getByText("Archived", { exact: true }).waitFor();
    await page.getByText("0.70 USDC").first().waitFor();
    await page.getByRole("link", { name: "Withdraw" }).click();
    await page.getByRole("button", { name: "Max" }).click();
    await page.getByRole("button", { name: "Review withdrawal" }).click();
    await page.getByRole("button", { name: "Sign and withdraw" }).click();
    await page.getByText("Confirmed on chain.").waitFor();
    t.equal(await balanceOf(archived), 0n);
  });

  await step("a new owner is eight presses away from the first paid fetch", (t) =>
    firstRun(t, world),
  );

  await step("signing out removes everything", async (t) => {
    await page.getByRole("button", { name: /^Account/ }).click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: /Give your agent a wallet/ }).waitFor();
    await page.goBack();
    await page.getByRole("heading", { name: "Sign in to Purser" }).waitFor();
    t.same(faults, [], "no uncaught error and no policy violation on the way");
  });

  async function openAgent(): Promise<void> {
    await page.getByRole("link", { name: "Agents", exact: true }).click();
    await page.getByRole("link", { name: "research-agent" }).click();
    await page.getByRole("heading", { name: "research-agent", exact: true }).waitFor();
  }

  async function agentAddress(): Promise<Address> {
    return page.evaluate(async () => {
      const id = location.pathname.split("/")[2];
      const agent = (await (await fetch(`/api/agents/${id}`)).json()) as { walletAddress: Address };
      return agent.walletAddress;
    });
  }
});
