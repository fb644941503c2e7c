// Becomes server/dist/main.js: loads the compiled server with V8's code cache from the build, so that a start compiles
// nothing. If the cache belongs to another version of Node or other flags, V8 ignores it and compiles as usual.
import * as fs from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import v8 from "node:v8";
import vm from "node:vm";

const FOLDER = dirname(fileURLToPath(import.meta.url));
const FILE = join(
  FOLDER,
  fs.readdirSync(FOLDER).find((name) => /^server-\w+\.cjs$/.test(name)) ?? "",
);
const MADE = `${FILE}.v8`;

/** By then the first requests are answered, and there is hardly any traffic yet. */
const GIVES_BACK_AFTER_MS = 1_000;
const GROWS_AFTER_MS = 5_000;
const LOOK_EVERY_MS = 30_000;
/** The highest share of busy time at which the process counts as quiet: a collection takes about 40 ms. */
const QUIET = 0.1;
const WORTH_BYTES = 20 * 1024 * 1024;
// Objects from the start live forever, and would let the young generation grow to 32 MB for nothing. It may grow when
// there is traffic. (Set before the script is loaded, because V8's code cache depends on the flags.)
v8.setFlagsFromString("--semi-space-growth-factor=1");
// The heap was created with or without this flag (`npm start`, the image); the code cache depends on the current flags.
v8.setFlagsFromString("--memory-reducer");

/**
 * The bytes of a file, in memory that can be returned to the system at once. After glibc first frees some megabytes
 * it keeps twice as many for each of its arenas, for as long as the process lives (80 MB).
 * @param {string} path
 */
function readReleasable(path) {
  const file = fs.openSync(path, "r");
  try {
    const { size } = fs.fstatSync(file);
    // Node has had resizable buffers since version 20; TypeScript's library for our target does not have them.
    const memory = new /** @type {any} */ (ArrayBuffer)(size, { maxByteLength: size });
    const bytes = Buffer.from(memory);
    for (let at = 0, read = 1; at < size && read > 0; at += read)
      read = fs.readSync(file, bytes, at, size - at, at);
    return { bytes, giveBack: () => memory.resize(0) };
  } finally {
    fs.closeSync(file);
  }
}

function load() {
  // The file contains only ASCII (build.mjs), so one byte per character is enough.
  const text = readReleasable(FILE);
  const source = text.bytes.toString("latin1");
  text.giveBack();
  const made = fs.existsSync(MADE) ? readReleasable(MADE) : undefined;
  const script = new vm.Script(source, {
    filename: FILE,
    ...(made && { cachedData: made.bytes }),
  });
  made?.giveBack();
  /** @type {{ exports: Record<string, () => Promise<void>> }} */
  const module = { exports: {} };
  const run = script.runInThisContext();
  run(module.exports, createRequire(FILE), module, FILE, FOLDER);
  return { script, exported: module.exports };
}

const { script, exported } = load();

export async function main() {
  await exported.main?.();
  setTimeout(giveBack, GIVES_BACK_AFTER_MS).unref();
  setTimeout(() => v8.setFlagsFromString("--semi-space-growth-factor=2"), GROWS_AFTER_MS).unref();
  giveBackWhenQuiet();
}

/** Garbage of the start is a quarter of the heap. Otherwise V8 would collect it only under traffic. */
function giveBack() {
  v8.setFlagsFromString("--expose-gc");
  vm.runInNewContext("gc")();
  v8.setFlagsFromString("--no-expose-gc");
}

/**
 * Replaces V8's memory reducer after traffic: the reducer also drops the compiled code of everything that is idle at
 * the moment, which is a quarter of all that a burst uses. `npm start` and the image disable it.
 */
function giveBackWhenQuiet() {
  const used = () => v8.getHeapStatistics().used_heap_size;
  let kept = used();
  let before = performance.eventLoopUtilization();
  setInterval(() => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, before);
    before = now;
    if (utilization > QUIET || used() < kept + WORTH_BYTES) return;
    giveBack();
    kept = used();
  }, LOOK_EVERY_MS).unref();
}

/** Whether V8 accepted the code cache of the build; undefined if there is none. */
export const isTaken =
  script.cachedDataRejected === undefined ? undefined : !script.cachedDataRejected;

/** Part of the build, in its own process: runs what a start runs, and saves V8's code cache. */
export async function keep() {
  await exported.rehearse?.();
  fs.writeFileSync(`${MADE}.new`, script.createCachedData());
  fs.renameSync(`${MADE}.new`, MADE);
}
