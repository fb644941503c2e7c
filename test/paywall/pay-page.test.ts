// Goal: a user pays for a page with a browser wallet, and gets a correct message when it fails.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import t, { type Test } from "tap";
import type { Browser, Page } from "playwright-core";
import { getAddress } from "viem";
import type { PrivateKeyAccount } from "viem/accounts";
import { launchBrowser, openPage, type PageOptions } from "../helpers/browser.ts";
import { testApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";

const axeSource = readFileSync(
  createRequire(import.meta.url).resolve("axe-core/axe.min.js"),
  "utf8",
);

interface Wallet {
  account: PrivateKeyAccount;
  /** A decimal number; the wallet starts on another chain. */
  chainId: number;
  knows: number[];
  declines: boolean;
  calls: { method: string; params?: unknown[] }[];
}

/** An EIP-1193 wallet injected as by an extension: the keys stay outside the page. */
async function injectWallet(page: Page, wallet: Wallet): Promise<void> {
  const refuse = (code: number) => ({ error: { code, message: "refused" } });
  await page.exposeFunction(
    "walletRequest",
    async (call: { method: string; params?: [never, string] }) => {
      wallet.calls.push(call);
      const parameters = call.params?.[0] as { chainId?: string } | undefined;
      switch (call.method) {
        case "eth_requestAccounts":
          return wallet.declines ? refuse(4001) : { result: [wallet.account.address] };
        case "eth_chainId":
          return { result: `0x${wallet.chainId.toString(16)}` };
        case "wallet_switchEthereumChain":
          if (!wallet.knows.includes(Number(parameters?.chainId))) return refuse(4902);
          wallet.chainId = Number(parameters?.chainId);
          return { result: null };
        case "wallet_addEthereumChain":
          wallet.chainId = Number(parameters?.chainId);
          return { result: null };
        case "eth_signTypedData_v4": {
          const typed = JSON.parse(call.params?.[1] ?? "{}") as { domain: { chainId: number } };
          if (typed.domain.chainId !== wallet.chainId) return refuse(-32603);
          return { result: await wallet.account.signTypedData(typed as never) };
        }
        default:
          return refuse(4200);
      }
    },
  );
  await page.addInitScript(`
    const provider = {
      request: async (call) => {
        const { result, error } = await window.walletRequest(call);
        if (error) throw Object.assign(new Error(error.message), { code: error.code });
        return result;
      },
    };
    const detail = Object.freeze({ info: { uuid: "1", name: "Test Wallet", icon: "", rdns: "test" }, provider });
    window.addEventListener("eip6963:requestProvider", () =>
      window.dispatchEvent(new CustomEvent("eip6963:announceProvider", { detail })));
  `);
}

const newWallet = (index: number): Wallet => ({
  account: testAccount(index),
  chainId: 1,
  knows: [],
  declines: false,
  calls: [],
});

async function visit(
  t: Test,
  browser: Browser,
  url: string,
  wallet?: Wallet,
  options: PageOptions = {},
) {
  const watched = await openPage(t, browser, { width: 360, ...options });
  if (wallet) await injectWallet(watched.page, wallet);
  const answer = await watched.page.goto(url);
  t.equal(answer?.status(), 402);
  return watched;
}

/** No state of the page, in either theme, may overflow or have axe violations. */
async function checkLook(t: Test, page: Page): Promise<void> {
  t.equal(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), true);
  // Evaluated instead of added as a script, which the page's Content-Security-Policy would refuse.
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate<{ violations: { id: string }[] }>("axe.run()");
  t.same(
    violations.map(({ id }) => id),
    [],
  );
}

const repository = new URL("../../", import.meta.url);
const readText = (path: string): string => readFileSync(new URL(path, repository), "utf8");

/** The custom properties of the first block that begins with `start`. */
function tokensIn(css: string, start: string): Map<string, string> {
  const from = css.indexOf(start);
  const block = from < 0 ? "" : css.slice(from, css.indexOf("}", from));
  return new Map(
    [...block.matchAll(/^ *--([\w-]+): ([^;]+);/gm)].map(([, name, value]) => [name, value]) as [
      string,
      string,
    ][],
  );
}

t.test("the pay page has the colors, fonts and logo of the web app", async (t) => {
  const own = readText("packages/paywall/src/assets/look.css");
  const app = readText("web/src/styles/tokens.css");
  const shared = tokensIn(app, ":root {");
  const light = tokensIn(app, ':root[data-mantine-color-scheme="light"]');
  const dark = tokensIn(app, ':root[data-mantine-color-scheme="dark"]');
  const ownLight = tokensIn(own, ":root {");
  const ownDark = tokensIn(own, "@media (prefers-color-scheme: dark)");
  t.ok(ownLight.size > 30 && ownDark.size > 15, "the blocks were found");
  for (const [name, value] of ownLight) t.equal(value, shared.get(name) ?? light.get(name), name);
  for (const [name, value] of ownDark) t.equal(value, dark.get(name), `${name} in the dark`);
  t.same(
    [...ownLight.keys()].filter((name) => !shared.has(name) && !ownDark.has(name)),
    [],
    "every color has a dark variant",
  );
  t.equal(readText("packages/paywall/src/assets/mark.svg"), readText("web/public/favicon.svg"));
});

