// Becomes server/dist/main.js: loads the compiled server with what V8 made of it when it was built, so that a start
// compiles nothing. Where that is of another Node or other flags, V8 refuses it and compiles, as ever.
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

/** The first answers are out by then, and there is hardly any traffic yet that would wait. */
const GIVES_BACK_AFTER_MS = 1_000;
const GROWS_AFTER_MS = 5_000;
const LOOK_EVERY_MS = 30_000;
/** Of the time, working: a collection takes some 40 ms. */
const QUIET = 0.1;
const WORTH_BYTES = 20 * 1024 * 1024;
// What a start makes lives for ever, and would let the space for what is new grow to 32 MB, for nothing. It grows
// when there is traffic. (Before the script is loaded: what V8 made belongs to these flags.)
v8.setFlagsFromString("--semi-space-growth-factor=1");
// The heap was made with or without one (`npm start`, the image); what V8 made is of the flags as they are now.
v8.setFlagsFromString("--memory-reducer");

/**
 * The bytes of a file, in memory that can be given back at once, and to the system: glibc, from the first time that
 * some megabytes are freed, keeps twice as many for each of its arenas, for as long as the process lives (80 MB).
 * @param {string} path
 */
function lent(path) {
  const file = fs.openSync(path, "r");
  try {
    const { size } = fs.fstatSync(file);
    // Node has had buffers that shrink since 20; TypeScript's library for our target does not know them.
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
  // It holds nothing but ASCII (build.mjs): a byte in memory for each letter.
  const text = lent(FILE);
  const source = text.bytes.toString("latin1");
  text.giveBack();
  const made = fs.existsSync(MADE) ? lent(MADE) : undefined;
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

/** What only the start needed is a quarter of the heap. Left alone, V8 looks for it when there is traffic. */
function giveBack() {
  v8.setFlagsFromString("--expose-gc");
  vm.runInNewContext("gc")();
  v8.setFlagsFromString("--no-expose-gc");
}

/**
 * After traffic, in place of V8's memory reducer: that one ends, with what nothing of is alive just then, the code compiled
 * for it, a quarter of all that a burst uses. `npm start` and the image go without it.
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

/** Whether V8 took what was made at the build; undefined where there is nothing. */
export const isTaken =
  script.cachedDataRejected === undefined ? undefined : !script.cachedDataRejected;

/** At the build, in a process of its own: runs what a start runs, and keeps what V8 made of it. */
export async function keep() {
  await exported.rehearse?.();
  fs.writeFileSync(`${MADE}.new`, script.createCachedData());
  fs.renameSync(`${MADE}.new`, MADE);
}
