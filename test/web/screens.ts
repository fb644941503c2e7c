// Every screen of the app, filled with data, for checks that must hold on all of them.
import type { Page } from "playwright-core";
import { testAccount } from "../helpers/chain.ts";
import { asOwner, createAgent, nameRecoveryWallet, signIn } from "../helpers/owner.ts";
import { connect, register } from "../helpers/oauth.ts";
import { pay } from "../merchants/world.ts";
import { asAgent, DEMO_OWNER, type WebWorld } from "./world.ts";

export interface Screen {
  name: string;
  path: string;
  /** The screen is complete when this text is visible. */
  ready: string | RegExp;
  /** An action that leads to the wanted state, such as an open dialog. */
  act?: (page: Page) => Promise<unknown>;
}

/** The demo owner's recovery wallet. */
export const SECOND = testAccount(73);

export const PUBLIC_SCREENS: Screen[] = [
  { name: "landing", path: "/", ready: "Arc Testnet, block" },
  { name: "sign-in", path: "/agents", ready: "Built in, for local testing only" },
  {
    name: "sign-in-preview",
    path: "/agents",
    ready: "Built in, for local testing only",
    act: async (page) => {
      await page.getByRole("button", { name: /Demo wallet/ }).click();
      await page.getByText("What you will sign").click();
    },
  },
  {
    name: "sign-in-second",
    path: "/agents",
    ready: "Built in, for local testing only",
    act: (page) => page.getByRole("button", { name: "Use a recovery wallet" }).click(),
  },
  { name: "marketplace", path: "/marketplace", ready: /statistics/i },
  { name: "marketplace-search", path: "/marketplace?search=statistic", ready: /statistics/i },
  { name: "validate", path: "/validate?url=https%3A%2F%2F10.0.0.1%2F&method=POST", ready: "Body" },
  {
    name: "validate-blocked",
    path: "/validate?url=https%3A%2F%2F10.0.0.1%2F",
    ready: "Method",
    act: async (page) => {
      await page.getByRole("button", { name: "Check it" }).click();
      await page.getByText("url_blocked").waitFor();
    },
  },
  { name: "facilitator", path: "/facilitator", ready: "Relayers" },
  { name: "developers", path: "/developers", ready: "Connect over MCP" },
  { name: "errors", path: "/developers/errors#invalid_amount", ready: "daily_limit_exceeded" },
  { name: "not-found", path: "/nowhere", ready: "Page not found" },
];

/** What an owner sees who has no agent yet, and then the first one. */
export const NEW_OWNER_SCREENS: Screen[] = [
  { name: "agents-none", path: "/agents", ready: "No agents yet" },
  {
    name: "agent-new-template",
    path: "/agents/new?template=data",
    ready: "Data buyer can spend",
  },
  {
    name: "agent-created-steps",
    path: "/agents/new?template=shop",
    ready: "Shop assistant pays nothing by itself",
    act: async (page) => {
      await page.getByRole("button", { name: "Create agent" }).click();
      await page.getByText("Waiting for the first call").waitFor();
    },
  },
  { name: "spending-none", path: "/spending", ready: "Nothing spent in this time" },
  { name: "budgets-none", path: "/budgets", ready: "No budgets" },
  { name: "agents-first-steps", path: "/agents", ready: "Waiting for the first call" },
  { name: "stop", path: "/agents", ready: "Waiting for the first call", act: askToStop },
  {
    name: "stopped",
    path: "/agents",
    ready: "Waiting for the first call",
    act: async (page) => {
      await askToStop(page);
      await page.getByRole("dialog").getByRole("button", { name: "Stop everything" }).click();
      await page.getByText("1 agent is paused").first().waitFor();
    },
  },
];

async function askToStop(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Stop everything" }).click();
  await page.getByText("Stop everything?").waitFor();
}

