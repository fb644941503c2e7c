// `npm test`: all checks and tests in one command, on a fresh clone.
//
//   npm test                      format, lint, types, then the default tier: what must hold for every change
//   npm run test:full             the same with every test: what a release needs
//   npm test -- test/a.test.ts    only these test files, or the files in these folders
//   TEST_TIER=default npm test -- test/a.test.ts   as the default tier runs it
//   npm run check                 format, lint and types only
//   npm run test:unit             the pure tests: no Postgres, no chain, no browser
//   npm run test:watch [-- path]  these (by default the pure ones), and again whenever a source file changes
//
// The small files of a folder share a process. The first lines of a file may change that:
//   // Tier: full (why).      not in the default tier; when named by its path, all of it runs
//   // Own process (why).     does not share its process with another file
//   // Limit: 90 minutes.     may take longer than five minutes
//   // Runs alone (why).      runs after all the others, with no other process beside it
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import {
  BootstrapError,
  checkNode,
  ensureDependencies,
  ensurePackages,
  ensurePrismaClient,
  ensureWebBuild,
  prepare,
  ROOT,
} from "../server/local/bootstrap.mjs";
import {
  childScripts,
  isFullTier,
  isUnit,
  limitSecondsOf,
  processesFor,
  saveTimes,
  testFiles,
  UNIT,
} from "./runner/files.mjs";

/**
 * Tests wait for blocks, leases and timeouts, so one process more than there are cores keeps the cores busy.
 */
const JOBS = Number(process.env.TEST_JOBS ?? Math.min(availableParallelism() + 1, 5));
// Raised by hand where a file gets much more to do: `FILE_LIMIT_SECONDS=7200 PLANS_AT=100`.
const FILE_LIMIT_SECONDS = Number(process.env.FILE_LIMIT_SECONDS ?? 300);

const bin = (name) => join(ROOT, "node_modules", ".bin", name);
const running = new Set();
/** @type {{passed: number, failed: number, skipped: string[], parts: [string, number][]}} */
const totals = { passed: 0, failed: 0, skipped: [], parts: [] };
const seconds = new Map();
const started = performance.now();
const interrupted = new AbortController();

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.on(signal, () => {
    interrupted.abort();
    for (const child of running) child.kill(signal);
  });
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  totals.failed += 1;
  console.error(error instanceof BootstrapError ? `${error.message}\n${error.details}` : error);
}
if (interrupted.signal.aborted) console.log("Interrupted.");
printTimes();
for (const name of totals.skipped) console.log(`skipped: ${name}`);
console.log(`\n${totals.passed} passed, ${totals.failed} failed`);
process.exitCode = totals.failed > 0 || totals.passed === 0 || interrupted.signal.aborted ? 1 : 0;

async function main(args) {
  const options = new Set(args.filter((arg) => arg.startsWith("--")));
  const paths = args.filter((arg) => !arg.startsWith("--"));
  if (options.has("--watch") && paths.length === 0) options.add("--unit");
  const isAll = paths.length === 0 && !options.has("--unit") && !options.has("--check");
  const isDefaultTier = isAll && !options.has("--full");
  checkNode();
  const files = testFiles(options.has("--unit") ? [UNIT] : paths).filter(
    (file) => !isDefaultTier || !isFullTier(file),
  );
  const needsBuilt = !options.has("--check") && !files.every(isUnit);
  const steps = [ensureDependencies, ensurePrismaClient];
  await timed("preparing", () =>
    prepare(console.log, needsBuilt ? [...steps, ensurePackages, ensureWebBuild] : steps),
  );
  if (isAll || options.has("--check")) await checkSources();
  if (isAll && !isDefaultTier) await checkTypes();
  if (options.has("--check")) return;
  const { withWorld } = await import("./runner/world.mjs");
  await withWorld(!files.every(isUnit), async (world) => {
    const env = {
      ...process.env,
      ...world,
      TAP_TIMEOUT: "36000", // Of a whole process; each file has its own limit.
      PURSER_TEST_TIER: isDefaultTier ? "default" : (process.env.TEST_TIER ?? "full"),
    };
    await runFiles(files, env);
    if (isAll && !isDefaultTier) await checkCodesProduced(env.PURSER_TEST_CODES_DIR);
    while (options.has("--watch") && !interrupted.signal.aborted) {
      console.log(`\n${totals.passed} passed, ${totals.failed} failed. Waiting for a change...`);
      const { nextChange } = await import("./runner/watch.mjs");
      await nextChange(interrupted.signal);
      Object.assign(totals, { passed: 0, failed: 0, skipped: [] });
      await runFiles(files, env);
    }
  });
  if (options.has("--save-times")) saveTimes(seconds);
}

/** Format, lint with types, and what is derived: each counts as one check. */
async function checkSources() {
  await check("format", bin("oxfmt"), ["--check"]);
  // The linter needs all types anyway, and reports the compiler's errors as well.
  await check("lint and types", bin("oxlint"), ["--type-aware", "--type-check"]);
  await check("every page of docs leads somewhere", process.execPath, [
    join("docs", "check-pages.mjs"),
  ]);
  const derived = ["--import=tsx", join(".ci", "derive.ts"), "--check"];
  await check("what is derived is current", process.execPath, derived);
}

