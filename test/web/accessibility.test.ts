// Goal: everybody can use every screen: no axe violation in either theme or size, no overflow on a phone, and
// everything is reachable by keyboard.
import type { Page } from "playwright-core";
import t from "tap";
import { testAccount } from "../helpers/chain.ts";
import { openPage } from "../helpers/browser.ts";
import { isFullTier } from "../helpers/tier.ts";
import { addAxe, violations } from "./axe.ts";
import { smallTargets } from "./targets.ts";
import { injectWallet } from "./injected-wallet.ts";
import {
  NEW_OWNER_SCREENS,
  ownerScreens,
  PUBLIC_SCREENS,
  SECOND,
  show,
  type Screen,
} from "./screens.ts";
import { DEMO_OWNER, signInAsSecond, signInWithDemoWallet, webWorld } from "./world.ts";

const PHONE = { width: 360, height: 740 };
// The default tier checks every screen once: on a phone, where overflow occurs, and dark, where contrast is
// lost.
const SIZES = isFullTier
  ? { desktop: { width: 1280, height: 900 }, phone: PHONE }
  : { phone: PHONE };
const THEMES = isFullTier ? (["light", "dark"] as const) : (["dark"] as const);

/** `SCREENSHOTS=folder npm test -- test/web/accessibility.test.ts` saves screenshots. */
const folder = process.env["SCREENSHOTS"];

const world = await webWorld(t, {
  // A block only for each transaction: new blocks would make every page work while it is checked.
  blockTimeSeconds: "auto",
  // Nothing is sent: this only shows the screens of a service with a mail server.
  env: {
    SMTP_URL: "smtp://127.0.0.1:9",
    MAIL_FROM: "purser@mail.example",
    OPERATORS: DEMO_OWNER.address,
  },
});
const privateScreens = await ownerScreens(world);

t.test("every screen", async (t) => {
  const { page, faults } = await openPage(t, world.browser, { reducedMotion: "reduce" });
  await addAxe(page);

  const check = async (screen: Screen, page: Page, shown?: Screen): Promise<void> => {
    await t.test(screen.name, async (t) => {
      await page.setViewportSize({ width: 1280, height: 900 });
      await show(page, world, screen, shown);
      for (const [size, viewport] of Object.entries(SIZES)) {
        await page.setViewportSize(viewport);
        for (const colorScheme of THEMES) {
          await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
          await page.locator(`[data-mantine-color-scheme=${colorScheme}]`).first().waitFor();
          t.same(await violations(page), [], `${size}, ${colorScheme}`);
          const path = `${folder}/${screen.name}-${size}-${colorScheme}.png`;
          if (folder !== undefined) await page.screenshot({ path, fullPage: true });
        }
        const overflow = await page.evaluate(
          () => document.body.scrollWidth - document.body.clientWidth,
        );
        t.equal(overflow, 0, `nothing runs off the ${size}`);
        if (size === "phone") t.same(await smallTargets(page), [], "fingers hit everything");
      }
    });
  };

  const checkAll = async (screens: Screen[]): Promise<void> => {
    let shown: Screen | undefined;
    for (const screen of screens) {
      await check(screen, page, shown);
      // After a screen without an action, the page need not be loaded again for its next state.
      shown = screen.act ? undefined : screen;
    }
  };

  await checkAll(PUBLIC_SCREENS);
  await page.goto(`${world.baseUrl}/agents`);
  await signInWithDemoWallet(page);
  await page.getByRole("link", { name: "research-agent" }).waitFor();
  await checkAll(privateScreens);

  const second = await openPage(t, world.browser, { reducedMotion: "reduce" });
  await addAxe(second.page);
  await injectWallet(second.page, SECOND, { chainId: world.chain.chainId });
  await signInAsSecond(second.page, `${world.baseUrl}/agents`, DEMO_OWNER.address);
  const [agent] = privateScreens.filter(({ name }) => name === "agent-withdraw");
  if (agent) await check({ ...agent, name: "second-withdraw" }, second.page);

  const newOwner = await openPage(t, world.browser, { reducedMotion: "reduce" });
  await addAxe(newOwner.page);
  await injectWallet(newOwner.page, testAccount(75), { chainId: world.chain.chainId });
  await newOwner.page.goto(`${world.baseUrl}/agents`);
  await newOwner.page.getByRole("button", { name: /Test Wallet/ }).click();
  await newOwner.page.getByRole("button", { name: "Sign in", exact: true }).click();
  await newOwner.page.getByText("No agents yet").waitFor();
  for (const screen of NEW_OWNER_SCREENS) await check(screen, newOwner.page);
  t.same(faults, [], "no policy violation, no uncaught error");
});