/** Fills the demo owner's account with data and returns the screens that show it. */
export async function ownerScreens(world: WebWorld): Promise<Screen[]> {
  const owner = await signIn(world, DEMO_OWNER);
  const payee = testAccount(70).address;
  const agent = await createAgent(world, owner, {
    name: "research-agent",
    dailyLimit: "5",
    weeklyLimit: "20",
    monthlyLimit: "60",
    perPaymentLimit: "4",
    paymentsPerHour: 30,
    allowlist: [
      { address: payee, label: "Weather API" },
      {
        address: testAccount(72).address,
        label: "News",
        dailyLimit: "1.5",
        expiresAt: new Date(Date.now() + 30 * 86_400_000).toISOString(),
      },
    ],
  });
  const idle = await createAgent(world, owner, { name: "idle-agent", dailyLimit: "0" });
  await asOwner(world.app, owner, {
    method: "PATCH",
    url: `/api/agents/${idle.id}`,
    body: { status: "paused" },
  });
  await asOwner(world.app, owner, {
    method: "POST",
    url: "/api/budgets",
    body: {
      name: "Research team",
      dailyLimit: "4",
      monthlyLimit: "50",
      agents: [agent.id, idle.id],
    },
  });
  await world.chain.mint(agent.walletAddress, 12_500_000n);
  for (const task of [
    { id: "night-run", limit: "10" },
    { id: "report-2026-11", limit: "4", name: "The report for November" },
  ])
    await world.app.inject({
      method: "POST",
      url: "/api/agents/tasks",
      headers: { authorization: `Bearer ${agent.apiKey}`, "content-type": "application/json" },
      payload: JSON.stringify(task),
    });
  await asAgent(world, agent.apiKey, "spend", {
    recipient: payee,
    amount: "3.2",
    memo: "Forecast",
    task: "report-2026-11",
  });
  await asAgent(world, agent.apiKey, "spend", { recipient: payee, amount: "2" });
  const unlisted = { recipient: testAccount(71).address, amount: "0.4" };
  const blocked = await asAgent(world, agent.apiKey, "spend", unlisted);
  const requested = await asAgent(world, agent.apiKey, "spend", {
    ...unlisted,
    amount: "1.25",
    requestApproval: true,
    reason: "The forecast for tomorrow is only sold there.",
  });
  await connect(world, owner, agent.id);
  const asking = new URLSearchParams({
    client_id: await register(world, { redirect_uris: ["https://assistant.example/callback"] }),
    redirect_uri: "https://assistant.example/callback",
    response_type: "code",
    code_challenge: "x".repeat(43),
    code_challenge_method: "S256",
  });
  const consent = `/oauth/authorize?${asking.toString()}`;
  await subscribe(world, owner.account.address);
  await asAgent(world, agent.apiKey, "spend", { recipient: payee, amount: "0.3" });
  const overBudget = await asAgent(world, agent.apiKey, "spend", {
    recipient: payee,
    amount: "0.6",
  });
  await nameRecoveryWallet(world.app, owner, SECOND);
  for (const [which, note] of [
    [{ payee: testAccount(75).address }, "Sent nothing for two payments"],
    [{ site: "https://shop.example" }, ""],
  ] as const)
    await asOwner(world.app, owner, {
      method: "POST",
      url: "/api/owner/denied-payees",
      body: { ...which, note },
    });
  const listings = await world.app.inject({ url: "/api/listings" });
  const [listing] = listings.json<{ items: { id: string }[] }>().items;
  const payer = testAccount(74);
  await world.chain.mint(payer.address, 9_000_000n);
  const settlementId = await pay({ ...world, payer }, DEMO_OWNER.address, "2500000");
  const made = await asOwner(world.app, owner, {
    method: "POST",
    url: `/api/merchant/settlements/${settlementId}/receipt`,
    body: {},
  });
  const base = `/agents/${agent.id}`;
  return [
    { name: "agents", path: "/agents", ready: "idle-agent" },
    { name: "merchant", path: "/merchant", ready: "No refused payments." },
    {
      name: "merchant-settlement",
      path: `/merchant?settlement=${settlementId}`,
      ready: "Sign and refund",
    },
    {
      name: "receipt",
      path: `/receipts/${made.json<{ id: string }>().id}`,
      ready: "Check it yourself",
    },
    { name: "agent-new", path: "/agents/new", ready: "Create agent" },
    {
      name: "agent-new-errors",
      path: "/agents/new",
      ready: "Create agent",
      act: (page) => page.getByRole("button", { name: "Create agent" }).click(),
    },
    {
      name: "agent-key",
      path: "/agents/new",
      ready: "Create agent",
      act: async (page) => {
        await page.getByLabel("Name").fill("screen-agent");
        await page.getByLabel("Daily limit").fill("1");
        await page.getByRole("button", { name: "Create agent" }).click();
        await page.getByText("This key is shown once.").waitFor();
      },
    },
    {
      name: "agent-new-limits",
      path: "/agents/new",
      ready: "Create agent",
      act: (page) => page.getByText("More limits").click(),
    },
    { name: "agent", path: base, ready: "daily limit exceeded" },
    {
      name: "agent-raise-limit",
      path: base,
      ready: "daily limit exceeded",
      act: async (page) => {
        const row = page.getByRole("listitem").filter({ hasText: "daily limit exceeded" });
        await row.getByRole("button").click();
        await page.getByLabel("New daily limit").waitFor();
      },
    },
    {
      name: "agent-payment",
      path: `${base}?payment=${String(blocked.body.paymentId)}`,
      ready: "Allow this payee",
    },
    {
      name: "agent-signing-fix",
      path: `${base}?payment=${String(blocked.body.paymentId)}`,
      ready: "Allow this payee",
      act: async (page) => {
        await page.getByRole("button", { name: "Allow this payee" }).click();
        // A page that was just opened has no connected wallet.
        const demo = page.getByRole("button", { name: /^Demo wallet/ });
        const sign = page.getByRole("button", { name: "Sign", exact: true });
        await demo.or(sign).first().waitFor();
      },
    },
    {
      name: "agent-never-pay",
      path: `${base}?payment=${String(blocked.body.paymentId)}`,
      ready: "Allow this payee",
      act: async (page) => {
        await page.getByRole("button", { name: "Never pay this payee again" }).click();
        await page.getByText("None of your agents pays").waitFor();
      },
    },
    {
      name: "agent-faucet",
      path: base,
      ready: "daily limit exceeded",
      act: async (page) => {
        await page.getByRole("button", { name: "Fund", exact: true }).click();
        await page.getByRole("button", { name: "Get 100.00 USDC" }).waitFor();
      },
    },
    {
      name: "agent-fund",
      path: base,
      ready: "daily limit exceeded",
      act: async (page) => {
        await page.getByRole("button", { name: "Fund", exact: true }).click();
        await page.getByRole("radio", { name: "Address" }).check();
        await page.getByRole("img", { name: /QR code/ }).waitFor();
      },
    },
    { name: "agent-tasks", path: `${base}/tasks`, ready: "The report for November" },
    { name: "agent-rules", path: `${base}/rules`, ready: "Allowed payees" },
    {
      name: "agent-rules-diff",
      path: `${base}/rules`,
      ready: "Allowed payees",
      act: (page) => page.getByLabel("Daily limit").fill("25"),
    },
    {
      name: "agent-rules-payee",
      path: `${base}/rules`,
      ready: "Allowed payees",
      act: (page) => page.getByRole("button", { name: "Limits of News" }).click(),
    },
    {
      name: "agent-rules-tighter",
      path: `${base}/rules`,
      ready: "Allowed payees",
      act: (page) => page.getByLabel("Daily limit").first().fill("4.5"),
    },
    {
      name: "agent-rules-signing",
      path: `${base}/rules`,
      ready: "Allowed payees",
      act: async (page) => {
        await page.route(`**/api${base}`, (route) =>
          route.request().postData()?.includes("signature") ? route.abort() : route.continue(),
        );
        await page.getByLabel("Daily limit").first().fill("25");
        await page.getByRole("button", { name: "Sign and save changes" }).click();
        await page.getByText("the response was lost").waitFor();
        await page.unroute(`**/api${base}`);
      },
    },
    { name: "consent", path: consent, ready: "Which agent may it use?" },
    {
      name: "consent-new-agent",
      path: consent,
      ready: "Which agent may it use?",
      act: (page) => page.getByRole("button", { name: "New agent" }).click(),
    },
    {
      name: "consent-refused",
      path: `${consent}&scope=a&scope=b`,
      ready: "This program cannot be connected",
    },
    { name: "agent-keys", path: `${base}/keys`, ready: "Rotate" },
    {
      name: "agent-key-new",
      path: `${base}/keys`,
      ready: "Rotate",
      act: (page) => page.getByRole("button", { name: "New key" }).click(),
    },
    {
      name: "agent-connection-end",
      path: `${base}/keys`,
      ready: "Test Program",
      act: (page) => page.getByRole("button", { name: "End the connection" }).click(),
    },
    { name: "agent-withdraw", path: `${base}/withdraw`, ready: "Review withdrawal" },
    {
      name: "agent-withdraw-review",
      path: `${base}/withdraw`,
      ready: "Review withdrawal",
      act: async (page) => {
        await page.getByRole("button", { name: "Max" }).click();
        await page.getByRole("button", { name: "Review withdrawal" }).click();
        await page.getByRole("region", { name: "What your wallet shows" }).waitFor();
      },
    },
    { name: "agent-audit", path: `${base}/audit`, ready: /created/i },
    { name: "spending", path: "/spending?period=30-days", ready: "Forecast" },
    {
      name: "spending-only-agent",
      path: "/spending?period=30-days&search=Forecast",
      ready: "Forecast",
      act: async (page) => {
        await page
          .getByRole("region", { name: "Agents" })
          .getByRole("button", { name: "research-agent" })
          .click();
        await page.getByRole("button", { name: /^Only agent/ }).waitFor();
        await page.getByRole("button", { name: "Save filter" }).click();
        await page.getByLabel("Name").fill("Forecasts");
        // Not with the mouse: the dialog closes, and the chart below would show a tooltip.
        await page.keyboard.press("Enter");
        await page.getByLabel("Saved filters").waitFor();
      },
    },
    { name: "budgets", path: "/budgets", ready: "Research team" },
    {
      name: "budget-new",
      path: "/budgets",
      ready: "Research team",
      act: (page) => page.getByRole("button", { name: "New budget" }).click(),
    },
    {
      name: "budget-change",
      path: "/budgets",
      ready: "Research team",
      act: async (page) => {
        await page.getByRole("button", { name: "Change Research team" }).click();
        await page.getByLabel("In any 24 hours").fill("9");
        await page.getByRole("button", { name: "Sign and save" }).waitFor();
      },
    },
    {
      name: "budget-agents",
      path: "/budgets",
      ready: "Research team",
      act: async (page) => {
        await page.getByRole("button", { name: "Agents of Research team" }).click();
        await page.getByRole("button", { name: "Take out idle-agent" }).waitFor();
      },
    },
    {
      name: "budget-archive",
      path: "/budgets",
      ready: "Research team",
      act: (page) => page.getByRole("button", { name: "Archive Research team" }).click(),
    },
    {
      name: "agent-payment-budget",
      path: `${base}?payment=${String(overBudget.body.paymentId)}`,
      ready: "Open the budgets",
    },
    { name: "approvals", path: "/approvals", ready: "Requests from your agents" },
    {
      name: "approval",
      path: `/approvals?approval=${String(requested.body.approvalId)}`,
      ready: "Allow once",
    },
    { name: "listing", path: `/marketplace/${listing?.id}`, ready: "Dry run" },
    {
      name: "listing-new",
      path: "/marketplace",
      ready: "List an API",
      act: (page) => page.getByRole("button", { name: "List an API" }).click(),
    },
    { name: "notifications", path: "/notifications", ready: "research-agent paid" },
    {
      name: "notifications-devices",
      path: "/notifications/devices",
      ready: /Notify me on this device|are blocked|not set up to send messages/,
    },
    {
      name: "notifications-email",
      path: "/notifications/email",
      ready: /Immediate alerts|not set up to send/,
    },
    {
      name: "notifications-webhooks",
      path: "/notifications/webhooks",
      ready: "The target says no",
    },
    {
      name: "notifications-webhook-new",
      path: "/notifications/webhooks",
      ready: "The target says no",
      act: async (page) => {
        await page.getByRole("button", { name: "Add webhook" }).click();
        await page.getByLabel("All events, including new kinds added later").uncheck();
      },
    },
    {
      name: "notifications-deliveries",
      path: "/notifications/webhooks",
      ready: "The target says no",
      act: async (page) => {
        await page.getByRole("button", { name: /^Deliveries/ }).click();
        await page
          .getByRole("button", { name: /^Send again/ })
          .first()
          .waitFor();
      },
    },
    { name: "agent-pause-link", path: `${base}?do=pause`, ready: "Nothing has changed yet" },
    ...(await operatorScreens(world)),
    { name: "settings", path: "/settings", ready: "This device" },
    // What a team sees is checked in teams.test.ts.
    { name: "teams", path: "/team", ready: "Sign and make the team" },
    { name: "join", path: "/join?order=wto_none", ready: "No invitation waits" },
    { name: "invitations", path: "/waiting", ready: "No invitations" },
    {
      name: "settings-never-pay",
      path: "/settings",
      ready: "Sent nothing for two payments",
      act: async (page) => {
        await page.getByLabel("Address or website").fill("0x12");
        await page.getByRole("button", { name: "Never pay this", exact: true }).click();
        await page.getByText("An address is 0x followed by").waitFor();
      },
    },
    {
      name: "settings-second",
      path: "/settings",
      ready: "This device",
      act: async (page) => {
        await page.getByText("Make the recovery wallet the owner").waitFor();
        await page.getByText(/Verified up to entry/).waitFor();
      },
    },
    {
      name: "agent-paused",
      path: base,
      ready: "daily limit exceeded",
      act: async (page) => {
        await page.getByRole("button", { name: "Pause", exact: true }).click();
        await page.getByRole("alert").getByRole("button", { name: "Close" }).waitFor();
      },
    },
  ];
}

