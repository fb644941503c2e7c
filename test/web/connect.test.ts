// Goal: an owner connects a program by OAuth through the screens: the official client pays from a new machine without a copied key.
import t, { type Test } from "tap";
import { asOwner, createAgent, signIn } from "../helpers/owner.ts";
import {
  connectClient,
  listenForCallback,
  MemoryProvider,
  type Callback,
} from "../helpers/mcp-oauth-client.ts";
import { openPage } from "../helpers/browser.ts";
import { injectWallet } from "./injected-wallet.ts";
import { picture } from "./pictures.ts";
import { DEMO_OWNER, signInWithDemoWallet, webWorld } from "./world.ts";
import { toolResult } from "../helpers/tool-result.ts";

const world = await webWorld(t);
const owner = await signIn(world, DEMO_OWNER);
const demoUrl = `${world.baseUrl}/api/arc-stats`;
const [seller] = [world.config.demoPayTo ?? "0x"];
const agent = await createAgent(world, owner, {
  name: "research-agent",
  dailyLimit: "5",
  allowlist: [{ address: seller, label: "Chain statistics" }],
});
await world.chain.mint(agent.walletAddress, 10_000_000n);
/** As a user does it: signs in when required, chooses the agent, presses the button. */
async function consentInBrowser(t: Test, consentUrl: URL, callback: Callback): Promise<URL> {
  const { page, faults } = await world.open(t, consentUrl.pathname + consentUrl.search);
  await signInWithDemoWallet(page);
  await page.getByRole("heading", { name: "Connect Official Client?" }).waitFor();
  await picture(page, "consent", true);
  await page.getByRole("radio", { name: /research-agent/ }).check();
  await page.getByRole("button", { name: "Connect to research-agent" }).click();
  const back = await callback.came;
  await page.getByText("You may close this window.").waitFor();
  t.same(faults, [], "no policy violation, no uncaught error");
  return back;
}

t.test("the first paid call from a new machine, without a copied key", async (t) => {
  const callback = await listenForCallback(t);
  const provider = new MemoryProvider(callback.url);
  const startedMs = performance.now();
  const client = await connectClient(`${world.baseUrl}/mcp`, provider, async (consentUrl) => {
    const back = await consentInBrowser(t, consentUrl, callback);
    t.equal(back.searchParams.get("state"), provider.sentState);
    t.equal(back.searchParams.get("iss"), world.config.publicUrl);
    return back;
  });
  const paid = await client.callTool({
    name: "x402_fetch",
    arguments: { url: demoUrl, maxAmount: "0.01" },
  });
  t.match(toolResult(paid), { paid: true, amountPaid: "0.001" }, JSON.stringify(paid));
  t.ok(performance.now() - startedMs < 120_000, "within two minutes");

  await t.test("a token refresh by the client itself", async (t) => {
    const { saved } = provider;
    if (saved) provider.saved = { ...saved, access_token: "purser_at_wornout" };
    const again = await connectClient(`${world.baseUrl}/mcp`, provider, () => {
      throw new Error("the owner must not have to approve again");
    });
    t.notOk((await again.callTool({ name: "wallet_status", arguments: {} })).isError);
    t.not(provider.saved?.refresh_token, saved?.refresh_token, "the refresh token is a new one");
    await again.close();
  });

  await t.test("the owner sees the connection and its use, and ends it", async (t) => {
    const { page, faults } = await world.open(t, `/agents/${agent.id}/keys`);
    await signInWithDemoWallet(page);
    const section = page.getByRole("region", { name: "Connected programs" });
    const row = section.getByRole("listitem").filter({ hasText: "Official Client" });
    await row.getByText("this computer").waitFor();
    await row.getByText(/^Used/).waitFor();
    await picture(page, "connections", true);
    await row.getByRole("button", { name: /^End/ }).click();
    await page.getByRole("dialog").getByRole("button", { name: "End connection" }).click();
    await row.getByText("Ended", { exact: true }).waitFor();
    await t.rejects(client.callTool({ name: "wallet_status", arguments: {} }), "ended immediately");
    await page.goto(`${world.baseUrl}/agents/${agent.id}/audit`);
    await page.getByText("Connection granted").first().waitFor();
    await page.getByText("Connection revoked").first().waitFor();
    t.same(faults, []);
  });
  await client.close();
});

