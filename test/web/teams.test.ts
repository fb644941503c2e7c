// Goal: three people share an account in the browser, with wallets and a passkey, from invitation to withdrawal: what needs two of
// them is shown as waiting, never as done; each sees what a signature changes; and nobody sees a button of another role, or data of
// the account that was left.
import t, { type Test } from "tap";
import type { Page } from "playwright-core";
import type { Address } from "viem";
import { openPage } from "../helpers/browser.ts";
import { testAccount } from "../helpers/chain.ts";
import { usdcOf } from "../spending/ledger.helper.ts";
import { addAxe, violations } from "./axe.ts";
import { injectWallet } from "./injected-wallet.ts";
import { countPrompts, Devices } from "./passkey-devices.ts";
import { picture, SIZES, stepsOf } from "./pictures.ts";
import { webWorld } from "./world.ts";

const ADA = testAccount(80);
const CLEO = testAccount(81);
const PAYOUT = testAccount(82);
const PHONE = { width: 360, height: 740 };

const world = await webWorld(t, { isLocal: false });
const options = { reducedMotion: "reduce" } as const;
const pages = await Promise.all([1, 2, 3].map(() => openPage(t, world.browser, options)));
const [ada, bob, cleo] = pages.map(({ page }) => page) as [Page, Page, Page];
const { chainId } = world.chain;
const adasWallet = await injectWallet(ada, ADA, { chainId });
const cleosWallet = await injectWallet(cleo, CLEO, { chainId });
await Devices.of(bob);
const prompts = await countPrompts(bob);
for (const page of [ada, bob, cleo]) await addAxe(page);
const step = stepsOf(t);

const open = (page: Page, path: string) => page.goto(world.baseUrl + path);
async function signInWithWallet(page: Page, path: string): Promise<void> {
  await open(page, path);
  await page.getByRole("button", { name: /Test Wallet/ }).click();
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}
async function look(t: Test, page: Page, name: string): Promise<void> {
  await picture(page, `teams-${name}`);
  await page.setViewportSize(PHONE);
  t.same(await violations(page), [], name);
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  t.ok(width <= PHONE.width, `${name} fits a phone`);
  await page.setViewportSize(SIZES.desktop);
}
async function actForAcme(page: Page, role: string): Promise<void> {
  await page.getByRole("button", { name: "Account" }).click();
  await page.getByRole("menuitemradio", { name: `Acme, ${role}` }).click();
  await page.getByText("Acting for Acme").waitFor();
}
/** Opens the only waiting order of this title. */
async function openOrder(page: Page, title: string): Promise<void> {
  await open(page, "/waiting");
  await page.getByRole("button", { name: title }).click();
  await page.getByRole("dialog").getByText("Asked by").waitFor();
}
let bobsAccount = "";
let invitation = "";

await step("Ada makes a team, and acts for it", async (t) => {
  await signInWithWallet(ada, "/team");
  await ada.getByLabel("Name of the team").fill("Acme");
  await ada.getByLabel("Your name in it").fill("Ada");
  await ada.getByRole("button", { name: "Sign and make the team" }).click();
  await ada.getByText("Acting for Acme as admin").waitFor();
  await ada.getByText("Only one admin can sign.").waitFor();
  t.equal(adasWallet.windows(), 1);
});

await step("Bob and Cleo make accounts, and find what to send to Ada", async (t) => {
  await open(bob, "/join");
  await bob.getByRole("button", { name: "Create a passkey" }).click();
  await bob.getByText("Ask to be added").waitFor();
  bobsAccount = await bob
    .getByText(/^Your account: 0x/)
    .locator("code")
    .innerText();
  t.match(bobsAccount, /^0x[0-9a-fA-F]{40}$/);
  await look(t, bob, "ask");
  await signInWithWallet(cleo, "/join");
  await cleo.getByText(/^Your account: 0x/).waitFor();
});

await step("Ada asks them to join, and a warning says what a lost key would do", async (t) => {
  const add = async (name: string, address: string, role: string) => {
    await ada.getByLabel("Name", { exact: true }).fill(name);
    await ada.getByLabel("Address of the account").fill(address);
    await ada.getByLabel("Role", { exact: true }).selectOption(role);
    await ada.getByRole("button", { name: "Add to the list" }).click();
  };
  await add("Bob", bobsAccount, "admin");
  await ada.getByLabel("Role of Bob").waitFor();
  await add("Bob again", bobsAccount, "viewer");
  await ada.getByText("This person is in the list already.").waitFor();
  await add("Cleo", CLEO.address, "approver");
  await ada.getByLabel("Admins who must sign").selectOption("2");
  await ada.getByLabel("One approver alone allows up to").fill("1.5");
  await ada.getByText("All 2 admins must sign.").waitFor();
  const bar = ada.getByRole("region", { name: "Change the members?" });
  await bar.getByText(`Bob (${bobsAccount}): admin`).waitFor();
  await bar.getByText("Bob and Cleo accept by signing too.").waitFor();
  await look(t, ada, "members");
  await bar.getByRole("button", { name: "Sign and ask the others" }).click();
  await ada.getByText("Waits for 2 more signatures.").waitFor();
  t.equal(await ada.getByText("The members are changed.").count(), 0);
  await ada.getByRole("link", { name: "Show the order" }).click();
  const dialog = ada.getByRole("dialog");
  await dialog.getByText("Must still accept").waitFor();
  invitation = await dialog.getByText(/^http.*\/join\?order=/).innerText();
  await look(t, ada, "waiting-members");
});