/** The compiler itself, in case it and the linter disagree. */
async function checkTypes() {
  for (const folder of ["server", "packages", "test", "web", "docs"]) {
    const known = join(ROOT, "node_modules", ".purser", `types-${folder}.json`);
    const args = [
      "--noEmit",
      "--incremental",
      "--tsBuildInfoFile",
      known,
      "-p",
      join(ROOT, folder),
    ];
    await check(`types of ${folder}`, bin("tsc"), args);
  }
}

async function check(name, command, args) {
  if (interrupted.signal.aborted) return;
  const code = await timed(name, () => run(command, args, process.env));
  reportCheck(code === 0, name);
}

function reportCheck(isOk, name) {
  totals[isOk ? "passed" : "failed"] += 1;
  console.log(`${isOk ? "ok" : "NOT OK"} - ${name}`);
}

async function runFiles(files, env) {
  const { compile } = await import("./runner/compile.mjs");
  const compiled = await timed("compiling the tests", () =>
    compile([...files, ...childScripts()], env.PURSER_TEST_COMPILED),
  );
  const waiting = processesFor(files);
  const next = async (isWanted) => {
    while (waiting.length > 0 && isWanted(waiting[0]) && !interrupted.signal.aborted)
      await runProcess(waiting.shift().files, compiled, env);
  };
  await Promise.all(Array.from({ length: JOBS }, () => next(({ alone }) => !alone)));
  await next(() => true);
}

async function runProcess(files, compiled, env) {
  const { reportTap } = await import("./runner/report.mjs");
  const program = join("test", "runner", "run-files.mjs");
  const limits = files.map((file) => limitSecondsOf(file, FILE_LIMIT_SECONDS));
  const named = JSON.stringify(
    files.map((file, index) => [file, join(ROOT, compiled(file)), limits[index]]),
  );
  const reported = new Set();
  const ended = (file, isOk, took) => {
    reported.add(file);
    seconds.set(file, took);
    console.log(`${isOk ? "ok" : "NOT OK"} - ${file} (${took.toFixed(1)} s, at ${minute()})`);
  };
  let failed = 0;
  const processEnv = { ...env, PURSER_TEST_FILES: named };
  const code = await run(process.execPath, ["--enable-source-maps", program], processEnv, {
    read: async (tap) => void (failed = await reportTap(tap, totals, ended)),
    limitSeconds: limits.reduce((sum, seconds) => sum + seconds, 30),
  });
  if (interrupted.signal.aborted) return;
  // The process failed as a whole, or ended without a result for some of its files.
  const unreported = files.filter((file) => !reported.has(file));
  if (code !== 0 && failed === 0 && unreported.length === 0)
    reportCheck(false, `process of ${files.join(" ")}`);
  for (const file of unreported) reportCheck(false, `${file}: its process ended with ${code}`);
}

function minute() {
  const now = (performance.now() - started) / 1000;
  return `${Math.floor(now / 60)}:${String(Math.floor(now % 60)).padStart(2, "0")}`;
}

/** Checks that every code of the error catalogue was produced by a test of this run. */
async function checkCodesProduced(folder) {
  const { ERRORS } = await import("../server/errors.ts");
  const produced = new Set(readdirSync(folder));
  const missing = Object.keys(ERRORS).filter((code) => !produced.has(code));
  const found = "every documented error code was produced";
  reportCheck(
    missing.length === 0,
    missing.length === 0 ? found : `no test produced: ${missing.join(", ")}`,
  );
}

/**
 * @param {{read?: (stdout: import("node:stream").Readable) => Promise<void>, limitSeconds?: number}} [options]
 *   `read` receives the stdout, which otherwise goes to the terminal
 */
function run(command, args, env, { read, limitSeconds } = {}) {
  return new Promise((resolve, reject) => {
    const stdio = ["ignore", read ? "pipe" : "inherit", "inherit"];
    const child = spawn(command, args, { cwd: ROOT, env, stdio });
    running.add(child);
    const reading = read?.(child.stdout);
    const limit = limitSeconds && setTimeout(() => child.kill("SIGKILL"), limitSeconds * 1000);
    child.on("error", reject);
    child.on("close", async (code) => {
      clearTimeout(limit);
      running.delete(child);
      await reading;
      resolve(code ?? 1);
    });
  });
}

async function timed(name, work) {
  const from = performance.now();
  try {
    return await work();
  } finally {
    seconds.set(name, (performance.now() - from) / 1000);
  }
}

function printTimes() {
  if (seconds.size < 3) return;
  printLongest("seconds, longest first:", [...seconds]);
  printLongest("seconds of the 40 longest tests:", totals.parts, 40);
  const wall = (performance.now() - started) / 1000;
  console.log(`${wall.toFixed(1).padStart(7)}  in all, ${JOBS} processes at a time`);
}

function printLongest(title, entries, count = entries.length) {
  console.log(`\n${title}`);
  for (const [name, took] of entries.toSorted(([, a], [, b]) => b - a).slice(0, count))
    console.log(`${took.toFixed(1).padStart(7)}  ${name}`);
}
