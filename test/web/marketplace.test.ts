// Goal: an owner finds an API, tries it with an agent under its rules, and lists their own API, in the
// browser.
import t from "tap";
import { createAgent, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { picture } from "./pictures.ts";
import { confirmWithDemoWallet, DEMO_OWNER, signInWithDemoWallet, webWorld } from "./world.ts";

t.test("the marketplace", async (t) => {
  const world = await webWorld(t);
  const owner = await signIn(world, DEMO_OWNER);
  const agent = await createAgent(world, owner, { name: "buyer", dailyLimit: "1" });
  await world.chain.mint(agent.walletAddress, 2_000_000n);
  const { page, faults } = await world.open(t, "/marketplace");

  await t.test(
    "a search shows who paid, the last check, and which listing is a copy",
    async (t) => {
      // The service lists its own endpoints soon after its start, and then counts their sales once.
      await until(async () => {
        const { rowCount } = await world.app.pool.query(
          `UPDATE listings SET payers = CASE WHEN name ILIKE '%statistics%' THEN 12 ELSE 0 END, last_probed_at = now(), figures_at = now(),
                similar_to = CASE WHEN name ILIKE '%statistics%' THEN NULL ELSE (SELECT id FROM listings WHERE name ILIKE '%statistics%' LIMIT 1) END
            WHERE EXISTS (SELECT FROM listings WHERE name ILIKE '%statistics%')`,
        );
        return (rowCount ?? 0) > 1;
      });
      await page.getByRole("textbox", { name: "Search" }).fill("chain statistic");
      await page.getByLabel("Network").selectOption({ index: 1 });
      await page.getByText("12 payers in 30 days, checked").waitFor();
      t.match(page.url(), /search=chain\+statistic/);
      await page.getByRole("textbox", { name: "Search" }).fill("");
      await page.getByText("Similar to another").first().waitFor();
      await picture(page, "marketplace-search", true);
      await page.getByRole("textbox", { name: "Search" }).fill("no such thing at all");
      await page.getByText("No listing matches").waitFor();
      await page.goto(`${world.baseUrl}/marketplace`);
    },
  );

  await t.test("a price by use is shown as the most", async (t) => {
    const card = page.getByRole("listitem").filter({ hasText: "Sandbox words" });
    await card.getByText("up to 0.05 USDC").waitFor();
    const fixed = page.getByRole("listitem").filter({ hasText: "Sandbox weather" });
    await fixed.getByText("0.01 USDC", { exact: true }).waitFor();
    t.equal(await fixed.getByText("up to").count(), 0);
    await card.getByRole("link").click();
    await page.getByRole("region", { name: "Terms" }).getByText("up to 0.05 USDC").waitFor();
    await page.goto(`${world.baseUrl}/marketplace`);
  });

  await t.test("browsing needs no account; signing in happens in place", async (t) => {
    await page
      .getByRole("link", { name: /statistics/i })
      .first()
      .click();
    await page.getByRole("heading", { name: "Terms" }).waitFor();
    const here = page.url();
    await page.getByRole("button", { name: "Sign in" }).first().click();
    await signInWithDemoWallet(page);
    await page.getByRole("button", { name: "Dry run" }).waitFor();
    t.equal(page.url(), here);
  });

  await t.test("a dry run pays nothing and names the rule that refuses", async (t) => {
    await page.getByRole("button", { name: "Dry run" }).click();
    const verdict = page.getByRole("status").filter({ hasText: /allow/i }).first();
    await verdict.waitFor();
    t.equal(await page.getByRole("button", { name: /^Pay / }).count(), 0);
  });

  await t.test("the seller is allowed, tried again, and paid once", async (t) => {
    await page.getByRole("button", { name: "Allow seller" }).click();
    await confirmWithDemoWallet(page, "Payee added");
    await page.getByText("This seller is on the agent’s allowlist.").waitFor();
    await page.getByRole("button", { name: "Dry run" }).click();
    await page.getByRole("button", { name: "Pay 0.001 USDC" }).click();
    await page.getByText(/^Paid 0\.001 USDC\./).waitFor();
    await page
      .getByRole("region", { name: /^Response/ })
      .getByText(/height/i)
      .first()
      .waitFor();
    const payments = await world.app.inject({
      url: `/api/agents/${agent.id}/payments?status=settled`,
      headers: owner.headers,
    });
    t.equal(payments.json<{ items: unknown[] }>().items.length, 1);
  });

  await t.test("a search among many agents does not change the agent that pays", async (t) => {
    await createAgent(world, owner, { name: "spare", dailyLimit: "1" });
    // As with more agents than a page has.
    await page.route(/\/api\/agents(\?|$)/, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), nextCursor: "more" } });
    });
    await page.reload();
    const choice = page.getByLabel("Agent", { exact: true });
    await choice.selectOption({ label: "buyer" });
    await page.getByRole("button", { name: /more/i }).waitFor();
    await page.getByLabel("Search agents by name or address").fill("spare");
    await choice
      .locator("option")
      .first()
      .filter({ hasText: "buyer" })
      .waitFor({ state: "attached" });
    t.equal(await choice.inputValue(), agent.id);
    t.same(await choice.locator("option").allTextContents(), ["buyer", "spare"]);
    await page.unroute(/\/api\/agents(\?|$)/);
  });

  await t.test("the owner's API is listed after a probe, edited, paused and removed", async (t) => {
    await page.getByRole("link", { name: "Marketplace" }).first().click();
    await page.getByRole("button", { name: "List an API" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("URL of the paid API").fill(`${world.baseUrl}/api/health`);
    await dialog.getByRole("button", { name: "Check the URL" }).click();
    await dialog.getByText("This URL does not return payment terms").waitFor();
    await dialog.getByLabel("URL of the paid API").fill(`${world.baseUrl}/api/arc-stats?mine=1`);
    await dialog.getByRole("button", { name: "Check the URL" }).click();
    await dialog.getByText("Agents can pay these terms").waitFor();
    await dialog.getByLabel("Name").fill("My statistics");
    await dialog.getByLabel("Category").fill("data");
    await dialog.getByRole("button", { name: "List it" }).click();
    await page.getByRole("heading", { name: "My statistics" }).waitFor();
    await page.getByRole("button", { name: "Edit" }).click();
    await dialog.getByLabel("Name").fill("My better statistics");
    await dialog.getByRole("button", { name: "Save changes" }).click();
    await page.getByRole("heading", { name: "My better statistics" }).waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByText("Paused").first().waitFor();
    await page.getByRole("link", { name: "Marketplace" }).first().click();
    await page.getByRole("radio", { name: "My listings" }).check();
    await page.getByRole("link", { name: "My better statistics" }).click();
    await page.getByRole("button", { name: "Remove…" }).click();
    await dialog.getByRole("button", { name: "Remove", exact: true }).click();
    await page.getByRole("heading", { name: "Marketplace" }).waitFor();
    t.same(faults, []);
  });

  await t.test("a link fills the check in, and only a press requests anything", async (t) => {
    const sent: string[] = [];
    page.on("request", (request) => {
      if (request.url().endsWith("/api/x402/validate")) sent.push(request.postData() ?? "");
    });
    const check = async (url: string, verdict: string): Promise<void> => {
      await page.goto(`${world.baseUrl}/validate?url=${encodeURIComponent(url)}`);
      await page.getByRole("button", { name: "Check it" }).waitFor();
      t.equal(await page.getByLabel("URL of the paid API").inputValue(), url);
      t.same(sent, [], "nothing was requested");
      await page.getByRole("button", { name: "Check it" }).click();
      await page.getByRole("status").filter({ hasText: verdict }).waitFor();
      t.equal(sent.length, 1);
      sent.length = 0;
    };
    await check(`${world.baseUrl}/api/health`, "Nobody can pay this. It answered with status 200.");
    await page.getByRole("region", { name: "Errors (1)" }).waitFor();
    await picture(page, "validate-free", true);
    await check(`${world.baseUrl}/api/arc-stats`, "It can be paid");
    await page.getByText("Everything but the balance holds.").first().waitFor();
    await picture(page, "validate-payable", true);
    t.same(faults, []);
  });

  await t.test("a listing of a catalogue says that nobody signed for it", async (t) => {
    await world.app.pool.query(
      `INSERT INTO listings (id, source, name, description, url, method, host, pay_to, asset, network, price, price_ceiling, status,
                             requirement, found_in, next_probe_at)
       VALUES ('lst_foreign', 'bazaar', 'Harbour tides', 'High and low water', 'https://tides.example/now', 'GET', 'tides.example', $1, $2,
               'eip155:5042002', 1000, 1000, 'active', '{}', 'https://other.example/discovery/resources', now() + interval '1 day')`,
      [DEMO_OWNER.address.toLowerCase(), world.chain.usdc.toLowerCase()],
    );
    await page.goto(`${world.baseUrl}/marketplace?search=harbour`);
    await page.getByText("From a catalogue", { exact: true }).waitFor();
    await picture(page, "foreign-badge", true);
    await page.getByRole("link", { name: "Harbour tides" }).click();
    await page.getByText("Found in the catalogue of other.example").waitFor();
    await picture(page, "foreign-note", true);
    t.same(faults, []);
  });

  await t.test("the facilitator's page counts the settlements of this test", async (t) => {
    await page.goto(`${world.baseUrl}/facilitator`);
    await page.getByRole("heading", { name: "Recent settlements" }).waitFor();
    await page.getByText("exact, v2").waitFor();
    await page.getByText("Funded").first().waitFor();
    t.same(faults, []);
  });
});