await step("an invitation says which team and role; it is accepted by signing", async (t) => {
  await bob.goto(invitation);
  await bob.getByText("Ada asks you to join Acme as admin").waitFor();
  await bob.getByText(`Bob (${bobsAccount}): admin`).waitFor();
  await look(t, bob, "invitation");
  const before = await prompts();
  await bob.getByRole("button", { name: "Accept and sign" }).click();
  await bob.getByText("You have signed.").waitFor();
  t.equal(await prompts(), before + 1);
  await cleo.goto(invitation);
  const windows = cleosWallet.windows();
  await cleo.getByRole("button", { name: "Accept and sign" }).click();
  await cleo.getByText("An admin of Acme carries it out now").waitFor();
  t.equal(cleosWallet.windows(), windows + 1);
  await openOrder(ada, "Change the members of Acme");
  await ada.getByRole("button", { name: "Carry it out" }).click();
  await ada.getByText("All have signed, and it is done.").waitFor();
});

await step("an agent that Ada asks for exists when Bob has signed, who gets the key", async (t) => {
  await open(ada, "/agents/new");
  await ada.getByLabel("Name").fill("buyer");
  await ada.getByLabel("Daily limit").fill("5");
  await ada.getByRole("button", { name: "Create agent" }).click();
  await ada.getByText("Waits for 1 more signature.").waitFor();
  t.equal(await ada.getByText("buyer is ready").count(), 0);
  await open(bob, "/agents");
  await actForAcme(bob, "admin");
  await bob.getByText("No agents yet").waitFor();
  await bob.getByRole("banner").getByText("1 waiting for you").first().waitFor();
  await bob.getByRole("link", { name: "Waiting orders" }).click();
  await bob.getByRole("button", { name: "Create buyer" }).click();
  await bob.getByRole("dialog").getByText("5.00 USDC").first().waitFor();
  await look(t, bob, "waiting-agent");
  await bob.getByRole("button", { name: "Sign", exact: true }).click();
  await bob.getByText("This key is shown once.").waitFor();
  await bob.getByLabel("I saved the key").check();
  await bob.getByRole("dialog").getByRole("button", { name: "Done" }).click();
  await bob.getByText("Nothing waits").waitFor();
});

await step(
  "an approver sees what she may do, and a viewer's place is not offered more",
  async (t) => {
    await open(cleo, "/agents");
    await actForAcme(cleo, "approver");
    await cleo.getByRole("link", { name: "buyer" }).click();
    await cleo.getByRole("button", { name: "Pause", exact: true }).waitFor();
    await cleo.getByRole("link", { name: "Withdraw" }).click();
    await cleo.getByText("You are approver in this team.").waitFor();
    t.equal(await cleo.getByRole("button", { name: "Review withdrawal" }).count(), 0);
    await open(cleo, "/team");
    await cleo.getByText("approver", { exact: true }).first().waitFor();
    t.equal(await cleo.getByRole("button", { name: /^Remove/ }).count(), 0);
    t.equal(await cleo.getByRole("link", { name: "New agent" }).count(), 0);
  },
);

await step("money leaves to the payout address, with two signatures", async (t) => {
  const { rows } = await world.database.pool.query<{ id: string; wallet: Address }>(
    "SELECT id, wallet_address AS wallet FROM agents WHERE name = 'buyer'",
  );
  const [agent] = rows;
  await world.chain.mint(agent?.wallet ?? "0x", 2_000_000n);
  await open(ada, `/agents/${agent?.id}/withdraw`);
  await ada.getByLabel("Address that receives your withdrawals").fill(PAYOUT.address);
  await ada.getByRole("button", { name: "Sign and name it" }).click();
  await ada.getByText("Waits for 1 more signature.").waitFor();
  await openOrder(bob, "Name the payout address");
  await bob.getByRole("button", { name: "Sign", exact: true }).click();
  await bob.getByText("All have signed, and it is done.").waitFor();
  await open(ada, `/agents/${agent?.id}/withdraw`);
  await ada.getByText("Goes to the team's payout address").waitFor();
  await ada.getByLabel("Amount").fill("1.5");
  await ada.getByRole("button", { name: "Review withdrawal" }).click();
  await ada.getByText("goes from buyer to the team's payout address.").waitFor();
  await ada.getByRole("button", { name: /Test Wallet/ }).click();
  await ada.getByRole("button", { name: "Sign and withdraw" }).click();
  await ada.getByText("Waits for 1 more signature.").waitFor();
  t.equal(await ada.getByText("Confirmed on chain.").count(), 0);
  t.equal(await usdcOf(world, PAYOUT.address), 0n, "nothing moved");
  await look(t, ada, "withdrawal-waits");
  await openOrder(bob, "Withdraw from buyer");
  await bob.getByRole("dialog").getByText("1.50 USDC").first().waitFor();
  await bob.getByRole("button", { name: "Sign", exact: true }).click();
  await bob.getByText("Confirmed on chain.").waitFor();
  t.equal(await usdcOf(world, PAYOUT.address), 1_500_000n);
});

