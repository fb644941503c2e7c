// Goal: a merchant signs in with the paid wallet, sees a payment arrive live, refunds a part of it with one
// signature, and creates a key that is shown once.
import t from "tap";
import { balanceOf, FEE_ADDRESS, newAccount, pay } from "../merchants/world.ts";
import { NETWORKS } from "../../server/core/networks.ts";
import { replaceAfter } from "../helpers/blocks.ts";
import { testChain } from "../helpers/chain.ts";
import { signIn } from "../helpers/owner.ts";
import { checkReceipt } from "../../packages/purser/src/receipt.ts";
import { post, signedPayment } from "../facilitator/payments.ts";
import { addAxe, violations } from "./axe.ts";
import { picture, stepsOf } from "./pictures.ts";
import { DEMO_OWNER, signInWithDemoWallet, webWorld } from "./world.ts";

t.test("a merchant's work", async (t) => {
  const world = await webWorld(t);
  const { app, chain } = world;
  const payer = newAccount();
  await chain.mint(payer.address, 50_000_000n);
  const payTo = DEMO_OWNER.address;
  const { page, faults } = await world.open(t, "/merchant", { reducedMotion: "reduce" });
  const step = stepsOf(t);
  const drawer = page.getByRole("dialog");
  const settlements = page.getByRole("region", { name: "Settlements" });

  await step("the first payment appears without a reload", async (t) => {
    await signInWithDemoWallet(page);
    await page.getByText("No settlements yet").waitFor();
    await pay({ app, chain, payer }, payTo, "2500000");
    const broke = await signedPayment({ chain, payer: newAccount(), payTo });
    await post(app, "verify", broke);
    await app.keepRefusals();
    await pay({ app, chain, payer }, payTo, "120000");
    await settlements.getByRole("listitem").filter({ hasText: "2.50" }).waitFor();
    await page.getByRole("heading", { name: "Volume per day" }).waitFor();
    await page.getByText("The payer's balance is below the amount.", { exact: true }).waitFor();
    await page.getByText("2.62 USDC in 2 settlements in 30 days").first().waitFor();
    const row = settlements.getByRole("listitem").filter({ hasText: "2.50" });
    await row.getByText("“localhost/paid”, as the payment names it").waitFor();
    t.match(await row.getByRole("button").innerText(), /^0x/, "not what the payer wrote");
    const product = page
      .getByRole("region", { name: "By product" })
      .getByRole("listitem")
      .filter({ hasText: "“localhost/paid”" });
    await product.getByText("2 sold · 1 refused").waitFor();
    await product.getByText("the buyer needs more USDC").waitFor();
    await picture(page, "merchant", true);
  });

  await step("a part of the service that does not answer is named", async () => {
    const numbers = "**/api/merchant?days=*";
    await page.route(numbers, async (route) => {
      const response = await route.fetch();
      const json = { ...((await response.json()) as object), missingCells: ["c2"] };
      await route.fulfill({ response, json });
    });
    const sentence = page.getByText("A part of this service (c2) did not answer.");
    await sentence.waitFor();
    await picture(page, "merchant-missing-cell");
    await page.unroute(numbers);
    await sentence.waitFor({ state: "detached" });
  });

  await step("filters narrow the list, and the CSV contains the listed rows", async (t) => {
    await page.getByLabel("At least, USDC").fill("1");
    await settlements
      .getByRole("listitem")
      .filter({ hasText: "0.12" })
      .waitFor({ state: "detached" });
    const href = await page.getByRole("link", { name: "CSV" }).getAttribute("href");
    t.equal(href, "/api/merchant/settlements.csv?minimum=1");
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("link", { name: "CSV" }).click(),
    ]);
    t.equal(download.suggestedFilename(), "settlements.csv");
    await page.getByLabel("At least, USDC").fill("");
  });

  await step("a part is refunded with one signature", async (t) => {
    const before = await balanceOf({ chain }, payer.address);
    const search = page.getByLabel("Transaction or payment id");
    await search.fill(`0x${"7".repeat(64)}`);
    await page.getByText("No payment to you with this hash").waitFor();
    const { rows } = await world.database.pool.query<{ tx_hash: string }>(
      "SELECT tx_hash FROM settlements WHERE value = 2500000",
    );
    await search.fill(` ${rows[0]?.tx_hash} `);
    const row = settlements.getByRole("listitem").filter({ hasText: "2.50" });
    await row.getByRole("button").click();
    const amount = drawer.getByRole("textbox", { name: "Refund" });
    await amount.fill("3");
    await drawer.getByText("2.50 USDC of this payment can be refunded.").waitFor();
    t.ok(await drawer.getByRole("button", { name: "Sign and refund" }).isDisabled());
    await amount.fill("0.75");
    await picture(page, "merchant-refund");
    await drawer.getByRole("button", { name: "Sign and refund" }).click();
    await drawer
      .getByText("The payer received the refund.")
      .or(drawer.getByText("Partly refunded"))
      .first()
      .waitFor();
    await drawer.getByRole("heading", { name: "Refunds" }).waitFor();
    t.equal(await balanceOf({ chain }, payer.address), before + 750_000n);
    await picture(page, "merchant-refunded");
    await page.keyboard.press("Escape");
    await settlements.getByRole("listitem").filter({ hasText: "Partly refunded" }).waitFor();
  });

  await step("the buyer opens a signed receipt, without a session", async (t) => {
    const row = settlements.getByRole("listitem").filter({ hasText: "Partly refunded" });
    await row.getByRole("button").click();
    await drawer.getByText("Not reported").waitFor();
    await drawer.getByRole("button", { name: "Make a receipt" }).click();
    const path = await drawer
      .getByRole("link", { name: "Receipt for the buyer" })
      .getAttribute("href");
    await picture(page, "merchant-receipt-link");
    await page.keyboard.press("Escape");
    await page.getByLabel("Transaction or payment id").fill("");
    const buyer = await world.open(t, path ?? "", { reducedMotion: "reduce" });
    await buyer.page.getByRole("heading", { name: "Receipt", exact: true }).waitFor();
    await buyer.page.getByText("The payment is on the chain, and final.").waitFor();
    await buyer.page.getByText("“http://localhost/paid”").waitFor();
    await buyer.page.getByRole("region", { name: "Refunds" }).getByText("0.75").waitFor();
    await picture(buyer.page, "receipt", true);
    const [saved] = await Promise.all([
      buyer.page.waitForEvent("download"),
      buyer.page.getByRole("button", { name: "Save" }).click(),
    ]);
    t.match(await checkReceipt(await saved.path()), { valid: true });
    const answer = await app.inject({ url: path ?? "", headers: { accept: "text/html" } });
    t.match([answer.statusCode, answer.headers["x-robots-tag"]], [200, "noindex"]);
    await buyer.page.goto(new URL(`/receipts/rcp_${"0".repeat(48)}`, buyer.page.url()).href);
    await buyer.page.getByText("Receipt not found").waitFor();
    t.same(buyer.faults, []);
  });

  await step("a key is shown once, and revoked with a press", async (t) => {
    await page.getByRole("button", { name: "New key" }).click();
    await page.getByLabel("Label").fill("shop");
    await page.getByRole("button", { name: "Create key" }).click();
    const shown = drawer.getByRole("region", { name: "Facilitator key" });
    const key = await shown.innerText();
    t.match(key, /^purser_mk_/);
    await picture(page, "merchant-key");
    await drawer.getByLabel("I saved the key").check();
    await drawer.getByRole("button", { name: "Done" }).click();
    t.equal((await page.content()).includes(key), false, "the key is never shown again");
    const answer = await app.inject({
      method: "POST",
      url: "/api/x402/verify",
      headers: { authorization: `Bearer ${key}` },
      payload: await signedPayment({ chain, payer, payTo }),
    });
    t.match(answer.json(), { isValid: true });
    await page.getByRole("button", { name: "Revoke shop" }).click();
    await drawer.getByRole("button", { name: "Revoke key" }).click();
    await page.getByText("Revoked", { exact: true }).waitFor();
  });
  await step("a text that is no link is not shown", async (t) => {
    await world.database.pool.query(
      "UPDATE settlements SET resource_url = 'x:Refund at evil.example'",
    );
    await page.reload();
    await settlements
      .getByRole("listitem")
      .filter({ hasText: "Partly refunded" })
      .getByRole("button")
      .click();
    await drawer.getByRole("heading", { name: "Refunds" }).waitFor();
    t.equal(await page.getByText("evil.example").count(), 0);
  });
  t.same(faults, [], "no policy violation, no uncaught error");
});

