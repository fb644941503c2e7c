// Finds the test files, reads the options in their first lines, and groups them into processes by their
// duration.
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import { BootstrapError, ROOT } from "../../server/local/bootstrap.mjs";

export const UNIT = join("test", "unit");
/** The duration of each file on a development machine. Written by `npm run test:full -- --save-times`. */
const TIMES = join(ROOT, "test", "runner", "file-seconds.json");
/** Files of a folder share a process up to this total duration: a process costs three seconds of CPU before its first test. */
const TOGETHER_SECONDS = 180;
/** The assumed duration of a file that was not measured yet. */
const UNKNOWN_SECONDS = 5;

/** All test files, or those at or below the paths. */
export function testFiles(paths) {
  const wanted = (paths.length > 0 ? paths : ["test"]).map((path) => resolve(ROOT, path));
  return wanted.flatMap((path) => {
    if (!existsSync(path)) throw new BootstrapError(`there is no ${relative(ROOT, path)}`, "");
    return statSync(path).isDirectory() ? filesIn(path, ".test.ts") : [relative(ROOT, path)];
  });
}

/** Programs that tests start as child processes. */
export function childScripts() {
  return filesIn(join(ROOT, "test"), ".child.ts");
}

/** Skips packages' own files, which npm may install below a workspace. */
function filesIn(folder, ending) {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(ending) && !name.split(sep).includes("node_modules"))
    .map((name) => relative(ROOT, join(folder, name)));
}

export const isUnit = (file) => file.startsWith(UNIT);
export const isFullTier = (file) => /^\/\/ Tier: full \(/m.test(headOf(file));
const runsAlone = (file) => /^\/\/ Runs alone\b/m.test(headOf(file));
const hasOwnProcess = (file) => runsAlone(file) || /^\/\/ Own process\b/m.test(headOf(file));

/** How long a file may take; most need no line about it. */
export const limitSecondsOf = (file, usual) => {
  const [, minutes] = /^\/\/ Limit: ([0-9]+) minutes\b/m.exec(headOf(file)) ?? [];
  return Math.max(usual, Number(minutes ?? 0) * 60);
};

function headOf(file) {
  return readFileSync(join(ROOT, file), "utf8").slice(0, 2000);
}

/**
 * The longest first, so that no long file is still running when the others are done; files that run alone
 * come last.
 * @returns {{files: string[], alone: boolean}[]} one entry per process
 */
export function processesFor(files) {
  const known = existsSync(TIMES) ? JSON.parse(readFileSync(TIMES, "utf8")) : {};
  const seconds = (file) => known[file] ?? UNKNOWN_SECONDS;
  const processes = [];
  const open = new Map();
  for (const file of files.toSorted((a, b) => seconds(b) - seconds(a) || a.localeCompare(b))) {
    const folder = dirname(file);
    const limit = isUnit(file) ? Infinity : TOGETHER_SECONDS;
    let process = hasOwnProcess(file) ? undefined : open.get(folder);
    if (!process || process.seconds + seconds(file) > limit) {
      process = { files: [], seconds: 0, alone: runsAlone(file) };
      processes.push(process);
      if (!hasOwnProcess(file)) open.set(folder, process);
    }
    process.files.push(file);
    process.seconds += seconds(file);
  }
  return processes.toSorted((a, b) => Number(a.alone) - Number(b.alone) || b.seconds - a.seconds);
}

/** @param {Map<string, number>} taken */
export function saveTimes(taken) {
  const known = existsSync(TIMES) ? JSON.parse(readFileSync(TIMES, "utf8")) : {};
  const all = testFiles([]).map((file) => [file, Math.round(taken.get(file) ?? known[file] ?? 0)]);
  writeFileSync(TIMES, `${JSON.stringify(Object.fromEntries(all.toSorted()), null, 2)}\n`);
}