await step("an approver who is made a viewer looks, and presses nothing", async (t) => {
  await open(ada, "/team");
  await ada.getByLabel("Role of Cleo").selectOption("viewer");
  await ada.getByRole("button", { name: "Sign and ask the others" }).click();
  await ada.getByText("Waits for 1 more signature.").waitFor();
  await openOrder(bob, "Change the members of Acme");
  await bob.getByRole("button", { name: "Sign", exact: true }).click();
  await bob.getByText("All have signed, and it is done.").waitFor();
  await open(cleo, "/agents");
  await cleo.getByText("Acting for Acme as viewer").waitFor();
  t.equal(await cleo.getByRole("button", { name: "Stop everything" }).count(), 0);
  await cleo.getByRole("link", { name: "buyer" }).click();
  await cleo.getByRole("link", { name: "Rules" }).waitFor();
  t.equal(await cleo.getByRole("button", { name: "Pause", exact: true }).count(), 0);
  await look(t, cleo, "viewer");
  await cleo.getByRole("link", { name: "Withdraw" }).click();
  await cleo.getByText("You are viewer in this team.").waitFor();
  t.equal(await cleo.getByRole("button", { name: "Review withdrawal" }).count(), 0);
});

await step("an order is given up, and one's own account shows nothing of the team", async (t) => {
  await open(ada, "/agents");
  await ada.getByRole("link", { name: "buyer" }).click();
  await ada.getByRole("link", { name: "Rules" }).click();
  await ada.getByLabel("Daily limit").first().fill("25");
  await ada.getByRole("button", { name: "Sign and save changes" }).click();
  await ada.getByText("Waits for 1 more signature.").waitFor();
  await openOrder(ada, "Change the rules of buyer");
  await ada.getByRole("dialog").getByText("25.00 USDC").first().waitFor();
  await ada.getByRole("button", { name: "Withdraw the order" }).click();
  await ada.getByText("Nothing waits").waitFor();
  await ada.getByRole("button", { name: "Account" }).focus();
  await ada.keyboard.press("Enter");
  await ada.getByRole("menuitemradio", { name: "Acme, admin", checked: true }).waitFor();
  // Without axe: the library's own elements of an open menu do not pass it.
  await picture(ada, "teams-switcher");
  await ada.getByRole("menuitemradio", { name: "Own account" }).focus();
  await ada.keyboard.press("Enter");
  await ada.getByText("No agents yet").waitFor();
  t.equal(await ada.getByText("buyer", { exact: true }).count(), 0);
  t.equal(await ada.getByText("Acting for").count(), 0);
});

await step("a removed member is told why the session ended", async (t) => {
  await open(ada, "/agents");
  await actForAcme(ada, "admin");
  await open(ada, "/team");
  await open(cleo, "/agents");
  await cleo.getByText("Acting for Acme as viewer").waitFor();
  await ada.getByRole("button", { name: "Remove Cleo" }).click();
  await ada.getByRole("button", { name: "Sign and ask the others" }).click();
  await ada.getByText("Waits for 1 more signature.").waitFor();
  await openOrder(bob, "Change the members of Acme");
  await bob.getByRole("button", { name: "Sign", exact: true }).click();
  await bob.getByText("All have signed, and it is done.").waitFor();
  const dialog = cleo.getByRole("dialog", { name: "Your session has ended" });
  // Her next request shows it, unless one was made already: then the dialog covers the link.
  await cleo.evaluate(() => document.querySelector<HTMLElement>('a[href="/spending"]')?.click());
  await dialog.getByText("You acted for Acme. If an admin removed you from it").waitFor();
  await dialog.getByRole("button", { name: /Test Wallet/ }).click();
  await dialog.getByRole("button", { name: "Sign in", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  t.equal(await cleo.getByText("Acting for").count(), 0);
});

await step("the longest name of a team stays in its place", async (t) => {
  const name = "Procurement of the research group for weather";
  await open(cleo, "/team");
  await cleo.getByLabel("Name of the team").fill(name);
  await cleo.getByLabel("Your name in it").fill("Cleo");
  await cleo.getByRole("button", { name: "Sign and make the team" }).click();
  await cleo.getByText(`Acting for ${name} as admin`).waitFor();
  const button = await cleo.getByRole("button", { name: "Account" }).boundingBox();
  const page = await cleo.getByRole("main").boundingBox();
  t.ok(button && page && button.x + button.width <= page.x, "not under the page");
});

for (const { faults } of pages) t.same(faults, []);
