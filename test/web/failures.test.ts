// Goal: a lost session, a refused request or an outage never loses the user's input, and the screen always
// explains what to do.
// Tier: full (tries every variant of one feature).
import type { Page } from "playwright-core";
import t from "tap";
import { createAgent, signIn } from "../helpers/owner.ts";
import { picture } from "./pictures.ts";
import { DEMO_OWNER, signInWithDemoWallet, webWorld } from "./world.ts";

t.test("failures in the browser", async (t) => {
  const world = await webWorld(t);
  const owner = await signIn(world, DEMO_OWNER);
  const agent = await createAgent(world, owner, { name: "steady" });
  const base = `/agents/${agent.id}`;

  const signedIn = async (path: string): Promise<{ page: Page; faults: string[] }> => {
    const opened = await world.open(t, path);
    await signInWithDemoWallet(opened.page);
    await opened.page.getByRole("button", { name: /^Account/ }).waitFor();
    return opened;
  };
  /** Ends every session except the one of this test. */
  const endSessions = async (): Promise<void> => {
    const list = await world.app.inject({ url: "/api/auth/sessions", headers: owner.headers });
    const { items } = list.json<{ items: { id: string; current: boolean }[] }>();
    for (const { id } of items.filter(({ current }) => !current)) {
      await world.app.inject({
        method: "DELETE",
        url: `/api/auth/sessions/${id}`,
        headers: owner.headers,
      });
    }
  };

  await t.test("a session ends under a form: the user signs in again", async (t) => {
    const { page, faults } = await signedIn("/agents/new");
    await page.getByLabel("Name").fill("typed before");
    await page.getByLabel("Daily limit").fill("7.5");
    await endSessions();
    await page.getByRole("heading", { name: "Your session has ended" }).waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    t.equal(await page.getByLabel("Name").inputValue(), "typed before");
    t.equal(await page.getByLabel("Daily limit").inputValue(), "7.5");
    await page.getByRole("button", { name: "Create agent" }).click();
    await page.getByRole("heading", { name: "typed before is ready" }).waitFor();
    t.same(faults, []);
  });

  await t.test("the next request detects a session that has ended", async (t) => {
    const { page } = await signedIn(`${base}/rules`);
    await page.route("**/api/events", (route) => route.abort());
    await page.reload();
    await page.getByLabel("Daily limit").fill("12");
    await endSessions();
    await page.getByRole("button", { name: "Save changes" }).click();
    await page.getByRole("heading", { name: "Your session has ended" }).waitFor();
    await signInWithDemoWallet(page);
    await page.getByRole("dialog").waitFor({ state: "detached" });
    t.equal(await page.getByLabel("Daily limit").inputValue(), "12");
    await page.getByRole("button", { name: "Save changes" }).click();
    await page.getByText("The rules are saved and apply now.").waitFor();
  });

  await t.test("a device with a wrong clock signs in and shows the server's times", async (t) => {
    for (const hoursAhead of [-2, 2]) {
      const { page, faults } = await world.open(t, "/theme.js");
      await page.clock.install({ time: Date.now() + hoursAhead * 3_600_000 });
      await page.goto(`${world.baseUrl}/settings`);
      await signInWithDemoWallet(page);
      const own = page.getByRole("listitem").filter({ hasText: "This device" });
      t.match(await own.innerText(), "last used just now · signed in just now");
      t.same(faults, []);
    }
  });

  await t.test(
    "a page opened by URL starts at its top, and a reload keeps the scroll position",
    async (t) => {
      const { page, faults } = await world.open(t, "/developers", { width: 360, height: 740 });
      await page.getByText("Connect over MCP").waitFor();
      await page.evaluate("scrollTo(0, 400)");
      await page.reload();
      await page.waitForFunction(() => scrollY === 400);
      await page.goto(`${world.baseUrl}/facilitator`);
      await page.getByText("Relayers").waitFor();
      t.equal(await page.evaluate("scrollY"), 0);
      t.same(faults, []);
    },
  );

  await t.test("every screen survives an API outage, and loads when the API is back", async (t) => {
    const { page, faults } = await signedIn("/agents");
    const screens = [
      { path: "/agents", down: "Agents could not be loaded", up: "steady" },
      { path: base, down: "The agent could not be loaded", up: "Can pay now" },
      { path: `${base}/keys`, down: "The agent could not be loaded", up: "API keys" },
      { path: `${base}/audit`, down: "The agent could not be loaded", up: "Agent created" },
      { path: "/marketplace", down: "The marketplace could not be loaded", up: "/statistics/" },
      {
        path: "/developers/errors",
        down: "The catalogue could not be loaded",
        up: "daily_limit_exceeded",
      },
      { path: "/settings", down: "Sessions could not be loaded", up: "This device" },
    ];
    const outage = "**/api/{agents,agents?*,agents/**,overview*,listings*,errors,auth/sessions*}";
    for (const { path, down, up } of screens) {
      await page.route(outage, (route) => route.abort());
      await page.goto(world.baseUrl + path);
      const notice = page.getByRole("alert").filter({ hasText: down }).first();
      await notice.waitFor({ timeout: 20_000 });
      await page.unroute(outage);
      await notice.getByRole("button", { name: "Try again" }).click();
      await page
        .getByText(up.startsWith("/") ? /statistics/i : up)
        .first()
        .waitFor();
      t.pass(path);
    }
    t.same(faults, []);
  });

  await t.test("the browser identifies the audit entry that was changed", async () => {
    const { page } = await signedIn("/settings");
    await page.getByText(/Verified up to entry \d+/).waitFor();
    const { pool } = world.database;
    const change = async (sql: string) => {
      await pool.query("ALTER TABLE audit_log DISABLE TRIGGER audit_log_kept");
      await pool.query(`UPDATE audit_log SET ${sql} WHERE seq = (SELECT max(seq) FROM audit_log)`);
      await pool.query("ALTER TABLE audit_log ENABLE ALWAYS TRIGGER audit_log_kept");
      await page.reload();
    };
    await change("hash = sha256(hash)");
    await page.getByText(/Entry \d+ differs from the one this browser checked before/).waitFor();
    await page.evaluate("localStorage.clear()");
    await page.reload();
    await page.getByText(/Entry \d+ does not match its own hash/).waitFor();
    await change("hash = sha256(prev_hash || convert_to(body, 'UTF8'))");
    await page.getByText(/Verified up to entry \d+/).waitFor();
  });

  await t.test("a later response that fails leaves the user's input in the form", async (t) => {
    const { page, faults } = await signedIn(`${base}/rules`);
    const limit = page.getByLabel("Daily limit");
    await limit.fill("3.5");
    // The page requests the agent every ten seconds.
    await page.route(`**/api/agents/${agent.id}`, (route) => route.abort());
    const notice = page.getByRole("alert").filter({ hasText: "This may be out of date" });
    await notice.waitFor({ timeout: 20_000 });
    t.equal(await limit.inputValue(), "3.5");
    await page.unroute(`**/api/agents/${agent.id}`);
    await notice.getByRole("button", { name: "Try again" }).click();
    await notice.waitFor({ state: "detached" });
    t.equal(await limit.inputValue(), "3.5");
    t.same(faults, []);
  });

  await t.test("a service that does not respond is not a sign-out", async (t) => {
    const { page } = await signedIn("/agents");
    await page.route("**/api/**", (route) => route.abort());
    await page.reload();
    await page.getByText("Your session could not be checked").waitFor({ timeout: 20_000 });
    t.equal(await page.getByText("Sign in to Purser").count(), 0);
    await page.unroute("**/api/**");
    // The app tries again by itself.
    await page.getByRole("link", { name: "steady" }).waitFor();
  });

  await t.test("an account of another cell: the user reads where to sign in", async (t) => {
    const { page } = await world.open(t, "/agents");
    await page.route("**/api/auth/verify", (route) =>
      route.fulfill({
        status: 421,
        contentType: "application/problem+json",
        body: JSON.stringify({
          code: "other_cell",
          detail: "This account belongs to the cell c2: sign in at https://c2.purser.example.",
          cell: "c2",
          url: "https://c2.purser.example",
          requestId: "req_of_this_test",
        }),
      }),
    );
    await signInWithDemoWallet(page);
    const sentence = page.getByText("sign in at https://c2.purser.example");
    await sentence.waitFor();
    await picture(page, "sign-in-other-cell");
    t.equal(await page.getByRole("link", { name: "steady" }).count(), 0);
  });

  await t.test("a refusal is shown at the action, with its request id", async (t) => {
    const { page } = await signedIn(`${base}/withdraw`);
    await page.getByLabel("Amount").fill("0.5");
    await page.route("**/withdrawals/prepare", (route) =>
      route.fulfill({
        status: 503,
        contentType: "application/problem+json",
        body: JSON.stringify({
          code: "chain_unavailable",
          detail: "The chain cannot be reached; nothing was signed.",
          suggestion: "Retry later.",
          requestId: "req_of_this_test",
        }),
      }),
    );
    // The balance is zero, so the form reports that first.
    await page.getByText("The agent has no balance to withdraw.").waitFor();
    await world.chain.mint(agent.walletAddress, 1_000_000n);
    await page.getByText("1.00 USDC").first().waitFor({ timeout: 20_000 });
    await page.getByRole("button", { name: "Review withdrawal" }).click();
    const notice = page
      .getByRole("alert")
      .filter({ hasText: "The withdrawal could not be prepared" });
    await notice.getByText("The chain cannot be reached").waitFor();
    await notice.getByText("req_of_this_test").waitFor();
    t.equal(await page.getByLabel("Amount").inputValue(), "0.5");
    await page.unroute("**/withdrawals/prepare");
    await page.getByRole("button", { name: "Review withdrawal" }).click();
    await page.getByText("goes from steady to your wallet.").waitFor();
  });

  await t.test(
    "a withdrawal whose response was lost after signing is retried, and pays once",
    async (t) => {
      const { page } = await signedIn(`${base}/withdraw`);
      await page.getByLabel("Amount").fill("0.25");
      await page.getByRole("button", { name: "Review withdrawal" }).click();
      let isLost = false;
      await page.route("**/withdrawals", async (route) => {
        if (isLost) return route.continue();
        isLost = true;
        await route.fetch();
        await route.abort();
      });
      await page.getByRole("button", { name: "Sign and withdraw" }).click();
      await page.getByText("The outcome is not known yet.").waitFor();
      await page.getByRole("button", { name: "Check again" }).click();
      await page.getByText("Confirmed on chain.").waitFor();
      await page.getByText("0.75 USDC").first().waitFor({ timeout: 20_000 });
      t.pass("one withdrawal only");
    },
  );

  await t.test("pages of missing items report that", async (t) => {
    const { page } = await signedIn("/agents/agt_nobody");
    await page.getByRole("heading", { name: "Agent not found" }).waitFor();
    await page.goto(`${world.baseUrl}/no/such/place`);
    await page.getByRole("heading", { name: "Page not found" }).waitFor();
    t.pass("both");
  });
});
