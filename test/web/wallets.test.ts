// Goal: whatever a wallet does (missing, on another chain, declining, changing its account), the screen stays
// correct and never shows another owner's data.
// Tier: full (tries every variant of one feature).
import t from "tap";
import { openPage } from "../helpers/browser.ts";
import { testAccount } from "../helpers/chain.ts";
import { asOwner, createAgent, signIn } from "../helpers/owner.ts";
import { injectWallet } from "./injected-wallet.ts";
import { inWallet, webWorld } from "./world.ts";

const ALICE = testAccount(60);
const BOB = testAccount(61);

t.test("wallets", async (t) => {
  // As in production: without a demo wallet, only the browser's own wallets are available.
  const world = await webWorld(t, { isLocal: false });
  const chainId = world.chain.chainId;

  await t.test("without a wallet the page explains what to do", async (t) => {
    const { page, faults } = await world.open(t, "/agents");
    await page.getByText("No wallet was found in this browser.").waitFor();
    t.equal(await page.getByRole("button", { name: /Demo wallet/ }).count(), 0);
    t.same(faults, []);
  });

  await t.test("an announced wallet signs in; declining twice changes nothing", async (t) => {
    const { page, faults } = await openPage(t, world.browser);
    const wallet = await injectWallet(page, ALICE, { chainId });
    await page.goto(`${world.baseUrl}/agents`);
    wallet.rejectNext("eth_requestAccounts");
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    await page.getByText("You declined to connect.").waitFor();
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    wallet.rejectNext("personal_sign");
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByText("You declined in your wallet. Nothing was signed").waitFor();
    t.equal(await page.getByRole("alert").count(), 0, "declining is not shown as an error");
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText("No agents yet").waitFor();
    t.same(faults, []);
  });

  await t.test("a wallet that only sets window.ethereum works too", async (t) => {
    const { page } = await openPage(t, world.browser);
    await injectWallet(page, ALICE, { chainId, legacy: true });
    await page.goto(`${world.baseUrl}/agents`);
    await page.getByRole("button", { name: /Browser wallet/ }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByText("No agents yet").waitFor();
    t.pass("signed in");
  });

  await t.test(
    "on another chain the page offers to switch, and adds the chain if it is unknown",
    async (t) => {
      const { page } = await openPage(t, world.browser);
      const wallet = await injectWallet(page, ALICE, { chainId: 1 });
      await page.goto(`${world.baseUrl}/agents`);
      await page.getByRole("button", { name: /Test Wallet/ }).click();
      await page.getByText("Your wallet is on chain 1.").waitFor();
      await page.getByText("Add the network manually").click();
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

  await t.test("when the account changes, the first owner's data disappears at once", async (t) => {
    const alice = await signIn(world, ALICE);
    await createAgent(world, alice, { name: "alices-secret-agent" });
    const { page, faults } = await openPage(t, world.browser);
    const wallet = await injectWallet(page, ALICE, { chainId });
    await page.goto(`${world.baseUrl}/agents`);
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("link", { name: "alices-secret-agent", exact: true }).waitFor();
    await wallet.switchAccount(page, BOB);
    await page.getByRole("heading", { name: "The account in your wallet changed" }).waitFor();
    t.equal(await page.getByText("alices-secret-agent").count(), 0);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByText("No agents yet").waitFor();
    t.equal(
      await page.getByText("alices-secret-agent").count(),
      0,
      "Bob sees none of Alice's agents",
    );
    t.same(faults, []);
  });

  await t.test("when another tab signs in as another owner, this tab drops its data", async (t) => {
    const { page } = await openPage(t, world.browser);
    await injectWallet(page, ALICE, { chainId });
    await page.goto(`${world.baseUrl}/agents`);
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("link", { name: "alices-secret-agent", exact: true }).waitFor();
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
      .getByRole("heading", { name: "The account in your wallet changed" })
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
      .getByText("You declined in your wallet. Nothing was signed and no money moved.")
      .waitFor();
    await page.getByRole("button", { name: "Sign and withdraw" }).click();
    await page.getByText("Confirmed on chain.").waitFor();
    const shown = wallet.requests.filter(({ method }) => method === "eth_signTypedData_v4").at(-1);
    const typed = JSON.parse(String((shown?.params as string[] | undefined)?.[1])) as {
      message: Record<string, string>;
    };
    t.match(
      typed.message,
      { amount: "1.25 USDC", to: ALICE.address },
      "the wallet showed the same as the screen",
    );
  });

  await t.test("an order: declined, unanswered, from another account, then signed", async (t) => {
    const { page, faults } = await openPage(t, world.browser);
    const wallet = await injectWallet(page, ALICE, { chainId });
    await page.goto(`${world.baseUrl}/agents/new`);
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByLabel("Name").fill("signed-for");
    await page.getByLabel("Daily limit").fill("3");
    const create = page.getByRole("button", { name: "Create agent" });
    const dialog = page.getByRole("dialog", { name: "Create signed-for" });
    wallet.rejectNext("eth_signTypedData_v4");
    await create.click();
    await dialog.getByText("You declined in your wallet. Nothing was signed").waitFor();
    await inWallet(dialog, "3.00 USDC").waitFor();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await page.getByText("You did not sign. Nothing was changed.").waitFor();
    t.equal(await page.getByRole("alert").count(), 0, "declining is not shown as an error");
    t.equal(await page.getByLabel("Daily limit").inputValue(), "3");
    wallet.hangNext("eth_signTypedData_v4");
    await create.click();
    await dialog.getByText("Compare the details in your wallet").waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    t.equal(await page.getByLabel("Name").inputValue(), "signed-for");
    t.equal(wallet.windows(), 2, "one window for each press");
    wallet.signNextAs(BOB);
    let isExplained = false;
    wallet.whileSigning(async () => {
      isExplained = await inWallet(dialog, "3.00 USDC").isVisible();
    });
    await create.click();
    await dialog.getByText(/The signature is not from 0x/).waitFor();
    await dialog.getByRole("button", { name: "Sign again" }).click();
    await page.getByRole("heading", { name: "signed-for is ready" }).waitFor();
    t.ok(isExplained, "the raw numbers are explained when the wallet opens");
    t.equal(wallet.windows(), 4);
    t.same(faults, []);
  });

  await t.test("orders that do not succeed at first", async (t) => {
    const alice = await signIn(world, ALICE);
    const agent = await createAgent(world, alice, { name: "changing", dailyLimit: "5" });
    const { page, faults } = await openPage(t, world.browser);
    const wallet = await injectWallet(page, ALICE, { chainId, knownChains: [1, chainId] });
    await page.goto(`${world.baseUrl}/agents/${agent.id}/rules`);
    await page.getByRole("button", { name: /Test Wallet/ }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    const dialog = page.getByRole("dialog");
    const raiseTo = async (limit: string): Promise<void> => {
      await page.getByLabel("Daily limit").fill(limit);
      await page.getByRole("button", { name: "Sign and save changes" }).click();
    };
    const saved = async (limit: string): Promise<void> => {
      await page.getByText(`of ${limit} USDC in the last 24 h`).waitFor();
      await dialog.waitFor({ state: "detached" });
    };
    const url = `/api/agents/${agent.id}`;

    await t.test("changed in another tab while the wallet was open", async (t) => {
      const before = wallet.windows();
      wallet.whileSigning(() =>
        asOwner(world.app, alice, { method: "PATCH", url, body: { perPaymentLimit: "2" } }),
      );
      await raiseTo("6");
      await dialog.getByText("The rules changed in the meantime.").waitFor();
      await dialog.getByText("Limit per payment").waitFor();
      await inWallet(dialog, "2.00 USDC").waitFor();
      t.equal(wallet.windows() - before, 1, "the newer order waits for a press");
      await dialog.getByRole("button", { name: "Sign again" }).click();
      await saved("6.00");
      const now = await asOwner(world.app, alice, { method: "GET", url });
      t.match(now.json(), { dailyLimit: "6", perPaymentLimit: "2" });
    });

    await t.test("signed after its deadline", async (t) => {
      let isLate = false;
      await page.route(`**${url}`, async (route) => {
        if (isLate || !route.request().postData()?.includes("signature")) return route.continue();
        isLate = true;
        await route.fulfill({
          status: 422,
          contentType: "application/problem+json",
          body: JSON.stringify({ code: "signature_expired", detail: "The order has expired." }),
        });
      });
      await raiseTo("7");
      await dialog.getByText("The order expired").waitFor();
      await dialog.getByRole("button", { name: "Sign again" }).click();
      await saved("7.00");
      await page.unroute(`**${url}`);
      t.pass("a new order was signed");
    });

    await t.test(
      "a response lost after signing: the same order is sent again, and works once",
      async (t) => {
        const before = wallet.windows();
        let isLost = false;
        await page.route(`**${url}`, async (route) => {
          if (isLost || !route.request().postData()?.includes("signature")) return route.continue();
          isLost = true;
          await route.fetch();
          await route.abort();
        });
        await raiseTo("8");
        await dialog.getByText("the response was lost").waitFor();
        await dialog.getByRole("button", { name: "Send it again" }).click();
        await page.getByText("This order was already carried out").waitFor();
        await saved("8.00");
        await page.unroute(`**${url}`);
        t.equal(wallet.windows() - before, 1);
      },
    );

    await t.test("a response lost for good: no claim that nothing happened", async (t) => {
      await page.route(`**${url}`, (route) =>
        route.request().postData()?.includes("signature") ? route.abort() : route.continue(),
      );
      await raiseTo("8.5");
      await dialog.getByText("the response was lost").waitFor();
      await dialog.getByRole("button", { name: "Cancel" }).click();
      await page.getByText("the change may have been made").waitFor();
      t.equal(await page.getByText("Nothing was changed.").count(), 0);
      await page.unroute(`**${url}`);
    });

    await t.test("an order that differs from the request is not signed", async (t) => {
      const before = wallet.windows();
      await page.reload();
      await page.route(`**${url}`, async (route) => {
        if (route.request().method() !== "PATCH") return route.continue();
        const response = await route.fetch();
        const problem = (await response.json()) as { order: { payees: unknown[] } };
        problem.order.payees.push({
          payee: BOB.address,
          label: "",
          site: "",
          dailyLimit: String(2n ** 256n - 1n),
          perPaymentLimit: String(2n ** 256n - 1n),
          expiresAt: String(2n ** 256n - 1n),
        });
        await route.fulfill({ response, json: problem });
      });
      await raiseTo("9");
      await page.getByText("The order from the service differs from your request").waitFor();
      await page.getByText(BOB.address).first().waitFor();
      t.equal(wallet.windows(), before, "the wallet received no request");
      t.equal(await page.getByLabel("Daily limit").inputValue(), "9");
      await page.unroute(`**${url}`);
    });

    await t.test("after a reload one press is enough with the same account", async (t) => {
      await page.reload();
      await raiseTo("10");
      await saved("10.00");
      await page.reload();
      await page.getByLabel("Daily limit").fill("11");
      await wallet.switchAccount(page, BOB);
      await page.getByRole("button", { name: "Sign and save changes" }).click();
      await dialog.getByText("Connect the wallet you signed in with").waitFor();
      await dialog.getByRole("button", { name: /Test Wallet/ }).click();
      await dialog.getByText(/Your wallet uses the account 0x/).waitFor();
      await wallet.switchAccount(page, ALICE);
      await dialog.getByRole("button", { name: /Test Wallet/ }).click();
      await dialog.getByRole("button", { name: "Sign", exact: true }).click();
      await saved("11.00");
      t.pass("the input is kept");
    });

    await t.test("on another chain, the chain is switched first", async (t) => {
      const before = wallet.windows();
      await wallet.switchChain(page, 1);
      await raiseTo("12");
      await dialog.getByText("Your wallet is on chain 1.").waitFor();
      await dialog.getByRole("button", { name: "Switch to Arc Testnet" }).click();
      await dialog.getByRole("button", { name: "Sign", exact: true }).click();
      await saved("12.00");
      t.equal(wallet.windows() - before, 1);
    });

    await t.test("pausing needs no wallet; resuming and a new key do", async (t) => {
      const before = wallet.windows();
      await page.getByRole("button", { name: "Pause", exact: true }).click();
      await page.getByRole("button", { name: "Resume", exact: true }).waitFor();
      t.equal(wallet.windows(), before);
      wallet.hangNext("eth_signTypedData_v4");
      await page.getByRole("button", { name: "Resume", exact: true }).click();
      await dialog.getByText("paused", { exact: true }).waitFor();
      await dialog.getByRole("button", { name: "Cancel" }).click();
      await page.getByRole("button", { name: "Resume", exact: true }).click();
      await page.getByRole("button", { name: "Pause", exact: true }).waitFor();
      await page.getByRole("link", { name: "Keys" }).click();
      await page.getByRole("button", { name: "New key" }).click();
      await page.getByLabel("Label").fill("ci");
      wallet.rejectNext("eth_signTypedData_v4");
      await page.getByRole("button", { name: "Create key" }).click();
      await page.getByText("You declined in your wallet.").waitFor();
      // Escape closes only the topmost dialog; the form below stays, with its input.
      await page.keyboard.press("Escape");
      await page.getByText("You did not sign. Nothing was changed.").waitFor();
      t.equal(await page.getByLabel("Label").inputValue(), "ci");
      await page.getByRole("button", { name: "Create key" }).click();
      await page.getByTestId("api-key").waitFor();
      t.equal(wallet.windows() - before, 4);
    });
    t.same(faults, []);
  });

  await t.test(
    "on a public screen too, a changed account removes the first one's data",
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
      await page.getByRole("heading", { name: "The account in your wallet changed" }).waitFor();
      t.equal(await page.getByText("alices-secret-agent").count(), 0);
      await page.getByRole("button", { name: "Sign out" }).click();
      await page.getByRole("heading", { name: /Give your agent a wallet/ }).waitFor();
    },
  );

  await t.test(
    "funding from the wallet: declined, then signed, without gas from the owner",
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
      // Nine minted just now, and the earlier withdrawal went to the same wallet.
      await page.getByText("10.25 USDC").waitFor();
      await page.getByLabel("Amount").fill("11");
      await page.getByRole("button", { name: "Sign and send" }).click();
      await page.getByText("Your wallet holds 10.25 USDC.").waitFor();
      await page.getByLabel("Amount").fill("4.5");
      wallet.rejectNext("eth_signTypedData_v4");
      await page.getByRole("button", { name: "Sign and send" }).click();
      await page.getByText("You declined in your wallet. No money moved.").waitFor();
      await page.getByRole("button", { name: "Sign and send" }).click();
      await page.getByText("Settled.").waitFor();
      await page.keyboard.press("Escape");
      await page.getByText("4.50 USDC").first().waitFor();
      const methods = wallet.requests.map(({ method }) => method);
      t.notOk(methods.includes("eth_sendTransaction"), "the wallet sent no transaction itself");
    },
  );
});

t.test("if the facilitator requires a key, the wallet sends the transfer", async (t) => {
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
  await page.getByText("Sent; the balance updates").waitFor();
  await page.keyboard.press("Escape");
  await page.getByText("2.25 USDC").first().waitFor({ timeout: 20_000 });
  t.same(faults, []);
});