t.test("by keyboard alone", async (t) => {
  const { page } = await world.open(t, "/agents");
  const focused = () =>
    page.evaluate(() => document.activeElement?.textContent?.trim() || document.activeElement?.id);
  const press = async (times: number, key = "Tab"): Promise<void> => {
    for (let count = 0; count < times; count += 1) await page.keyboard.press(key);
  };
  /** Presses Tab until the focused element matches; fails if none does. */
  const tabTo = async (text: RegExp): Promise<void> => {
    for (let count = 0; count < 60; count += 1) {
      if (text.test(String(await focused()))) return;
      await press(1);
    }
    t.fail(`the keyboard does not reach ${text}`);
  };

  await page.getByRole("button", { name: /Demo wallet/ }).waitFor();
  await press(1);
  t.equal(await focused(), "Skip to content");
  await tabTo(/^Demo wallet/);
  await page.keyboard.press("Enter");
  await page.getByText("What you will sign").waitFor();
  await tabTo(/^Sign in$/);
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "research-agent" }).waitFor();

  await tabTo(/^research-agent$/);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "research-agent" }).waitFor();
  t.equal(await focused(), "research-agent", "the focus moves to the new screen's title");

  await page.getByText("daily limit exceeded").first().waitFor();
  const row = page.getByRole("listitem").filter({ hasText: "daily limit exceeded" });
  const opener = row.getByRole("button");
  await opener.focus();
  await page.keyboard.press("Enter");
  const drawer = page.getByRole("dialog");
  await drawer.getByText("Decision").waitFor();
  await press(25);
  t.ok(
    await page.evaluate(() =>
      document.querySelector("[role=dialog]")?.contains(document.activeElement),
    ),
    "the focus stays in the drawer",
  );
  await page.keyboard.press("Escape");
  await drawer.waitFor({ state: "detached" });
  t.ok(
    await opener.evaluate((element) => element === document.activeElement),
    "and returns to the row",
  );

  await page.getByRole("link", { name: "Spending" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: /^Weather API, 0x/ }).waitFor();
  t.equal(await focused(), "Spending", "the focus moves to the title");
  await tabTo(/^Weather API, 0x/);
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: /^Only payee/ }).waitFor();

  await page.getByRole("button", { name: /^Account/ }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("menuitem", { name: "Operator" }).focus();
  await page.keyboard.press("Enter");
  const close = page.getByRole("button", { name: /^Close transfer_unknown/ });
  await close.waitFor();
  t.equal(await focused(), "Operator", "the focus moves to the title");
  await close.focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Reason").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.waitForFunction(() =>
    document.activeElement?.textContent?.startsWith("Close transfer_unknown"),
  );

  await page.goto(`${world.baseUrl}/validate`);
  await page.getByLabel("URL of the paid API").focus();
  await page.keyboard.type("https://10.0.0.1/");
  await page.keyboard.press("Enter");
  await page.getByRole("status").filter({ hasText: "Nobody can pay this" }).waitFor();
  await page.getByText("url_blocked").waitFor();
  await page.getByLabel("URL of the paid API").focus();
  await press(1);
  await page.locator("select:focus").waitFor();
  await tabTo(/^Check it$/);
  await page.keyboard.press("Space");
  await page.getByRole("status").filter({ hasText: "Nobody can pay this" }).waitFor();
  await tabTo(/^Copy/);
});
