// A real Chromium for tests: the one from npm on Linux x64, an installed Chrome elsewhere.
import { ChildProcess } from "node:child_process";
import { chromium, type Browser, type Download, type Locator, type Page } from "playwright-core";
import root, { type Test } from "tap";
import { launchOptions } from "./bundled-browser.ts";
import { shareWithProcess } from "./shared.ts";

let launched: Promise<Browser> | undefined;

/** One browser for all test files of this process. Each page has its own context. */
export function launchBrowser(): Promise<Browser> {
  launched ??= launch();
  return launched;
}

async function launch(): Promise<Browser> {
  const before = new Set(browserProcesses());
  const browser = await chromium.launch({ headless: true, ...(await launchOptions()) });
  const [child] = browserProcesses().filter((candidate) => !before.has(candidate));
  if (!child) throw new Error("the browser started without a process of its own");
  const unshare = shareWithProcess({
    handles: [child, ...child.stdio],
    left: () => browser.contexts().flatMap((context) => context.pages().map(describePage)),
  });
  browser.on("disconnected", () => {
    // It crashed, or was closed at the end: the next file gets a new one.
    launched = undefined;
    unshare();
  });
  root.teardown(() => browser.close());
  return browser;
}

/** Child processes that Playwright controls through pipes; no other child has this flag. */
function browserProcesses(): ChildProcess[] {
  const node = process as unknown as { _getActiveHandles(): object[] };
  return node
    ._getActiveHandles()
    .filter((handle): handle is ChildProcess => handle instanceof ChildProcess)
    .filter(({ spawnargs }) => spawnargs.includes("--remote-debugging-pipe"));
}

const describePage = (page: Page): string => `a page at ${page.url()}`;

export interface PageOptions {
  width?: number;
  height?: number;
  colorScheme?: "light" | "dark";
  reducedMotion?: "reduce" | "no-preference";
  /** Without it no service worker runs, so that a test sees and can answer every request. */
  serviceWorkers?: "allow" | "block";
}

export interface WatchedPage {
  page: Page;
  /** Uncaught errors and policy violations; a good run has none. */
  faults: string[];
}

/** A page in its own context: no cookie or storage is shared with another page. */
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
    serviceWorkers: options.serviceWorkers ?? "block",
  });
  t.teardown(() => context.close().catch(() => {}));
  const page = await context.newPage();
  // Long, because the machine is slow while it runs other tests too.
  page.setDefaultTimeout(30_000);
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(`uncaught: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !/Failed to load resource/.test(message.text()))
      faults.push(message.text());
  });
  return { page, faults };
}

/** Clicks the button and returns the download; without one, throws with the text of the page. */
export async function downloadBy(page: Page, button: Locator): Promise<Download> {
  try {
    const [download] = await Promise.all([page.waitForEvent("download"), button.click()]);
    return download;
  } catch (cause) {
    throw new Error(`no download: ${await page.locator("body").innerText()}`, { cause });
  }
}
