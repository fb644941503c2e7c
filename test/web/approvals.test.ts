// Goal: an owner sees on every page that an agent requests approval, decides it with one press and at most
// one wallet window, and looking at it changes nothing.
import t from "tap";
import { testAccount } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { usdcOf } from "../spending/ledger.helper.ts";
import { picture, stepsOf } from "./pictures.ts";
import { asAgent, DEMO_OWNER, signInWithDemoWallet, webWorld } from "./world.ts";

t.test("from a denied payment to an approved one", async (t) => {
  const world = await webWorld(t);
  const owner = await signIn(world, DEMO_OWNER);
  const agent = await createAgent(world, owner, { name: "research-agent" });
  await world.chain.mint(agent.walletAddress, 9_000_000n);
  const { page, faults } = await world.open(t, "/settings", { reducedMotion: "reduce" });
  await signInWithDemoWallet(page);
  await page.getByRole("heading", { name: "Settings" }).waitFor();
  const head = page.getByRole("link", { name: /^Approvals/ });
  const payee = testAccount(95).address;
  const requestApproval = async (amount: string): Promise<string> => {
    const answer = await asAgent(world, agent.apiKey, "spend", {
      recipient: payee,
      amount,
      requestApproval: true,
      reason: "The forecast for tomorrow is only sold there.",
    });
    t.equal(answer.status, 202, JSON.stringify(answer.body));
    return String(answer.body.approvalId);
  };
  const step = stepsOf(t);
  let id = "";

  await step("the badge appears live, on any page", async () => {
    id = await requestApproval("1.25");
    await head.getByText("1 waiting for you").waitFor();
    await picture(page, "badge");
  });

  await step("opening the link shows everything and decides nothing", async (t) => {
    await page.goto(`${world.baseUrl}/approvals?approval=${id}`);
    const drawer = page.getByRole("dialog");
    await drawer.getByRole("button", { name: "Allow once" }).waitFor();
    await drawer.getByText(payee).waitFor();
    await drawer.getByText("The recipient is not on the agent's allowlist.").waitFor();
    await drawer.getByText("The forecast for tomorrow").waitFor();
    await drawer.getByText("The agent may then pay within an hour.").waitFor();
    await drawer.getByText("Decide before").waitFor();
    // The time with its zone, beside how long that is.
    await drawer.getByText(/\d\d:\d\d:\d\d (UTC|GMT|[A-Z]+).*, in \d+ hr\./).waitFor();
    await picture(page, "drawer");
    const { rows } = await world.database.pool.query("SELECT state FROM approvals");
    t.same(rows, [{ state: "open" }]);
  });

  await step("one press allows it, and the agent's repeat pays", async (t) => {
    await page.getByRole("dialog").getByRole("button", { name: "Allow once" }).click();
    await page.getByRole("dialog").getByText("Allowed", { exact: true }).waitFor();
    await page.getByRole("dialog").getByText("May pay until").waitFor();
    t.equal(await usdcOf(world, payee), 0n, "approving moves no money");
    const paid = await asAgent(world, agent.apiKey, "spend", {
      recipient: payee,
      amount: "1.25",
      requestApproval: true,
    });
    t.equal(paid.status, 200, JSON.stringify(paid.body));
    await page.getByRole("dialog").getByText("Used", { exact: true }).waitFor();
    t.equal(await usdcOf(world, payee), 1_250_000n);
    await page.keyboard.press("Escape");
  });

  await step("declining needs no wallet, and the agent is informed", async (t) => {
    id = await requestApproval("3");
    await head.getByText("1 waiting for you").waitFor();
    await page.goto(`${world.baseUrl}/agents`);
    await head.click();
    await page.getByRole("heading", { name: "Approvals" }).waitFor();
    await picture(page, "list");
    const row = page.getByRole("listitem").filter({ hasText: "3.00" });
    await row.getByRole("button", { name: "research-agent" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Decline" }).click();
    await page.getByRole("dialog").getByText("Declined", { exact: true }).waitFor();
    const again = await asAgent(world, agent.apiKey, "spend", {
      recipient: payee,
      amount: "3",
      requestApproval: true,
    });
    t.match(again, { status: 403, body: { code: "approval_declined" } });
  });
  t.same(faults, [], "no policy violation, no uncaught error");
});