t.test("paying in the browser", async (t) => {
  const { chain, baseUrl } = await testApp(t, { listen: true });
  const browser = await launchBrowser();
  const url = `${baseUrl}/api/arc-stats`;

  t.test("without a wallet the page says so, and is accessible on a phone", async (t) => {
    const { page, faults } = await visit(t, browser, url);
    await page.getByText("No wallet found in this browser").waitFor();
    await page.getByRole("heading", { name: "0.001 USDC" }).waitFor();
    await checkLook(t, page);
    t.same(
      await page.evaluate(`(async () => {
        await document.fonts.ready;
        return [...document.fonts].map(({ family, status }) => [family, status]);
      })()`),
      [
        ["Geist Variable", "loaded"],
        ["Geist Mono Variable", "loaded"],
      ],
    );
    t.same(faults, []);
  });

  t.test("the payee is checksummed, and copied in full", async (t) => {
    const { page, faults } = await visit(t, browser, url);
    const unpaid = await fetch(url, { headers: { accept: "application/json" } });
    const { accepts } = (await unpaid.json()) as { accepts: { payTo: string }[] };
    const payTo = getAddress(accepts[0]?.payTo ?? "");
    await page.getByText(payTo, { exact: true }).waitFor();
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.getByRole("button", { name: "Copy address" }).click();
    await page.getByText("Copied", { exact: true }).waitFor();
    t.equal(await page.evaluate("navigator.clipboard.readText()"), payTo);
    t.same(faults, []);
  });

  t.test("one signature pays, on a chain that the wallet first had to add", async (t) => {
    const wallet = newWallet(2);
    await chain.mint(wallet.account.address, 1_000_000n);
    const { page, faults } = await visit(t, browser, url, wallet);
    await page.getByRole("button", { name: "Pay with Test Wallet" }).click();
    await page.getByText("Paid. Each response is a new payment").waitFor();
    const data = JSON.parse((await page.locator("#data").textContent()) ?? "{}") as object;
    t.match(data, { network: "eip155:5042002", height: Number });
    const hash = (await page.locator("#receipt a").textContent()) as `0x${string}`;
    t.equal((await chain.publicClient.getTransactionReceipt({ hash })).status, "success");
    const added = wallet.calls.find(({ method }) => method === "wallet_addEthereumChain");
    t.match(added?.params, [{ chainId: "0x4cef52", chainName: "Arc Testnet" }]);
    t.equal(wallet.calls.filter(({ method }) => method.startsWith("eth_sign")).length, 1);
    t.notOk(wallet.calls.some(({ method }) => method === "eth_sendTransaction"));
    await checkLook(t, page);
    t.same(faults, []);
  });

  t.test("a route that also takes a maximum is paid its exact price", async (t) => {
    const wallet = newWallet(6);
    await chain.mint(wallet.account.address, 1_000_000n);
    const { page, faults } = await visit(
      t,
      browser,
      `${baseUrl}/api/arc-blocks?from=1&count=2`,
      wallet,
    );
    await page.getByRole("heading", { name: "0.002 USDC" }).waitFor();
    await page.getByRole("button", { name: "Pay with Test Wallet" }).click();
    await page.getByText("Paid. Each response is a new payment").waitFor();
    const data = JSON.parse((await page.locator("#data").textContent()) ?? "{}") as object;
    t.match(data, { blocks: [{ height: 1 }, { height: 2 }] });
    t.equal(await chain.usdcOf(wallet.account.address), 998_000n);
    t.same(faults, []);
  });

  t.test("by keyboard alone, in dark mode, with reduced motion", async (t) => {
    const wallet = newWallet(5);
    await chain.mint(wallet.account.address, 1_000_000n);
    const { page, faults } = await visit(t, browser, url, wallet, {
      colorScheme: "dark",
      reducedMotion: "reduce",
    });
    await page.getByRole("button", { name: "Pay with Test Wallet" }).waitFor();
    t.equal(
      await page.evaluate(
        'getComputedStyle(document.querySelector("#wallets button")).transitionDuration',
      ),
      "0s",
    );
    await checkLook(t, page);
    const focused = (): Promise<string> => page.evaluate("document.activeElement.innerText");
    for (let presses = 0; presses < 5 && !(await focused()).startsWith("Pay with"); presses += 1)
      await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByText("Paid. Each response is a new payment").waitFor();
    t.equal(await focused(), "Receipt", "the focus moves to the receipt");
    await page.keyboard.press("Tab");
    t.match(await focused(), /^0x[0-9a-f]{64}$/);
    await checkLook(t, page);
    t.same(faults, []);
  });

  t.test("after the wallet declined nothing is paid, and the user can try again", async (t) => {
    const wallet = { ...newWallet(3), declines: true };
    await chain.mint(wallet.account.address, 1_000_000n);
    const { page } = await visit(t, browser, url, wallet);
    const button = page.getByRole("button", { name: "Pay with Test Wallet" });
    await button.click();
    await page.getByText("You declined. Nothing was paid.").waitFor();
    t.match(await page.evaluate("document.activeElement.innerText"), /^Pay with/);
    wallet.declines = false;
    await button.click();
    await page.getByText("Paid. Each response is a new payment").waitFor();
  });

  t.test("a wallet without money shows the reason", async (t) => {
    const { page } = await visit(t, browser, url, newWallet(4));
    await page.getByRole("button", { name: "Pay with Test Wallet" }).click();
    await page.getByText(/insufficient_balance.*nothing was paid/).waitFor();
    t.equal(await page.locator("#result").isVisible(), false);
  });
});
