// Goal: an owner makes a budget, puts agents in, sees what is used, and signs exactly what loosens it.
import t from "tap";
import { testAccount } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { addAxe, violations } from "./axe.ts";
import { picture, stepsOf } from "./pictures.ts";
import {
  asAgent,
  confirmWithDemoWallet,
  DEMO_OWNER,
  signInWithDemoWallet,
  webWorld,
} from "./world.ts";

t.test("a budget", async (t) => {
  const step = stepsOf(t);
  const world = await webWorld(t);
  const owner = await signIn(world, DEMO_OWNER);
  const payee = testAccount(90).address;
  const agent = await createAgent(world, owner, { name: "reader", allowlist: [payee] });
  await createAgent(world, owner, { name: "writer" });
  await world.chain.mint(agent.walletAddress, 5_000_000n);
  const { page, faults } = await world.open(t, "/budgets");
  await addAxe(page);
  await page.reload();
  await signInWithDemoWallet(page);
  const dialog = page.getByRole("dialog");
  const look = async (name: string): Promise<void> => {
    await picture(page, name, true);
    t.same(await violations(page), [], name);
  };

  await step("is created without a signature", async () => {
    await page.getByRole("button", { name: "New budget" }).click();
    await dialog.getByLabel("Name").fill("Research");
    await dialog.getByLabel("In any 24 hours").fill("2");
    await look("new");
    await dialog.getByRole("button", { name: "Create budget" }).click();
    await page.getByText("0 agents in this budget").waitFor();
  });

  await step("agents are found and put in", async () => {
    await page.getByRole("button", { name: "Agents of Research" }).click();
    await dialog.getByLabel("Put agents in").fill("read");
    await dialog.getByRole("button", { name: "Put in writer" }).waitFor({ state: "detached" });
    await dialog.getByRole("button", { name: "Put in reader" }).click();
    await dialog.getByRole("button", { name: "Take out reader" }).waitFor();
    await look("agents");
    await dialog.getByRole("button", { name: "Close" }).click();
    await page.getByText("1 agent in this budget").waitFor();
  });

  await step("its bar shows what is used, and a refusal leads here", async (t) => {
    await asAgent(world, agent.apiKey, "spend", { recipient: payee, amount: "1.5" });
    await page.getByRole("img", { name: "1.50 spent of 2.00 USDC in 24 h" }).waitFor();
    const over = { recipient: payee, amount: "1" };
    const refused = await asAgent(world, agent.apiKey, "spend", over);
    t.equal(refused.body.code, "budget_exceeded");
    await page.goto(
      `${world.baseUrl}/agents/${agent.id}?payment=${String(refused.body.paymentId)}`,
    );
    await page.getByText("all agents of Research").first().waitFor();
    await look("refusal");
    await page.getByRole("link", { name: "Open the budgets" }).click();
    await page.getByRole("heading", { name: "Budgets" }).waitFor();
  });

  await step("a higher limit and an agent that leaves are signed", async () => {
    await page.getByRole("button", { name: "Change Research" }).click();
    await dialog.getByLabel("In any 24 hours").fill("9");
    await dialog.getByRole("button", { name: "Sign and save" }).click();
    await confirmWithDemoWallet(page, "2.00 USDC", "9.00 USDC");
    await page.getByRole("img", { name: "1.50 spent of 9.00 USDC in 24 h" }).waitFor();
    await page.getByRole("button", { name: "Agents of Research" }).click();
    await dialog.getByRole("button", { name: "Take out reader" }).click();
    await confirmWithDemoWallet(page, "not in it");
    await dialog.getByText("No agents in this budget").waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
  });

  await step("it is archived", async () => {
    await page.getByRole("button", { name: "Archive Research" }).click();
    await look("archive");
    await page.getByRole("button", { name: "Sign and archive" }).click();
    await confirmWithDemoWallet(page, "archived");
    await page.getByText("No budgets").waitFor();
  });
  t.same(faults, [], "no policy violation, no uncaught error");
});
