// A local service (demo wallet, faucet, half-second blocks), opened in a browser.
import type { Browser, Locator, Page } from "playwright-core";
import type { Test } from "tap";
import { launchBrowser, openPage, type PageOptions, type WatchedPage } from "../helpers/browser.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";

export const DEMO_OWNER = testAccount(40);
const DEMO_SELLER = testAccount(41);

export interface WebWorld extends TestApp {
  browser: Browser;
  /** A page in its own browser context that opens this service. */
  open(t: Test, path: string, options?: PageOptions): Promise<WatchedPage>;
}

export async function webWorld(
  t: Test,
  options: { isLocal?: boolean; env?: Record<string, string>; blockTimeSeconds?: "auto" } = {},
): Promise<WebWorld> {
  const isLocal = options.isLocal ?? true;
  const started = await testApp(t, {
    listen: true,
    env: options.env,
    chainOptions: { blockTimeSeconds: options.blockTimeSeconds ?? 0.5 },
    configure: (config) => {
      config.demoPayTo = DEMO_SELLER.address;
      config.fetchPrivateOrigins.push(config.publicUrl);
      if (isLocal)
        config.local = {
          faucetPrivateKey: testAccount(0).privateKey,
          demoOwnerPrivateKey: DEMO_OWNER.privateKey,
        };
    },
  });
  const browser = await launchBrowser();
  return {
    ...started,
    browser,
    async open(t, path, pageOptions) {
      const watched = await openPage(t, browser, pageOptions);
      await watched.page.goto(started.baseUrl + path);
      return watched;
    },
  };
}

/** Signs in through the screens, as a user does. */
export async function signInWithDemoWallet(page: Page): Promise<void> {
  await page.getByRole("button", { name: /Demo wallet/ }).click();
  await page.getByText("What you will sign").waitFor();
  // There may be another button of this name behind the dialog; the dialog's is the last one.
  await page.getByRole("button", { name: "Sign in", exact: true }).last().click();
}

/** Signs in with an injected wallet that is an owner's recovery wallet. */
export async function signInAsSecond(page: Page, url: string, owner: string): Promise<void> {
  await page.goto(url);
  await page.getByRole("button", { name: "Use a recovery wallet" }).click();
  await page.getByLabel("The owner's address").fill(owner);
  await page.getByRole("button", { name: /Test Wallet/ }).click();
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.getByText("You are signed in as the recovery wallet.").waitFor();
}

/**
 * A fix with one press has not shown its changes, so the demo wallet's dialog shows them and waits for a
 * press.
 */
export async function confirmWithDemoWallet(page: Page, ...changes: string[]): Promise<void> {
  const dialog = page.getByRole("dialog").last();
  const press = dialog.getByRole("button", { name: "Sign", exact: true });
  await press.waitFor();
  const list = dialog.getByRole("list", { name: "Changes" });
  for (const change of changes) await list.getByText(change).first().waitFor();
  await press.click();
}

/** Sends a request as the agent, and returns the response with any status. */
export async function asAgent(
  { baseUrl }: Pick<WebWorld, "baseUrl">,
  apiKey: string,
  path: string,
  body: unknown,
): Promise<{ status: number; body: Record<string, unknown> }> {
  const response = await fetch(`${baseUrl}/api/agents/${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

/** A value in the review of what the wallet shows. */
export const inWallet = (dialog: Locator, text: string): Locator =>
  dialog.getByRole("region", { name: "What your wallet shows" }).getByText(text, { exact: true });
