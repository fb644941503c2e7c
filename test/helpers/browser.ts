// A real Chromium for tests: the one from npm on Linux x64, an installed Chrome elsewhere.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import bundled, { inflate } from "@sparticuz/chromium";
import { chromium, type Browser, type LaunchOptions, type Page } from "playwright-core";
import type { Test } from "tap";

const ARGS = [
  "--disable-background-networking",
  "--disable-component-update",
  "--no-first-run",
  "--font-render-hinting=none",
];

const isBundleUsable = process.platform === "linux" && process.arch === "x64";

/**
 * Unpacks the bundled browser once per machine and version. Test files run side by side, so each
 * unpacks into a folder of its own and moves it into place whole; the first mover wins.
 */
async function unpackBundled(): Promise<string> {
  const home = join(tmpdir(), `purser-chromium-153-${userInfo().uid}`);
  if (!existsSync(home)) {
    const own = mkdtempSync(`${home}-`);
    const before = process.env.TMPDIR;
    process.env.TMPDIR = own;
    try {
      await bundled.executablePath();
      const libraries = join(
        import.meta.dirname,
        "../../node_modules/@sparticuz/chromium/bin/al2023.tar.br",
      );
      await inflate(libraries);
    } finally {
      if (before === undefined) delete process.env.TMPDIR;
      else process.env.TMPDIR = before;
    }
    try {
      renameSync(own, home);
    } catch {
      rmSync(own, { recursive: true, force: true });
    }
  }
  return home;
}

const lacksLibraries = (executable: string): boolean => {
  try {
    return execFileSync("ldd", [executable], { encoding: "utf8" }).includes("not found");
  } catch {
    return false;
  }
};

async function launchOptions(): Promise<LaunchOptions> {
  const sandbox = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  if (!isBundleUsable) return { channel: "chrome", args: [...ARGS, ...sandbox] };
  const home = await unpackBundled();
  const executablePath = join(home, "chromium");
  const environment: Record<string, string> = { ...(process.env as Record<string, string>) };
  environment.FONTCONFIG_PATH ??= join(home, "fonts");
  // Only where the system has none of its own: mixing versions of these libraries crashes.
  if (lacksLibraries(executablePath)) environment.LD_LIBRARY_PATH = join(home, "al2023", "lib");
  return { executablePath, args: [...ARGS, "--no-zygote", "--no-sandbox"], env: environment };
}

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
