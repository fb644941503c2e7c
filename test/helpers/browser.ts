// A real Chromium for tests: the one from npm on Linux x64, an installed Chrome elsewhere.
import { chromium, type Browser, type Download, type Locator, type Page } from "playwright-core";
import type { Test } from "tap";
import { launchOptions } from "./bundled-browser.ts";

export async function launchBrowser(t: Test): Promise<Browser> {
  const browser = await chromium.launch({ headless: true, ...(await launchOptions()) });
  t.teardown(() => browser.close());
  return browser;
}

export interface PageOptions {
  width?: number;
  height?: number;
  colorScheme?: "light" | "dark";
  reducedMotion?: "reduce" | "no-preference";
}

export interface WatchedPage {
  page: Page;
  /** Uncaught errors and policy violations; a good run has none. */
  faults: string[];
}

/** A page in a context of its own: no cookie or storage is shared with another. */
export async function openPage(
  t: Test,
  browser: Browser,
  options: PageOptions = {},
): Promise<WatchedPage> {
  const context = await browser.newContext({
    viewport: { width: options.width ?? 1280, height: options.height ?? 900 },
    colorScheme: options.colorScheme ?? "light",
    reducedMotion: options.reducedMotion ?? "no-preference",
    acceptDownloads: true,
  });
  t.teardown(() => context.close().catch(() => {}));
  const page = await context.newPage();
  // Generous: a machine that runs the other tests beside is slow, and a right answer is never late.
  page.setDefaultTimeout(30_000);
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(`uncaught: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !/Failed to load resource/.test(message.text()))
      faults.push(message.text());
  });
  return { page, faults };
}

/** What a press of this button saves; when nothing comes, what the page says. */
export async function downloadBy(page: Page, button: Locator): Promise<Download> {
  try {
    const [download] = await Promise.all([page.waitForEvent("download"), button.click()]);
    return download;
  } catch (cause) {
    throw new Error(`no download: ${await page.locator("body").innerText()}`, { cause });
  }
}
