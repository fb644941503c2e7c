// Goal: whatever a wallet does (absent, on another chain, saying no, changing its account), the screen is calm, right, and shows nobody else's data.
import t from "tap";
import { openPage } from "../helpers/browser.ts";
import { testAccount } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { injectWallet } from "./injected-wallet.ts";
import { webWorld } from "./world.ts";

const ALICE = testAccount(60);
const BOB = testAccount(61);

t.test("wallets", async (t) => {
  // The production shape: no demo wallet, so the browser's own are all there is.
  const world = await webWorld(t, { isLocal: false });
  const chainId = world.chain.chainId;

  await t.test("without a wallet it says what to do, and there is no demo wallet", async (t) => {
    const { page, faults } = await world.open(t, "/agents");
    await page.getByText("No wallet was found in this browser.").waitFor();
    t.equal(await page.getByRole("button", { name: /Demo wallet/ }).count(), 0);
    t.same(faults, []);
  });

  await t.test("an announced wallet signs in; saying no twice changes nothing", async (t) => {
    const { page, faults } = await openPage(t, world.browser);
    const wallet = await injectWallet(page, ALICE, { chainId });
    await page.goto(`${world.baseUrl}/agents`);
    wallet.rejectNext("eth_requestAccounts");
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    await page.getByText("You declined to connect. Nothing was shared").waitFor();
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    wallet.rejectNext("personal_sign");
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByText("You declined in your wallet. Nothing was signed").waitFor();
    t.equal(await page.getByRole("alert").count(), 0, "no red box for a no");
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText("No agents yet").waitFor();
    t.same(faults, []);
  });

  await t.test("a lone window.ethereum works too", async (t) => {
    const { page } = await openPage(t, world.browser);
    await injectWallet(page, ALICE, { chainId, legacy: true });
    await page.goto(`${world.baseUrl}/agents`);
    await page.getByRole("button", { name: /Browser wallet/ }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByText("No agents yet").waitFor();
    t.pass("signed in");
  });

  await t.test(
    "on another chain it offers the switch, and adds the chain where it is unknown",
    async (t) => {
      const { page } = await openPage(t, world.browser);
      const wallet = await injectWallet(page, ALICE, { chainId: 1 });
      await page.goto(`${world.baseUrl}/agents`);
      await page.getByRole("button", { name: /Test Wallet/ }).click();
      await page.getByText("Your wallet is on chain 1.").waitFor();
      await page.getByText("Add the network by hand").click();
      await page.getByText(String(chainId), { exact: true }).waitFor();
      wallet.rejectNext("wallet_switchEthereumChain");
      await page.getByRole("button", { name: "Switch to Arc Testnet" }).click();
      await page.getByText("You declined the switch.").waitFor();
      await page.getByRole("button", { name: "Switch to Arc Testnet" }).click();
      await page.getByRole("button", { name: "Sign in", exact: true }).click();
      await page.getByText("No agents yet").waitFor();
      t.equal(wallet.chainId(), chainId);
      const added = wallet.requests.find(({ method }) => method === "wallet_addEthereumChain");
      t.match(added?.params, [
        {
          chainId: `0x${chainId.toString(16)}`,
          chainName: "Arc Testnet",
          nativeCurrency: { symbol: "USDC", decimals: 18 },
        },
      ]);
    },
  );

  await t.test("when the account changes, the first owner's data is gone at once", async (t) => {
    const alice = await signIn(world, ALICE);
    await createAgent(world, alice, { name: "alices-secret-agent" });
    const { page, faults } = await openPage(t, world.browser);
    const wallet = await injectWallet(page, ALICE, { chainId });
    await page.goto(`${world.baseUrl}/agents`);
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("link", { name: "alices-secret-agent" }).waitFor();
    await wallet.switchAccount(page, BOB);
    await page.getByRole("heading", { name: "Your wallet changed its account" }).waitFor();
    t.equal(await page.getByText("alices-secret-agent").count(), 0);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByText("No agents yet").waitFor();
    t.equal(await page.getByText("alices-secret-agent").count(), 0, "Bob sees his own nothing");
    t.same(faults, []);
  });

  await t.test("another tab that signs in as somebody else empties this one", async (t) => {
    const { page } = await openPage(t, world.browser);
    await injectWallet(page, ALICE, { chainId });
    await page.goto(`${world.baseUrl}/agents`);
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("link", { name: "alices-secret-agent" }).waitFor();
    const other = await page.context().newPage();
    await injectWallet(other, BOB, { chainId });
    await other.goto(`${world.baseUrl}/settings`);
    await other.getByRole("heading", { name: "Settings" }).waitFor();
    await other.getByRole("button", { name: "Sign out" }).click();
    await other.getByRole("heading", { name: /Give your agent a wallet/ }).waitFor();
    await other.goto(`${world.baseUrl}/agents`);
    await other.getByRole("button", { name: /Test Wallet/ }).click();
    await other.getByRole("button", { name: "Sign in", exact: true }).click();
    await other.getByText("No agents yet").waitFor();
    await page
      .getByRole("heading", { name: "Your wallet changed its account" })
      .or(page.getByText("No agents yet"))
      .waitFor();
    t.equal(await page.getByText("alices-secret-agent").count(), 0);
  });

  await t.test("a withdrawal on the wrong chain, then declined, then signed", async (t) => {
    const alice = await signIn(world, ALICE);
    const agent = await createAgent(world, alice, { name: "funded" });
    await world.chain.mint(agent.walletAddress, 2_000_000n);
    const { page } = await openPage(t, world.browser);
    const wallet = await injectWallet(page, ALICE, { chainId: 1, knownChains: [1, chainId] });
    await page.goto(`${world.baseUrl}/agents/${agent.id}/withdraw`);
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    await page.getByRole("button", { name: "Sign in anyway" }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByLabel("Amount").fill("1.25");
    await page.getByRole("button", { name: "Review withdrawal" }).click();
    await page.getByText("Your wallet is on chain 1.").waitFor();
    await page.getByRole("button", { name: "Switch to Arc Testnet" }).click();
    wallet.rejectNext("eth_signTypedData_v4");
    await page.getByRole("button", { name: "Sign and withdraw" }).click();
    await page
      .getByText("You declined in your wallet. Nothing was signed, and nothing moved.")
      .waitFor();
    await page.getByRole("button", { name: "Sign and withdraw" }).click();
    await page.getByText("Confirmed on chain.").waitFor();
    const shown = wallet.requests.filter(({ method }) => method === "eth_signTypedData_v4").at(-1);
    const typed = JSON.parse(String((shown?.params as string[] | undefined)?.[1])) as {
      message: Record<string, string>;
    };
    t.match(
      typed.message,
      { amount: "1250000", to: ALICE.address },
      "what the wallet showed is what the screen showed",
    );
  });

  await t.test(
    "on a public screen too, a changed account takes the first one's data away",
    async (t) => {
      const { page } = await openPage(t, world.browser);
      const wallet = await injectWallet(page, ALICE, { chainId });
      await page.goto(`${world.baseUrl}/marketplace`);
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("button", { name: /Test Wallet/ }).click();
      await page.getByText("What you will sign").waitFor();
      await page.getByRole("button", { name: "Sign in", exact: true }).last().click();
      await page
        .getByRole("link", { name: /statistics/i })
        .first()
        .click();
      await page
        .getByLabel("Agent")
        .getByText("alices-secret-agent")
        .waitFor({ state: "attached" });
      await wallet.switchAccount(page, BOB);
      await page.getByRole("heading", { name: "Your wallet changed its account" }).waitFor();
      t.equal(await page.getByText("alices-secret-agent").count(), 0);
      await page.getByRole("button", { name: "Sign out" }).click();
      await page.getByRole("heading", { name: /Give your agent a wallet/ }).waitFor();
    },
  );

  await t.test(
    "funding from the wallet: declined, then signed, with no gas of the owner's",
    async (t) => {
      const alice = await signIn(world, ALICE);
      const agent = await createAgent(world, alice, { name: "to-fund" });
      await world.chain.mint(ALICE.address, 9_000_000n);
      const { page } = await openPage(t, world.browser);
      const wallet = await injectWallet(page, ALICE, { chainId });
      await page.goto(`${world.baseUrl}/agents/${agent.id}`);
      await page.getByRole("button", { name: /Test Wallet/ }).click();
      await page.getByRole("button", { name: "Sign in", exact: true }).click();
      await page.getByRole("button", { name: "Fund", exact: true }).click();
      // Nine minted just now, and the withdrawal before came to the same wallet.
      await page.getByText("10.25 USDC").waitFor();
      await page.getByLabel("Amount").fill("11");
      await page.getByRole("button", { name: "Sign and send" }).click();
      await page.getByText("Your wallet holds 10.25 USDC.").waitFor();
      await page.getByLabel("Amount").fill("4.5");
      wallet.rejectNext("eth_signTypedData_v4");
      await page.getByRole("button", { name: "Sign and send" }).click();
      await page.getByText("You declined in your wallet. Nothing was moved.").waitFor();
      await page.getByRole("button", { name: "Sign and send" }).click();
      await page.getByText("Settled.").waitFor();
      await page.keyboard.press("Escape");
      await page.getByText("4.50 USDC").first().waitFor();
      const asked = wallet.requests.map(({ method }) => method);
      t.notOk(asked.includes("eth_sendTransaction"), "the wallet sent nothing itself");
    },
  );
});

t.test(
  "where the facilitator is for holders of a key, the wallet sends the transfer",
  async (t) => {
    const world = await webWorld(t, {
      isLocal: false,
      env: { FACILITATOR_API_KEYS: "a-key-of-this-test-0123456789" },
    });
    const alice = await signIn(world, ALICE);
    const agent = await createAgent(world, alice, { name: "to-fund" });
    await world.chain.mint(ALICE.address, 9_000_000n);
    await world.chain.testClient.setBalance({ address: ALICE.address, value: 10n ** 18n });
    const { page, faults } = await openPage(t, world.browser);
    await injectWallet(page, ALICE, { chainId: world.chain.chainId, chain: world.chain });
    await page.goto(`${world.baseUrl}/agents/${agent.id}`);
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("button", { name: "Fund", exact: true }).click();
    await page.getByLabel("Amount").fill("2.25");
    await page.getByRole("button", { name: "Sign and send" }).click();
    await page.getByText("Sent; the balance follows").waitFor();
    await page.keyboard.press("Escape");
    await page.getByText("2.25 USDC").first().waitFor({ timeout: 20_000 });
    t.same(faults, []);
  },
);