t.test("an agent created during the connection leaves no unused first key", async (t) => {
  const callback = await listenForCallback(t);
  const provider = new MemoryProvider(callback.url);
  const client = await connectClient(`${world.baseUrl}/mcp`, provider, async (consentUrl) => {
    const { page, faults } = await world.open(t, consentUrl.pathname + consentUrl.search);
    await signInWithDemoWallet(page);
    await page
      .getByRole("radio", { name: "Can pay 4.999 USDC now, capped by the daily limit" })
      .waitFor();
    await page.getByRole("button", { name: "New agent" }).click();
    await page.getByLabel("Name").fill("made-on-the-way");
    await page.getByRole("textbox", { name: "Daily limit" }).fill("1");
    await picture(page, "consent-new-agent", true);
    await page.getByRole("button", { name: "Create agent" }).click();
    await page.getByRole("button", { name: "Connect to made-on-the-way" }).click();
    const back = await callback.came;
    t.same(faults, []);
    return back;
  });
  const status = await client.callTool({ name: "wallet_status", arguments: {} });
  t.match(toolResult(status), { name: "made-on-the-way" });
  const { id } = toolResult(status) as { id: string };
  const keys = await asOwner(world.app, owner, { method: "GET", url: `/api/agents/${id}/keys` });
  t.match(
    keys.json(),
    { items: [{ status: "revoked" }] },
    "the key that was never shown is revoked",
  );
  await client.close();
});

t.test("the owner's own wallet shows the permissions, and the owner may decline", async (t) => {
  const callback = await listenForCallback(t);
  const provider = new MemoryProvider(callback.url);
  const client = await connectClient(`${world.baseUrl}/mcp`, provider, async (consentUrl) => {
    const { page, faults } = await openPage(t, world.browser);
    const wallet = await injectWallet(page, DEMO_OWNER, { chainId: world.chain.chainId });
    await page.goto(consentUrl.href);
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("radio", { name: /research-agent/ }).check();
    const press = page.getByRole("button", { name: "Connect to research-agent" });
    wallet.rejectNext("eth_signTypedData_v4");
    await press.click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("You declined in your wallet.").waitFor();
    const connections = () =>
      asOwner(world.app, owner, { method: "GET", url: `/api/agents/${agent.id}/connections` });
    const active = (await connections()).json<{ items: { status: string }[] }>().items;
    t.notOk(
      active.some(({ status }) => status === "active"),
      "without the wallet's signature nothing is connected",
    );
    await dialog.getByRole("button", { name: "Sign again" }).click();
    const back = await callback.came;
    const shown = wallet.requests.findLast(({ method }) => method === "eth_signTypedData_v4");
    const [, typedData = "{}"] = (shown?.params ?? []) as string[];
    const { primaryType, message } = JSON.parse(typedData) as Record<string, unknown>;
    t.equal(primaryType, "IssueKey");
    t.match(message, {
      agent: agent.id,
      label: 'Connection to this computer, named "Official Client"',
    });
    t.same(faults, []);
    return back;
  });
  t.notOk((await client.callTool({ name: "wallet_status", arguments: {} })).isError);
  await client.close();
});

t.test("declining a connection", async (t) => {
  const callback = await listenForCallback(t);
  const provider = new MemoryProvider(callback.url);
  await t.rejects(
    connectClient(`${world.baseUrl}/mcp`, provider, async (consentUrl) => {
      const { page } = await world.open(t, consentUrl.pathname + consentUrl.search);
      await signInWithDemoWallet(page);
      await page.getByRole("button", { name: "Cancel" }).click();
      const back = await callback.came;
      t.equal(back.searchParams.get("error"), "access_denied");
      t.equal(back.searchParams.get("state"), provider.sentState);
      t.equal(back.searchParams.get("iss"), world.config.publicUrl);
      return back;
    }),
  );
});

t.test("a redirect URI that the program did not register is shown, and not followed", async (t) => {
  const answer = await world.app.inject({
    method: "POST",
    url: "/oauth/register",
    payload: { client_name: "Stranger", redirect_uris: ["https://honest.example/back"] },
  });
  const { client_id: clientId } = answer.json<{ client_id: string }>();
  const query = new URLSearchParams({
    client_id: clientId,
    response_type: "code",
    redirect_uri: "https://evil.example/back",
    code_challenge: "a".repeat(43),
    code_challenge_method: "S256",
  });
  const { page } = await world.open(t, `/oauth/authorize?${query.toString()}`);
  await signInWithDemoWallet(page);
  await page.getByRole("heading", { name: "This program cannot be connected" }).waitFor();
  await page.getByText("did not register this address at evil.example").waitFor();
  await picture(page, "consent-refused", true);
  t.ok(page.url().startsWith(world.baseUrl), "the browser stayed on the service");
  t.equal(await page.getByRole("button", { name: /Go back/ }).count(), 0);
  const frame = await world.app.inject({ url: "/oauth/authorize" });
  t.match(frame.headers["content-security-policy"], /frame-ancestors 'none'/);
  t.equal(frame.headers["x-frame-options"], "DENY");
});