/** The operators' page with an open difference, and the dialogs of its actions. */
async function operatorScreens({ database, chain }: WebWorld): Promise<Screen[]> {
  await database.pool.query(
    `INSERT INTO ledger_differences (chain_id, kind, key, detail, healed_at)
     VALUES ($1, 'transfer_unknown', '0x1:0x2', '{}', NULL), ($1, 'payment_open', '0x3:0x4', '{}', now())`,
    [chain.chainId],
  );
  const path = "/operator";
  const ready = "The ledger and the chain differ in 1 place.";
  return [
    {
      name: "operator",
      path,
      ready,
      act: async (page) => {
        await page.getByRole("button", { name: "Run the checks" }).click();
        await page.getByText(/checks are fine/).waitFor();
        await page.getByText(/^The service \(/).click();
      },
    },
    {
      name: "operator-close",
      path,
      ready,
      act: async (page) => {
        await page.getByRole("button", { name: /^Close transfer_unknown/ }).click();
        await page.getByLabel("Reason").fill("Seen by hand");
      },
    },
    {
      name: "operator-read-again",
      path,
      ready,
      act: async (page) => {
        await page.getByRole("button", { name: /^Read again/ }).click();
        await page.getByLabel("From block").fill("x");
      },
    },
  ];
}

/** @param shown the screen that the page shows already, with no action done on it */
export async function show(
  page: Page,
  world: WebWorld,
  screen: Screen,
  shown?: Screen,
): Promise<void> {
  if (shown?.path !== screen.path) await page.goto(world.baseUrl + screen.path);
  await page.getByText(screen.ready).first().waitFor();
  await screen.act?.(page);
}

/** A disabled webhook with deliveries in its log, and a confirmed email address. */
async function subscribe({ database: { pool } }: WebWorld, address: string): Promise<void> {
  const ids = "FROM owners WHERE address = $1";
  const owner = [address.toLowerCase()];
  await pool.query(
    `INSERT INTO webhooks (id, owner_id, url, types, secret, secret_kid, secret_hint)
     SELECT 'whk_' || repeat('0', 26), id, 'https://hooks.example.com/purser', '{*}', '', 'test', '…x9Qk' ${ids}`,
    owner,
  );
  await pool.query(`SELECT purser_notify(id, 'webhook.test', NULL, 'whk_0', '{}') ${ids}`, owner);
  await pool.query(
    "UPDATE webhook_deliveries SET status = 'given_up', attempts = 9, last_status = 500, last_error = 'The target answered 500'",
  );
  await pool.query(
    "UPDATE webhooks SET status = 'disabled', disabled_reason = 'The target says no.', retry_at = 'infinity'",
  );
  await pool.query(
    `INSERT INTO email_addresses (owner_id, address, confirmed_at, digest, urgent, next_digest_at)
     SELECT id, 'owner@mail.example', now(), 'daily', '{key.created}', now() + interval '1 day' ${ids}`,
    owner,
  );
}