t.test("what a merchant owes the facilitator", async (t) => {
  const world = await webWorld(t, {
    env: { FEE_PER_SETTLEMENT: "0.01", FEE_PER_MILLE: "2.5", FEE_ADDRESS, FEE_CREDIT: "0.03" },
  });
  const { app, chain } = world;
  const payer = newAccount();
  await chain.mint(payer.address, 50_000_000n);
  await pay({ app, chain, payer }, DEMO_OWNER.address, "2500000");
  const { page, faults } = await world.open(t, "/merchant", { reducedMotion: "reduce" });
  await addAxe(page);
  await page.reload();
  await signInWithDemoWallet(page);
  const fees = page.getByRole("region", { name: "Fees", exact: true });
  await fees.getByText("0.01 USDC and 2.5 per mille of the amount").waitFor();
  await fees.getByText("Owed on").waitFor();
  const rows = page.getByRole("region", { name: "Fees and payments" }).getByRole("listitem");
  await rows.filter({ hasText: "Fee" }).waitFor();
  t.equal(await fees.getByText("New payments are refused.").count(), 0);
  await world.database.pool.query("UPDATE fee_accounts SET charged = charged + 20000");
  await fees.getByText("New payments are refused.").waitFor();
  t.same(await violations(page), []);
  await picture(page, "merchant-fees", true);
  // The address on the page is where the payment goes, and it shows up without a reload.
  const url = await fees.getByRole("region", { name: "Address for payments" }).innerText();
  const paid = await signedPayment({ chain, payer, payTo: FEE_ADDRESS, amount: "50000" });
  Object.assign(paid.paymentPayload, { resource: { url: url.trim() } });
  t.match(await post(app, "settle", paid), { success: true });
  await rows.filter({ hasText: "Paid" }).waitFor();
  await fees.getByText("0.01375 USDC paid in advance").waitFor();
  t.same(faults, [], "no policy violation, no uncaught error");
});

