// Becomes server/dist/main.js: loads the compiled server with what V8 made of it when it was built, so that a start
// compiles nothing. Where that is of another Node or other flags, V8 refuses it and compiles, as ever.
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import v8 from "node:v8";
import vm from "node:vm";

const FILE = fileURLToPath(new URL("server.cjs", import.meta.url));
const MADE = `${FILE}.v8`;

const GROWS_AFTER_MS = 5_000;
// What a start makes lives for ever, and would let the space for what is new grow to 32 MB, for nothing. It grows
// when there is traffic. (Before the script is loaded: what V8 made belongs to these flags.)
v8.setFlagsFromString("--semi-space-growth-factor=1");

function load() {
  const cachedData = existsSync(MADE) ? readFileSync(MADE) : undefined;
  // It holds nothing but ASCII (build.mjs): a byte in memory for each letter.
  const script = new vm.Script(readFileSync(FILE, "latin1"), {
    filename: FILE,
    ...(cachedData && { cachedData }),
  });
  /** @type {{ exports: Record<string, () => Promise<void>> }} */
  const module = { exports: {} };
  const run = script.runInThisContext();
  run(module.exports, createRequire(FILE), module, FILE, dirname(FILE));
  return { script, exported: module.exports };
}

const { script, exported } = load();

export async function main() {
  await exported.main?.();
  setTimeout(() => v8.setFlagsFromString("--semi-space-growth-factor=2"), GROWS_AFTER_MS).unref();
}
/** Whether V8 took what was made at the build; undefined where there is nothing. */
export const isTaken =
  script.cachedDataRejected === undefined ? undefined : !script.cachedDataRejected;

/** At the build, in a process of its own: loads everything a start loads, and keeps what V8 made of it. */
export async function keep() {
  await exported.loadAll?.();
  writeFileSync(`${MADE}.new`, script.createCachedData());
  renameSync(`${MADE}.new`, MADE);
}
