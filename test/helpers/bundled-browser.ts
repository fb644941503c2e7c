// The Chromium package for tests on Linux x64: unpacked for one run, with fonts it can find.
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
 * Unpacks the browser into `home` once. Test files run in parallel, so each unpacks into its own folder and renames
 * it when complete; the first one wins.
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
  // The bundle's font configuration names folders of another machine, and without a font the browser aborts at the
  // first text. This one names the fonts beside the browser, and no folder that an earlier run may have left.
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

/** The folder of the unpacked browser: in the folder of the test run, which is deleted with it, else one for this process. */
function browserHome(): string {
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
  // Only where the system lacks these libraries: mixing versions of them crashes.
  if (lacksLibraries(executablePath)) environment["LD_LIBRARY_PATH"] = join(home, "al2023", "lib");
  return { executablePath, args: [...ARGS, "--no-zygote", "--no-sandbox"], env: environment };
}

/** Starts the browser and renders a word. Returns its width; throws if the browser does not start. */
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
