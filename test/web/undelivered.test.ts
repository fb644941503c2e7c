// Goal: a payment that settled while its seller failed is told apart from a good one, with what proves it.
import t from "tap";
import { testAccount } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { scriptedSeller } from "../x402-client/scripted-seller.ts";
import { asAgent, DEMO_OWNER, signInWithDemoWallet, webWorld } from "./world.ts";

t.test("paid, not delivered", async (t) => {
  const world = await webWorld(t);
  const payTo = testAccount(90).address;
  const seller = await scriptedSeller(t, world.chain, payTo);
  seller.script.onProof = async ({ proof, response, proofs }) => {
    if (proofs === 1) await seller.settle(proof);
    response.writeHead(500).end("out of stock");
  };
  world.config.fetchPrivateOrigins.push(seller.origin);
  const owner = await signIn(world, DEMO_OWNER);
  const agent = await createAgent(world, owner, { name: "unlucky", allowlist: [payTo] });
  await world.chain.mint(agent.walletAddress, 3_000_000n);
  const { page, faults } = await world.open(t, `/agents/${agent.id}`);
  await signInWithDemoWallet(page);
  await page.getByText("No payments yet").waitFor();

  const answer = await asAgent(world, agent.apiKey, "x402-fetch", { url: seller.url });
  t.match(answer, { status: 502, body: { code: "paid_upstream_failed" } }, JSON.stringify(answer));
  const row = page.getByRole("listitem").filter({ hasText: "Paid, not delivered" });
  await row.getByRole("button").click();
  const drawer = page.getByRole("dialog");
  await drawer.getByText("The payment settled, but the seller did not deliver.").waitFor();
  await drawer.getByText(String(answer.body.txHash).slice(0, 10)).waitFor();
  await drawer.getByText("Seller answered").waitFor();
  await drawer.getByText("500", { exact: true }).waitFor();
  t.same(faults, []);
});
