// Goal: without a wallet, an owner signs up, pays, withdraws and comes back with passkeys: each press opens one prompt, a
// canceled prompt changes nothing, a removed passkey opens nothing, and no page offers the account's name as an address.
import type { CDPSession, Page } from "playwright-core";
import t, { type Test } from "tap";
import { openPage } from "../helpers/browser.ts";
import { testAccount } from "../helpers/chain.ts";
import { usdcOf } from "../spending/ledger.helper.ts";
import { addAxe, violations } from "./axe.ts";
import { firstRun } from "./first-run.ts";
import { injectWallet } from "./injected-wallet.ts";
import { picture, SIZES, stepsOf } from "./pictures.ts";
import { asAgent, webWorld } from "./world.ts";

const PAYEE = testAccount(60);
const PAYOUT = testAccount(61);
const ALICE = testAccount(62);

/** The devices that a browser can ask: this one, and a security key. Each answers while it is switched on. */
class Devices {
  readonly #session: CDPSession;
  #ids: Record<"own" | "spare", string> = { own: "", spare: "" };

  private constructor(session: CDPSession) {
    this.#session = session;
  }

  static async of(page: Page): Promise<Devices> {
    const devices = new Devices(await page.context().newCDPSession(page));
    await devices.#session.send("WebAuthn.enable", { enableUI: false });
    devices.#ids = { own: await devices.#add("internal"), spare: await devices.#add("usb") };
    await devices.use("own");
    return devices;
  }

  async #add(transport: "internal" | "usb"): Promise<string> {
    const { authenticatorId } = await this.#session.send("WebAuthn.addVirtualAuthenticator", {
      options: {
        protocol: "ctap2",
        transport,
        hasResidentKey: true,
        hasUserVerification: true,
        isUserVerified: true,
        automaticPresenceSimulation: false,
      },
    });
    return authenticatorId;
  }

  /** The other one does not answer. */
  async use(name: "own" | "spare"): Promise<void> {
    for (const [other, authenticatorId] of Object.entries(this.#ids))
      await this.#session.send("WebAuthn.setAutomaticPresenceSimulation", {
        authenticatorId,
        enabled: other === name,
      });
  }

  /** False: the person fails the fingerprint, the face or the PIN. */
  async verifies(isUserVerified: boolean): Promise<void> {
    for (const authenticatorId of Object.values(this.#ids))
      await this.#session.send("WebAuthn.setUserVerified", { authenticatorId, isUserVerified });
  }
}

/** Counts the prompts of passkeys: what the page asks the browser for. */
async function countPrompts(page: Page): Promise<() => Promise<number>> {
  await page.addInitScript(() => {
    const counted = globalThis as unknown as { prompts: number };
    counted.prompts = 0;
    for (const name of ["get", "create"] as const) {
      const real = navigator.credentials[name].bind(navigator.credentials);
      navigator.credentials[name] = (options?: never) => {
        counted.prompts += 1;
        return real(options);
      };
    }
  });
  return () => page.evaluate(() => (globalThis as unknown as { prompts: number }).prompts);
}

t.test("an owner without a wallet", async (t) => {
  const world = await webWorld(t);
  const { page, faults } = await openPage(t, world.browser, { reducedMotion: "reduce" });
  const devices = await Devices.of(page);
  const prompts = await countPrompts(page);
  const step = stepsOf(t);
  let apiKey = "";
  let owner = "";
  await addAxe(page);
  const look = async (t: Test, name: string, fullPage = false): Promise<void> => {
    await picture(page, name, fullPage);
    await page.setViewportSize({ width: 360, height: 740 });
    t.same(await violations(page), [], name);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    t.ok(width <= 360, `${name} fits a phone`);
    await page.setViewportSize(SIZES.desktop);
  };

  await step("the first paid fetch", (t) =>
    firstRun(t, world, async (other) => {
      await Devices.of(other);
      const windows = await countPrompts(other);
      const create = other.getByRole("button", { name: "Create a passkey" });
      const start = other.getByRole("link", { name: "Try it with the demo wallet" });
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
    await page.getByRole("link", { name: "Try it with the demo wallet" }).click();
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
    await page.getByLabel("Address", { exact: true }).fill(PAYEE.address);
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
