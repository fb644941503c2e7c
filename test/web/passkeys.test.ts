// Goal: without a wallet, an owner signs up, pays, withdraws and comes back with passkeys: each press opens one prompt, a
// canceled prompt changes nothing, a removed passkey opens nothing, and no page offers the account's name as an address. All of it
// on a phone. Beside a wallet, each signs in place of the other where both may; a recovery wallet takes the agents over.
import t, { type Test } from "tap";
import type { Address } from "viem";
import { openPage } from "../helpers/browser.ts";
import { testAccount } from "../helpers/chain.ts";
import { usdcOf } from "../spending/ledger.helper.ts";
import { addAxe, violations } from "./axe.ts";
import { firstRun } from "./first-run.ts";
import { injectWallet } from "./injected-wallet.ts";
import { Devices, countPrompts } from "./passkey-devices.ts";
import { picture, stepsOf } from "./pictures.ts";
import { asAgent, webWorld } from "./world.ts";

const PAYEE = testAccount(60);
const PAYOUT = testAccount(61);
const ALICE = testAccount(62);
const SPARE = testAccount(63);
const PHONE = { width: 360, height: 740 };

t.test("an owner without a wallet", async (t) => {
  const world = await webWorld(t);
  const { page, faults } = await openPage(t, world.browser, { ...PHONE, reducedMotion: "reduce" });
  const devices = await Devices.of(page);
  const prompts = await countPrompts(page);
  const step = stepsOf(t);
  let apiKey = "";
  let owner = "";
  await addAxe(page);
  const look = async (t: Test, name: string, fullPage = false): Promise<void> => {
    await picture(page, name, fullPage);
    await page.setViewportSize(PHONE);
    t.same(await violations(page), [], name);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    t.ok(width <= PHONE.width, `${name} fits a phone`);
  };

  await step("the first paid fetch", (t) =>
    firstRun(t, world, async (other) => {
      await Devices.of(other);
      const windows = await countPrompts(other);
      const create = other.getByRole("button", { name: "Create a passkey" });
      const start = other.getByRole("link", { name: "Try it now" });
      return {
        windows,
        async signIn(press, ready) {
          await start.waitFor();
          await press("start", start, create);
          await press("create a passkey", create, ready);
        },
      };
    }),
  );

  await step("signs up with two presses and no typing", async (t) => {
    await page.goto(world.baseUrl);
    await page.getByText("Arc Testnet, block").waitFor();
    await page.getByRole("link", { name: "Try it now" }).click();
    await page.getByRole("button", { name: "Create a passkey" }).waitFor();
    await look(t, "passkey-sign-in");
    t.equal(await prompts(), 0, "nothing is asked by itself");
    await page.getByRole("button", { name: "Create a passkey" }).click();
    await page.getByText("No agents yet").waitFor();
    t.equal(await prompts(), 1);
    owner = await page.evaluate(async () => {
      const answer = await fetch("/api/auth/session");
      return ((await answer.json()) as { address: string }).address;
    });
    await page.getByText("Add a second passkey or a recovery wallet.").waitFor();
    await page.getByText("Name a payout address.").waitFor();
    await look(t, "passkey-first");
    await page.getByRole("button", { name: /^Later.*payout/ }).click();
    t.equal(await page.getByText("Name a payout address.").count(), 0);
  });

  await step("creates an agent with one prompt, and it pays", async (t) => {
    await page.getByRole("link", { name: "New agent" }).click();
    await page.getByLabel("Name").fill("research-agent");
    await page.getByLabel("Daily limit").fill("5");
    await page.getByLabel("Website or address").fill(PAYEE.address);
    await page.getByRole("button", { name: "Add", exact: true }).click();
    const before = await prompts();
    await page.getByRole("button", { name: "Create agent" }).click();
    await page.getByRole("heading", { name: "research-agent is ready" }).waitFor();
    t.equal(await prompts(), before + 1);
    await page.getByRole("button", { name: "Show", exact: true }).click();
    apiKey = await page.getByTestId("api-key").innerText();
    await page.getByLabel("I saved the key").check();
    await page.getByRole("button", { name: "Go to the agent" }).click();
    await page.getByRole("button", { name: "Fund", exact: true }).click();
    await page.getByRole("button", { name: /^Get / }).click();
    await page.getByText("arrived.").waitFor();
    t.equal(await page.getByRole("radio", { name: "Your wallet" }).count(), 0);
    await page.keyboard.press("Escape");
    const spent = await asAgent(world, apiKey, "spend", { recipient: PAYEE.address, amount: "3" });
    t.equal(spent.status, 200, JSON.stringify(spent.body));
  });

  await step("withdraws only to the payout address that it names", async (t) => {
    await page.getByRole("link", { name: "Withdraw" }).click();
    const before = await prompts();
    await page.getByLabel("Address that receives your withdrawals").fill(PAYOUT.address);
    await page.getByRole("button", { name: "Sign and name it" }).click();
    await page.getByText("Goes to your payout address").waitFor();
    t.equal(await prompts(), before + 1);
    await look(t, "passkey-withdraw", true);
    await page.getByLabel("Amount").fill("1.5");
    await page.getByRole("button", { name: "Review withdrawal" }).click();
    await page.getByText("goes from research-agent to your payout address.").waitFor();
    await devices.verifies(false);
    await page.getByRole("button", { name: "Sign and withdraw" }).click();
    await page.getByText("You canceled, or this device does not have your passkey.").waitFor();
    t.equal(await usdcOf(world, PAYOUT.address), 0n, "nothing moved");
    await devices.verifies(true);
    await page.getByRole("button", { name: "Sign and withdraw" }).click();
    await page.getByText("Confirmed on chain.").waitFor();
    t.equal(await usdcOf(world, PAYOUT.address), 1_500_000n);
    t.equal(await prompts(), before + 3);
  });

  await step("adds a second passkey: one press makes it, one signs it", async (t) => {
    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByRole("heading", { name: "Ways to sign in" }).waitFor();
    await page.getByText("In force since").waitFor();
    await page.getByLabel("Name of another passkey").fill("Same device");
    await page.getByRole("button", { name: "Add a passkey" }).click();
    await page.getByText("This device has a passkey for this account already.").waitFor();
    await page.getByText("If you lose this passkey").waitFor();
    await page.getByLabel("Name of another passkey").fill("Security key");
    await devices.use("spare");
    await page.getByRole("button", { name: "Add a passkey" }).click();
    await page.getByText("Not signed yet").waitFor();
    await look(t, "passkey-settings", true);
    await devices.use("own");
    await devices.verifies(false);
    await page.getByRole("button", { name: "Sign Security key" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("You canceled, or this device does not have your passkey.").waitFor();
    await look(t, "passkey-dialog");
    await devices.verifies(true);
    await dialog.getByRole("button", { name: "Sign again" }).click();
    await page.getByRole("button", { name: "Remove Security key" }).waitFor();
    t.equal(await page.getByText("If you lose this passkey").count(), 0, "no longer asked for");
    await page.getByRole("link", { name: "Merchant" }).click();
    await page.getByText("your account has none").waitFor();
    t.equal(await page.getByText(owner.slice(0, 8)).count(), 0);
  });

  await step("signs out, and in with the other one", async (t) => {
    await page.getByRole("button", { name: "Account" }).click();
    t.equal(await page.getByRole("menuitem", { name: "Copy address" }).count(), 0);
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await page.getByText("Arc Testnet, block").waitFor();
    await page.goto(`${world.baseUrl}/agents`);
    await devices.verifies(false);
    await page.getByRole("button", { name: "Continue with a passkey" }).click();
    await page.getByText("You canceled, or this device has no passkey").waitFor();
    await devices.verifies(true);
    await devices.use("spare");
    await page.getByRole("button", { name: "Continue with a passkey" }).click();
    await page.getByText("research-agent").first().waitFor();
    t.equal(await page.getByText("Add a second passkey").count(), 0);
  });

  await step("removes the first one, which then opens nothing", async () => {
    await page.getByRole("link", { name: "Settings" }).click();
    await page
      .getByRole("list", { name: "Passkeys" })
      .getByRole("button", { name: /^Remove (?!Security)/ })
      .click();
    await page
      .getByRole("list", { name: "Passkeys" })
      .getByText("Chrome")
      .waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Account" }).click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await devices.use("own");
    await page.getByText("Arc Testnet, block").waitFor();
    await page.goto(`${world.baseUrl}/agents`);
    await page.getByRole("button", { name: "Continue with a passkey" }).click();
    await page.getByText("its owner removed this passkey").waitFor();
  });
  t.same(faults, []);

  await t.test("at another address, the page says where passkeys work", async () => {
    const other = await openPage(t, world.browser, { reducedMotion: "reduce" });
    await other.page.goto(`${world.baseUrl.replace("localhost", "127.0.0.1")}/agents`);
    await other.page.getByRole("link", { name: `${world.baseUrl}/agents` }).waitFor();
    await other.page.getByRole("button", { name: /Demo wallet/ }).waitFor();
  });
});

t.test("an owner with a wallet adds a passkey, and signs with either", async (t) => {
  const world = await webWorld(t, { isLocal: false });
  const { page, faults } = await openPage(t, world.browser, { reducedMotion: "reduce" });
  const devices = await Devices.of(page);
  const wallet = await injectWallet(page, ALICE, { chainId: world.chain.chainId });
  await addAxe(page);
  const step = stepsOf(t);

  await step("the wallet signs the list", async (t) => {
    await page.goto(`${world.baseUrl}/settings`);
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("button", { name: "Add a passkey" }).click();
    const before = wallet.windows();
    await page.getByRole("button", { name: /^Sign Chrome/ }).click();
    await page.getByRole("button", { name: /^Remove Chrome/ }).waitFor();
    t.equal(wallet.windows(), before + 1);
  });

  await step("signed in with the wallet, the passkey may sign instead", async (t) => {
    await page.goto(`${world.baseUrl}/agents/new`);
    await page.getByLabel("Name").fill("either");
    await page.getByLabel("Daily limit").fill("5");
    const before = wallet.windows();
    wallet.hangNext("eth_signTypedData_v4");
    await page.getByRole("button", { name: "Create agent" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("Compare the details in your wallet").waitFor();
    const passkey = dialog.getByRole("button", { name: "Use a passkey instead" });
    await passkey.waitFor();
    await picture(page, "passkey-instead");
    t.same(await violations(page), []);
    await passkey.click();
    await page.getByRole("heading", { name: "either is ready" }).waitFor();
    t.equal(wallet.windows(), before + 1, "only the window that stays open");
    await page.getByLabel("I saved the key").check();
    await page.getByRole("button", { name: "Go to the agent" }).click();
    await page.getByRole("link", { name: "Withdraw" }).waitFor();
    const { rows } = await world.database.pool.query<{ wallet: Address }>(
      "SELECT wallet_address AS wallet FROM agents WHERE name = 'either'",
    );
    await world.chain.mint(rows[0]?.wallet ?? "0x", 2_000_000n);
    await page.reload();
    await page.getByRole("link", { name: "Withdraw" }).click();
    await page.getByLabel("Amount").fill("1");
    await page.getByRole("button", { name: "Review withdrawal" }).click();
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    wallet.rejectNext("eth_signTypedData_v4");
    await page.getByRole("button", { name: "Sign and withdraw" }).click();
    await page.getByText("You declined in your wallet.").waitFor();
    await picture(page, "withdraw-passkey-instead", true);
    await page.getByRole("button", { name: "Use a passkey instead" }).click();
    await page.getByText("Confirmed on chain.").waitFor();
    t.equal(await usdcOf(world, ALICE.address), 1_000_000n);
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByRole("radio", { name: "Another address" }).check();
    await page.getByLabel("Amount").fill("1");
    await page.getByLabel("Address", { exact: true }).fill(PAYOUT.address);
    await page.getByLabel("Type its last 6 characters").fill(PAYOUT.address.slice(-6));
    await page.getByRole("button", { name: "Review withdrawal" }).click();
    await page.getByText("goes from either to another address.").waitFor();
    await page.getByRole("button", { name: /Test Wallet/ }).waitFor();
    for (const name of [/^Passkey/, "Use a passkey instead"])
      t.equal(await page.getByRole("button", { name }).count(), 0, "a passkey pays home only");
  });

  await step("signed in with the passkey, the wallet may sign instead", async (t) => {
    await page.getByRole("button", { name: "Account" }).click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await page.getByText("Arc Testnet, block").waitFor();
    await page.goto(`${world.baseUrl}/settings`);
    await page.getByRole("button", { name: "Continue with a passkey" }).click();
    const remove = page.getByRole("button", { name: /^Remove Chrome/ });
    await remove.waitFor();
    await devices.verifies(false);
    await remove.click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Use the wallet instead" }).click();
    const before = wallet.windows();
    await dialog.getByRole("button", { name: /Test Wallet/ }).click();
    await dialog.getByRole("button", { name: "Sign again" }).click();
    await page.getByText("Your session has ended").waitFor();
    t.equal(wallet.windows(), before + 1);
  });
  t.same(faults, []);
});

t.test(
  "an owner with a passkey names a recovery wallet, which takes the agents over",
  async (t) => {
    const world = await webWorld(t, { isLocal: false });
    const { page, faults } = await openPage(t, world.browser, {
      ...PHONE,
      reducedMotion: "reduce",
    });
    await Devices.of(page);
    const prompts = await countPrompts(page);
    const wallet = await injectWallet(page, SPARE, { chainId: world.chain.chainId });
    await addAxe(page);
    const step = stepsOf(t);
    const dialog = page.getByRole("dialog");
    let apiKey = "";

    await step("an agent of a passkey", async () => {
      await page.goto(`${world.baseUrl}/agents/new`);
      await page.getByRole("button", { name: "Create a passkey" }).click();
      await page.getByLabel("Name").fill("heirloom");
      await page.getByLabel("Daily limit").fill("5");
      await page.getByLabel("Website or address").fill(PAYEE.address);
      await page.getByRole("button", { name: "Add", exact: true }).click();
      await page.getByRole("button", { name: "Create agent" }).click();
      await page.getByRole("button", { name: "Show", exact: true }).click();
      apiKey = await page.getByTestId("api-key").innerText();
      await page.getByLabel("I saved the key").check();
      await page.getByRole("button", { name: "Go to the agent" }).click();
      await page.getByRole("link", { name: "Withdraw" }).waitFor();
    });

    await step("the wallet signs first, then the passkey", async (t) => {
      await page.goto(`${world.baseUrl}/settings`);
      await page.getByLabel("Address of your recovery wallet").fill(SPARE.address);
      const before = await prompts();
      await page.getByRole("button", { name: "Add recovery wallet" }).click();
      await dialog.getByText("Next signs your passkey.").waitFor();
      t.equal(wallet.windows(), 1);
      await picture(page, "recovery-then-passkey");
      t.same(await violations(page), []);
      await page.setViewportSize(PHONE);
      await dialog.getByRole("button", { name: "Sign with your passkey" }).click();
      await page.getByText("Make the recovery wallet the owner").waitFor();
      t.equal(await prompts(), before + 1);
      await page.getByText("To sign in with it, enter your account number").waitFor();
      t.equal(await page.getByText("Add a second passkey or").count(), 0, "no longer asked for");
      await picture(page, "recovery-of-passkey", true);
      await page.setViewportSize(PHONE);
    });

    await step("both sign the move: one prompt, one window", async (t) => {
      const before = await prompts();
      await page.getByRole("button", { name: "Sign with passkey and wallet, and move" }).click();
      await dialog.getByRole("button", { name: "Sign", exact: true }).click();
      await page.getByText("The recovery wallet is now the owner").waitFor();
      t.same([await prompts(), wallet.windows()], [before + 1, 2]);
      await page.goto(`${world.baseUrl}/agents`);
      await page.getByText("No agents yet").waitFor();
      const refused = await asAgent(world, apiKey, "spend", {
        recipient: PAYEE.address,
        amount: "1",
      });
      t.match(refused.body, { code: "agent_paused" });
    });

    await step("the wallet signs in, resumes the agent, and its key pays", async (t) => {
      await page.getByRole("button", { name: "Account" }).click();
      await page.getByRole("menuitem", { name: "Sign out" }).click();
      await page.getByText("Arc Testnet, block").waitFor();
      await page.goto(`${world.baseUrl}/agents`);
      await page.getByRole("button", { name: /Test Wallet/ }).click();
      await page.getByRole("button", { name: "Sign in", exact: true }).click();
      await page.getByRole("link", { name: "heirloom", exact: true }).click();
      await page.getByText("Paused: this agent cannot pay.").waitFor();
      await page.getByRole("button", { name: "Resume", exact: true }).click();
      await page.getByText("Paused: this agent cannot pay.").waitFor({ state: "detached" });
      const { rows } = await world.database.pool.query<{ wallet: Address }>(
        "SELECT wallet_address AS wallet FROM agents",
      );
      await world.chain.mint(rows[0]?.wallet ?? "0x", 2_000_000n);
      const paid = await asAgent(world, apiKey, "spend", { recipient: PAYEE.address, amount: "1" });
      t.equal(paid.status, 200, JSON.stringify(paid.body));
    });
    t.same(faults, []);
  },
);
