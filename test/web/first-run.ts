// The way of a new owner from the first page to the first paid fetch, with what it costs: presses, typed fields, and windows of a
// wallet or prompts for a passkey. story.test.ts walks it with a wallet, passkeys.test.ts with a passkey.
import type { Locator, Page } from "playwright-core";
import type { Test } from "tap";
import { testAccount } from "../helpers/chain.ts";
import { openPage } from "../helpers/browser.ts";
import { injectWallet } from "./injected-wallet.ts";
import { picture } from "./pictures.ts";
import type { WebWorld } from "./world.ts";

const MOST = { presses: 8, fields: 2 };
export const NEW_OWNER = testAccount(57);

/** Counts in the page what a person does there, whichever way the test finds the elements. */
const countActions = (page: Page): Promise<unknown> =>
  page.addInitScript(() => {
    const counts = { presses: 0, fields: new Set<unknown>() };
    Object.assign(globalThis, { counts });
    addEventListener("pointerdown", () => (counts.presses += 1), true);
    addEventListener("input", ({ target }) => counts.fields.add(target), true);
  });
const actionsIn = (page: Page): Promise<{ presses: number; fields: number }> =>
  page.evaluate(() => {
    const { counts } = globalThis as unknown as {
      counts: { presses: number; fields: Set<unknown> };
    };
    return { presses: counts.presses, fields: counts.fields.size };
  });

/** Presses, waits for what follows, and counts windows. */
type Press = (name: string, target: Locator, ready: Locator) => Promise<void>;

export interface Way {
  /** How many windows of the wallet, or prompts for a passkey, there were. */
  windows: () => number | Promise<number>;
  /** The presses that sign in; then `ready` is there. */
  signIn: (press: Press, ready: Locator) => Promise<void>;
}

/** `wayOf` prepares the page before it is opened. */
export async function firstRun(
  t: Test,
  world: WebWorld,
  wayOf: (page: Page) => Promise<Way> = (page) => byWallet(page, world),
): Promise<void> {
  const { page, faults } = await openPage(t, world.browser, { reducedMotion: "reduce" });
  const { windows, signIn } = await wayOf(page);
  await countActions(page);
  const press: Press = async (name, target, ready) => {
    const before = await windows();
    await target.click();
    await ready.waitFor();
    t.ok((await windows()) - before <= 1, `${name}: at most one window`);
  };
  const button = (name: string | RegExp): Locator => page.getByRole("button", { name });
  const link = (name: string | RegExp): Locator => page.getByRole("link", { name });

  await page.goto(world.baseUrl);
  await signIn(press, link(/^Research agent/));
  await picture(page, "first-agents", true);

  const suggested = page.getByRole("group", { name: "Suggested payees" });
  const own = suggested.getByRole("checkbox").first();
  await press("template", link(/^Research agent/), own);
  t.equal(await own.isChecked(), true, "the template ticks the seller of this service");
  t.equal(await page.getByLabel("Name").inputValue(), "Research agent");
  t.equal(await page.getByLabel("Daily limit").first().inputValue(), "2");
  await page.getByText("A single payment is at most 0.10 USDC.").waitFor();
  await picture(page, "first-form", true);

  const fund = button(/^Get /);
  await press("create", button("Create agent"), fund);
  await picture(page, "first-created", true);
  const pay = button(/^Pay /);
  await press("fund", fund, page.locator("button:enabled", { hasText: /^Pay / }));
  await press("pay", pay, page.getByText(/^Paid 0\.001/));
  await page.getByRole("heading", { name: "Your agent paid for the first time" }).waitFor();

  const { presses, fields } = await actionsIn(page);
  t.comment(`first run: ${presses} presses, ${fields} fields, ${await windows()} windows`);
  t.ok(presses <= MOST.presses, `${presses} presses up to the first paid fetch`);
  t.ok(fields <= MOST.fields, `${fields} fields`);
  t.equal(
    await windows(),
    2,
    "one for the sign-in, one for the agent with its payees and its first key",
  );
  await picture(page, "first-paid", true);

  // What was signed is what the form showed.
  const { items } = await page.evaluate(
    async () => (await (await fetch("/api/agents")).json()) as { items: { allowlist: object[] }[] },
  );
  t.match(items, [{ name: "Research agent", dailyLimit: "2", perPaymentLimit: "0.1" }]);
  t.match(items[0]?.allowlist, [{ site: world.baseUrl, perPaymentLimit: /^0\./ }]);
  await page.getByLabel("I saved the key").check();
  await button("Go to the agent").click();
  await link("Agents").first().click();
  await link("Research agent").waitFor();
  t.equal(await page.getByText("First steps").count(), 0, "they end with the first paid call");
  const wayBack =
    /^(Name a recovery wallet or add a passkey|Add a second passkey or a recovery wallet)\.$/;
  await page.getByText(wayBack).waitFor();
  await picture(page, "first-way-back", true);
  t.same(faults, []);
}

async function byWallet(page: Page, world: WebWorld): Promise<Way> {
  const wallet = await injectWallet(page, NEW_OWNER, { chainId: world.chain.chainId });
  const button = page.getByRole("button", { name: /Test Wallet/ });
  return {
    windows: () =>
      wallet.requests.filter(({ method }) => /^(personal_sign|eth_signTypedData)/.test(method))
        .length,
    async signIn(press, ready) {
      await press("start", page.getByRole("link", { name: "Try it now" }), button);
      await press("wallet", button, page.getByText("What you will sign"));
      await press("sign in", page.getByRole("button", { name: "Sign in", exact: true }), ready);
    },
  };
}
