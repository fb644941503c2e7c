// Goal: an owner without any setup finds what happened; nothing that was typed is lost when the network breaks or another
// tab is opened; and on a phone, by keyboard and in a chart everybody finds what comes next.
import type { Page } from "playwright-core";
import t from "tap";
import { testAccount } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { picture, stepsOf } from "./pictures.ts";
import { asAgent, DEMO_OWNER, webWorld } from "./world.ts";

const DOWN = "The server cannot be reached.";
const PHONE = { width: 360, height: 740 };

t.test("what a person expects to stay", async (t) => {
  const world = await webWorld(t);
  const owner = await signIn(world, DEMO_OWNER);
  const agent = await createAgent(world, owner, { name: "research-agent", dailyLimit: "5" });
  const base = `/agents/${agent.id}`;
  const step = stepsOf(t);
  const { page, faults } = await world.open(t, base, { reducedMotion: "reduce" });
  const tab = (name: string) =>
    page.getByRole("navigation", { name: "Agent" }).getByRole("link", { name });
  const limit = page.getByLabel("Daily limit").first();
  const focused = (page: Page) =>
    page.evaluate(() => document.activeElement?.textContent?.trim() ?? "");
  /** A page that is loaded again does not have it. */
  const setMark = () => page.evaluate("globalThis.mark = 'same page'");
  const hasMark = () => page.evaluate("globalThis.mark === 'same page'");

  await step("after a wallet was chosen, the keyboard goes on at the heading", async (t) => {
    await page.getByRole("button", { name: /Demo wallet/ }).focus();
    await page.keyboard.press("Enter");
    await page.getByText("What you will sign").waitFor();
    t.equal(await focused(page), "Sign in to Purser");
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("heading", { name: "research-agent" }).waitFor();
  });

  await step(
    "what happened is in the app, with a number, although nothing is set up",
    async (t) => {
      const bell = page.getByRole("link", { name: /^Notifications/ });
      // The sign-in of this browser is news to the owner, who signed in elsewhere before.
      await bell.filter({ hasText: "1 unread" }).waitFor();
      await bell.click();
      await page.getByText("New sign-in to your account").first().waitFor();
      await page.getByRole("button", { name: "Mark all as read" }).click();
      await page.getByRole("link", { name: "Notifications", exact: true }).waitFor();
      const recipient = testAccount(71).address;
      t.equal(
        (await asAgent(world, agent.apiKey, "spend", { recipient, amount: "1" })).status,
        403,
      );
      await bell.filter({ hasText: "1 unread" }).waitFor();
      const refusal = page.getByRole("link", { name: /A payment of 1.00 USDC by research-agent/ });
      await refusal.waitFor();
      await page.getByText("research-agent was created").waitFor();
      await picture(page, "notifications-unread");
      await page.getByLabel("Unread only").check();
      await page.getByText("research-agent was created").waitFor({ state: "detached" });
      await refusal.click();
      await page.getByRole("dialog").getByText("Decision").waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("link", { name: "Notifications", exact: true }).waitFor();
      t.pass("read by opening it");
    },
  );

  await step(
    "without a network the frame stays, and the next screen opens by itself",
    async (t) => {
      await page.goto(`${world.baseUrl}${base}/rules`);
      await limit.fill("7");
      await setMark();
      await page.context().setOffline(true);
      await page.getByText(DOWN).waitFor();
      await tab("Keys").click();
      await page.getByRole("link", { name: "Marketplace" }).waitFor();
      t.equal(await limit.inputValue(), "7", "the screen before stays");
      await picture(page, "offline");
      await page.context().setOffline(false);
      await page.getByRole("heading", { name: "API keys" }).waitFor();
      await page.getByText(DOWN).waitFor({ state: "detached" });
      t.ok(await hasMark(), "the page was not loaded again");
    },
  );

  await step(
    "unsaved rules survive other tabs and a reload, and are discarded by a press",
    async (t) => {
      await tab("Rules").click();
      t.equal(await limit.inputValue(), "7");
      await tab("Audit").click();
      await page.getByText(/Agent created/).waitFor();
      await page.reload();
      await tab("Rules").click();
      await page.getByText("1 change").waitFor();
      t.equal(await limit.inputValue(), "7");
      await page.getByRole("button", { name: "Discard" }).click();
      t.equal(await limit.inputValue(), "5");
      await tab("Audit").click();
      await tab("Rules").click();
      t.equal(await limit.inputValue(), "5");
    },
  );

  await step("a server that is gone for a while: the screen opens when it is back", async (t) => {
    await limit.fill("6");
    await page.route(/\/(api|assets)\//, (route) => route.abort());
    await page.getByRole("link", { name: "Merchant" }).click();
    await page.getByText(DOWN).waitFor();
    t.equal(await page.getByRole("navigation", { name: "Main" }).isVisible(), true);
    await page.unroute(/\/(api|assets)\//);
    await page.getByRole("heading", { name: "Merchant" }).waitFor();
    await page.getByText(DOWN).waitFor({ state: "detached" });
    await page.goBack();
    await page.getByText("1 change").waitFor();
    t.equal(await limit.inputValue(), "6");
    await page.getByRole("button", { name: "Discard" }).click();
  });

  await step("a new agent's draft survives other screens, and ends with the agent", async (t) => {
    const name = page.getByLabel("Name");
    await page.goto(`${world.baseUrl}/agents/new`);
    await name.fill("draft-agent");
    await limit.fill("3");
    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByRole("heading", { name: "Settings", exact: true }).waitFor();
    await page.goBack();
    t.equal(await name.inputValue(), "draft-agent");
    t.equal(await limit.inputValue(), "3");
    await page.getByRole("button", { name: "Create agent" }).click();
    await page.getByRole("heading", { name: "draft-agent is ready" }).waitFor();
    t.equal(await focused(page), "draft-agent is ready", "the focus goes to what is next");
    await page.getByLabel("I saved the key").check();
    await page.getByRole("button", { name: "Go to the agent" }).click();
    await page.getByRole("heading", { name: "draft-agent", exact: true }).waitFor();
    await page.goto(`${world.baseUrl}/agents/new`);
    t.equal(await name.inputValue(), "");
  });

  await step("a chart names its days, the last one today, and cuts no label off", async (t) => {
    for (const viewport of [{ width: 1280, height: 900 }, PHONE]) {
      await page.setViewportSize(viewport);
      await page.goto(world.baseUrl + base);
      await page.getByRole("radio", { name: "7 d" }).check();
      const labels = page.locator(".recharts-xAxis-tick-labels text");
      await labels.filter({ hasText: "Today" }).waitFor();
      const texts = await labels.allTextContents();
      t.equal(texts.at(-1), "Today");
      t.ok(texts.length >= 3, texts.join(", "));
      for (const text of texts.slice(0, -1)) t.match(text, /^\d+ [A-Z][a-z]{2}$/);
      const isInside = await page.evaluate(() => {
        const frame = document.querySelector(".recharts-surface")?.getBoundingClientRect();
        return [...document.querySelectorAll(".recharts-xAxis-tick-labels text")]
          .map((label) => label.getBoundingClientRect())
          .every(({ left, right }) => frame && left >= frame.left && right <= frame.right);
      });
      t.ok(isInside, "no label leaves the picture");
      await picture(page, `chart-${viewport.width}`);
    }
  });

  await step("on a phone a tab shows its content, and the save bar is slim", async (t) => {
    await page.setViewportSize(PHONE);
    for (const [name, heading] of [
      ["Rules", "Limits"],
      ["Keys", "Connected programs"],
      ["Activity", "Spending"],
      ["Rules", "Limits"],
    ] as const) {
      await tab(name).click();
      const title = page.getByRole("heading", { name: heading, exact: true });
      await title.waitFor();
      await page.waitForFunction(
        ([text, most]) =>
          [...document.querySelectorAll("h2")].some((one) => {
            const { top } = one.getBoundingClientRect();
            return one.textContent === text && top > 0 && top < most;
          }),
        [heading, PHONE.height / 3] as const,
      );
    }
    await limit.fill("4");
    const bar = page.getByRole("region", { name: "Save these changes?" });
    const box = await bar.boundingBox();
    t.ok(box && box.height < PHONE.height * 0.12, `${box?.height} of ${PHONE.height} pixels`);
    await picture(page, "phone-rules");
    await page.setViewportSize(PHONE);
    await bar.getByRole("button", { name: "1 change" }).click();
    await bar.getByRole("list", { name: "Changes" }).waitFor();
    await bar.getByRole("button", { name: "Save changes" }).click();
    await page.getByText("The rules are saved and apply now.").waitFor();
    await bar.waitFor({ state: "detached" });
    t.equal(await limit.inputValue(), "4");
  });

  await step("signing out leaves no draft behind", async (t) => {
    await limit.fill("9");
    await page.getByRole("button", { name: /^Account/ }).click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await page.waitForFunction(
      () => !Object.keys(sessionStorage).some((key) => key.startsWith("purser-draft")),
    );
    t.pass("the storage has none");
  });
  t.same(faults, []);
});
