// The Chromium that the tests bring along (Linux x64): unpacked for one run, with fonts it can find.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import bundled, { inflate } from "@sparticuz/chromium";
import { chromium, type LaunchOptions } from "playwright-core";

const ARGS = [
  "--disable-background-networking",
  "--disable-component-update",
  "--no-first-run",
  "--font-render-hinting=none",
];
const LIBRARIES = join(
  import.meta.dirname,
  "../../node_modules/@sparticuz/chromium/bin/al2023.tar.br",
);

const isBundleUsable = process.platform === "linux" && process.arch === "x64";

/**
 * Unpacks the browser into `home`, once: test files run side by side, so each unpacks into a folder of its own
 * and moves it into place whole; the first mover wins.
 */
async function unpack(home: string): Promise<void> {
  if (existsSync(home)) return;
  mkdirSync(dirname(home), { recursive: true });
  const own = mkdtempSync(`${home}-`);
  const before = process.env.TMPDIR;
  process.env.TMPDIR = own;
  try {
    await bundled.executablePath();
    await inflate(LIBRARIES);
  } finally {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
  }
  // The bundle's own configuration names folders of another machine; without a font the browser aborts at the
  // first text. So ours names the fonts beside it, and no folder that an earlier run may have left.
  writeFileSync(join(own, "fonts.conf"), fontConfiguration(home));
  try {
    renameSync(own, home);
  } catch {
    rmSync(own, { recursive: true, force: true });
  }
}

const fontConfiguration = (home: string): string => `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>${join(home, "fonts", "fonts")}</dir>
  <cachedir>${join(home, "fonts-cache")}</cachedir>
</fontconfig>
`;

const lacksLibraries = (executable: string): boolean => {
  try {
    return execFileSync("ldd", [executable], { encoding: "utf8" }).includes("not found");
  } catch {
    return false;
  }
};

/** Where this run keeps its browser: the folder of the test run, which ends with it, else one of this process. */
export function browserHome(): string {
  const folder = process.env["PURSER_TEST_DIR"];
  return join(folder ?? join(tmpdir(), `purser-browser-${process.pid}`), "chromium");
}

export async function launchOptions(home = browserHome()): Promise<LaunchOptions> {
  if (!isBundleUsable) {
    const sandbox = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
    return { channel: "chrome", args: [...ARGS, ...sandbox] };
  }
  await unpack(home);
  const executablePath = join(home, "chromium");
  const environment: Record<string, string> = { ...(process.env as Record<string, string>) };
  delete environment["FONTCONFIG_PATH"];
  environment["FONTCONFIG_FILE"] = join(home, "fonts.conf");
  // Only where the system has none of its own: mixing versions of these libraries crashes.
  if (lacksLibraries(executablePath)) environment["LD_LIBRARY_PATH"] = join(home, "al2023", "lib");
  return { executablePath, args: [...ARGS, "--no-zygote", "--no-sandbox"], env: environment };
}

/** Starts the browser and lets it draw a word: the width of the word, or why it does not start. */
export async function drawAWord(home?: string): Promise<number> {
  const browser = await chromium.launch({ headless: true, ...(await launchOptions(home)) });
  try {
    const page = await browser.newPage();
    await page.setContent("<span id=word>Purser</span>");
    const box = await page.locator("#word").boundingBox();
    await page.screenshot();
    return box?.width ?? 0;
  } finally {
    await browser.close();
  }
}
