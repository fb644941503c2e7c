// Goal: the tests' browser does not depend on the machine: no installed font, font path, home directory or /tmp.
import { execFile } from "node:child_process";
import { chownSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import { isFullTier } from "../helpers/tier.ts";

const ROOT = join(import.meta.dirname, "../..");
const NOBODY = 65534;

/** Draws a word in a browser unpacked into a new folder, in a process with an empty environment. */
async function drawInAnEmptyWorld(t: Test, uid: number | undefined): Promise<number> {
  const parent = join(ROOT, ".tmp");
  mkdirSync(parent, { recursive: true });
  const folder = mkdtempSync(join(parent, "browser-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  if (uid !== undefined) chownSync(folder, uid, uid);
  const script = `
    const { drawAWord } = await import(${JSON.stringify(join(ROOT, "test/helpers/bundled-browser.ts"))});
    console.log("width", await drawAWord(${JSON.stringify(join(folder, "chromium"))}));
  `;
  const args = ["-u", "NODE_OPTIONS", process.execPath, "--import=tsx", "--input-type=module"];
  const { stdout } = await promisify(execFile)("env", [...args, "--eval", script], {
    cwd: ROOT,
    ...(uid !== undefined && { uid, gid: uid }),
    env: {
      PATH: process.env.PATH,
      HOME: folder,
      TMPDIR: folder,
      FONTCONFIG_PATH: "",
      FONTCONFIG_FILE: "",
    },
  });
  return Number(/width ([0-9.]+)/.exec(stdout)?.[1]);
}

const isRoot = process.getuid?.() === 0;
// Unpacking the browser takes long. Root's own browser is the one of every test of the web app.
if (isFullTier || !isRoot)
  t.test("as the user of the tests", { timeout: 60_000 }, async (t) => {
    t.ok((await drawInAnEmptyWorld(t, undefined)) > 20, "the word has a width");
  });

const onlyRoot = isRoot ? false : "the user of the tests is a normal user";
t.test("as a normal user", { timeout: 60_000, skip: onlyRoot }, async (t) => {
  t.ok((await drawInAnEmptyWorld(t, NOBODY)) > 20, "the word has a width");
});