t.test("an open receipt stops saying paid when a reorganisation removes the payment", async (t) => {
  // A network with several confirmations.
  const network = NETWORKS.find(({ chainId }) => chainId === 84532);
  const other = await testChain(t, { chainId: 84532, usdc: network?.usdc.address });
  const world = await webWorld(t, {
    env: {
      NETWORKS: "eip155:5042002,eip155:84532",
      RPC_URL_84532: other.rpcUrl,
      NATIVE_PRICE_84532: "3000",
    },
  });
  const { app } = world;
  const payer = newAccount();
  await other.mint(payer.address, 1_000_000n);
  await other.testClient.mine({ blocks: 3 });
  const merchant = await signIn(world);
  const before = await other.publicClient.getBlockNumber();
  const id = await pay({ app, chain: other, payer }, merchant.account.address, "700000");
  await other.testClient.setAutomine(false);
  const made = await app.inject({
    method: "POST",
    url: `/api/merchant/settlements/${id}/receipt`,
    headers: merchant.headers,
    payload: "{}",
  });
  const { url } = made.json<{ url: string }>();
  const { page, faults } = await world.open(t, new URL(url).pathname, { reducedMotion: "reduce" });
  await page.getByText("Paid", { exact: true }).waitFor();
  await page.getByText("Not final yet", { exact: true }).waitFor();

  await replaceAfter(other, before);
  await page.getByText("Removed from the chain").waitFor();
  await page.getByText(/the payee does not have the money/).waitFor();
  t.equal(await page.getByText("Paid", { exact: true }).count(), 0);
  await picture(page, "receipt-removed", true);

  await other.testClient.setAutomine(true);
  await other.testClient.mine({ blocks: 4 });
  await page.getByText("Paid", { exact: true }).waitFor();
  await page.getByText("The payment is on the chain, and final.").waitFor();
  t.equal(await other.usdcOf(merchant.account.address), 700_000n, "paid once");
  t.same(faults, []);
});
