// Goal: an owner with a phone sees every tab, sees which rows open, and sees where to resume after a stop.
import type { Locator } from "playwright-core";
import t from "tap";
import { testAccount } from "../helpers/chain.ts";
import { asOwner, createAgent, signIn } from "../helpers/owner.ts";
import { picture } from "./pictures.ts";
import {
  asAgent,
  confirmWithDemoWallet,
  DEMO_OWNER,
  signInWithDemoWallet,
  webWorld,
} from "./world.ts";

t.test("on a phone", async (t) => {
  const world = await webWorld(t);
  const owner = await signIn(world, DEMO_OWNER);
  const agent = await createAgent(world, owner, { name: "research-agent", paymentsPerHour: 1 });
  const payee = testAccount(95).address;
  for (let count = 0; count < 12; count += 1)
    await asAgent(world, agent.apiKey, "spend", { recipient: payee, amount: `1.${count}` });
  await asAgent(world, agent.apiKey, "spend", {
    recipient: payee,
    amount: "3",
    requestApproval: true,
  });
  const { page, faults } = await world.open(t, `/agents/${agent.id}`, {
    width: 360,
    height: 740,
    reducedMotion: "reduce",
  });
  await signInWithDemoWallet(page);
  await page.getByRole("heading", { name: "research-agent" }).waitFor();
  const boxOf = async (locator: Locator) => {
    const box = await locator.boundingBox();
    if (!box) throw new Error("it is not shown");
    return box;
  };

  await t.test("every tab of an agent is on the screen, also a narrow one", async (t) => {
    const tabs = page.getByRole("navigation", { name: "Agent" }).getByRole("link");
    for (const width of [320, 360, 390, 430]) {
      await page.setViewportSize({ width, height: 740 });
      const names = await tabs.allTextContents();
      t.same(names, ["Activity", "Tasks", "Channels", "Rules", "Keys", "Withdraw", "Audit"]);
      for (const [index, name] of names.entries()) {
        const { x, width: own } = await boxOf(tabs.nth(index));
        t.ok(x >= 0 && x + own <= width, `${name} at ${width}`);
        const isCut = await tabs.nth(index).evaluate((tab) => tab.scrollWidth > tab.clientWidth);
        t.notOk(isCut, `${name} has room at ${width}`);
      }
    }
    await page.setViewportSize({ width: 360, height: 740 });
  });

  await t.test("the names of the places do not overlap", async (t) => {
    const names = page.getByRole("navigation", { name: "Main" }).locator("a > span");
    for (const width of [320, 360]) {
      await page.setViewportSize({ width, height: 740 });
      let end = 0;
      for (const name of await names.all()) {
        const box = await boxOf(name);
        t.ok(box.x >= end && box.x + box.width <= width, `${await name.textContent()} at ${width}`);
        end = box.x + box.width;
      }
    }
    await page.setViewportSize({ width: 360, height: 740 });
  });

  await t.test("texts count in English, and times have a zone", async () => {
    await page.getByText("0 of 1 payment in the last hour").waitFor();
    await page.getByText("Hours are your local time.").waitFor();
  });

  await t.test("date filters show their names", async (t) => {
    for (const name of ["From day", "To day"]) {
      await page.getByText(name, { exact: true }).waitFor();
      t.equal(await page.getByLabel(name).getAttribute("type"), "date", name);
    }
  });

  await t.test("after a stop the screen and the focus are where one resumes", async (t) => {
    await page.getByText("recipient not allowed").first().waitFor();
    await page.mouse.wheel(0, 3_000);
    await page.waitForFunction(() => scrollY > 300);
    await page.getByRole("button", { name: "Stop everything" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Stop everything" }).click();
    const banner = page.getByRole("region", { name: "Everything is stopped" });
    await banner.and(page.locator(":focus")).waitFor();
    const resume = banner.getByRole("button", { name: "Resume" });
    await page.getByText("Paused: this agent cannot pay.").waitFor();
    t.equal(await page.getByRole("button", { name: /^Resume/ }).count(), 1, "only for everything");
    const [button, whole] = [await boxOf(resume), await boxOf(banner)];
    t.ok(whole.y >= 56, "below the header");
    t.ok(button.y + button.height <= 740 - 64, "above the navigation");
    await picture(page, "stopped");
    await page.setViewportSize({ width: 360, height: 740 });
    await resume.click();
    await confirmWithDemoWallet(page, "Everything");
    await banner.waitFor({ state: "detached" });
    await page.locator("#page-title:focus").waitFor();
  });

  await t.test("a lost response is not shown as if nothing was done", async (t) => {
    await page.route("**/api/owner/stop", (route) => route.abort());
    await page.getByRole("button", { name: "Stop everything" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Stop everything" }).click();
    await dialog.getByText("It is not known whether this was done").waitFor();
    await dialog.getByText("look whether it was done before you repeat it").waitFor();
    t.equal(await page.getByText("Nothing was stopped").count(), 0);
    await picture(page, "lost-response");
    await page.setViewportSize({ width: 360, height: 740 });
    await page.unroute("**/api/owner/stop");
    await dialog.getByRole("button", { name: "Cancel" }).click();
  });

  await t.test("a page that opens while everything is stopped keeps the focus", async (t) => {
    await asOwner(world.app, owner, { method: "POST", url: "/api/owner/stop", body: {} });
    await page.reload();
    const banner = page.getByRole("region", { name: "Everything is stopped" });
    await banner.waitFor();
    t.equal(await banner.and(page.locator(":focus")).count(), 0);
  });

  await t.test("the row of an approval shows that it opens", async (t) => {
    await page.goto(`${world.baseUrl}/approvals`);
    const row = page.getByRole("listitem").filter({ hasText: "Waiting for you" });
    const sign = await boxOf(row.locator("svg"));
    const whole = await boxOf(row);
    t.ok(sign.x + sign.width <= whole.x + whole.width, "inside the row");
    t.ok(sign.x >= whole.x + whole.width - 48, "at its end");
    await picture(page, "approval-row");
    await page.setViewportSize({ width: 360, height: 740 });
    await row.click();
    await page.getByRole("dialog").getByRole("button", { name: "Allow once" }).waitFor();
  });
  await t.test("the focus is kept when the pressed button disappears", async () => {
    await page.goto(`${world.baseUrl}/agents/${agent.id}/keys`);
    await page.getByRole("button", { name: /^Revoke/ }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke key" }).click();
    await page.getByText("Revoked", { exact: true }).waitFor();
    await page.locator("#page-title:focus").waitFor();
  });
  t.same(faults, [], "no policy violation, no uncaught error");
});
