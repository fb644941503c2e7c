// `npm test`: everything that must hold, in one command, on a fresh clone.
//
//   npm test                      format, lint, types, then the default tier: what must hold for every change
//   npm run test:full             the same with every test: what a release needs
//   npm test -- test/a.test.ts    only these test files, or the files in these folders
//   npm run check                 format, lint and types only
//   npm run test:unit             the pure tests: no Postgres, no chain, no browser
//   npm run test:watch [-- path]  these (else the pure ones), and again whenever a source file changes
//
// One throw-away folder holds what the run needs: a Postgres (each test file clones a template database in it),
// the unpacked browser, the error codes that were answered. It is empty at the start and gone at the end.
// A test file with a line starting `// Runs alone` gets the machine to itself, after all the others. One with a line
// `// Tier: full (why).` is left out of the default tier; named by its path, it runs with all it has.
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  watch,
  writeFileSync,
} from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, relative, resolve, sep } from "node:path";
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

const JOBS = Math.min(availableParallelism(), 4);
// Raised by hand where a file is given much more to do: `FILE_LIMIT_SECONDS=7200 PLANS_AT=100`.
const FILE_LIMIT_SECONDS = Number(process.env.FILE_LIMIT_SECONDS ?? 300);
const UNIT = join("test", "unit");
/** How long each file took, on a machine of ours: the longest start first. Written by `--save-times`. */
const TIMES = join(ROOT, "test", "helpers", "file-seconds.json");
const WATCHED = ["server", "packages", "web/src", "test", "prisma"];

const bin = (name) => join(ROOT, "node_modules", ".bin", name);
const running = new Set();
/** @type {{passed: number, failed: number, skipped: string[]}} */
const totals = { passed: 0, failed: 0, skipped: [] };
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
  if (options.has("--check")) return;
  const tier = isDefaultTier ? "default" : "full";
  await withWorld(files, tier, async (env) => {
    await runFiles(files, env);
    if (isAll && !isDefaultTier) await checkCodesProduced(env.PURSER_TEST_CODES_DIR);
    while (options.has("--watch") && !interrupted.signal.aborted) {
      console.log(`\n${totals.passed} passed, ${totals.failed} failed. Waiting for a change...`);
      await nextChange();
      Object.assign(totals, { passed: 0, failed: 0, skipped: [] });
      await runFiles(files, env);
    }
  });
  if (options.has("--save-times")) saveTimes(files);
}

/** Format, lint, types: each counts as one check. */
async function checkSources() {
  await check("format", bin("oxfmt"), ["--check"]);
  await check("lint", bin("oxlint"), ["--type-aware"]);
  for (const folder of ["server", "packages", "test", "web"]) {
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
  const derived = ["--import=tsx", join(".ci", "derive.ts"), "--check"];
  await check("what is derived is current", process.execPath, derived);
}

async function check(name, command, args) {
  if (interrupted.signal.aborted) return;
  const code = await timed(name, () => run(command, args, process.env));
  tell(code === 0, name);
}

function tell(isOk, name) {
  totals[isOk ? "passed" : "failed"] += 1;
  console.log(`${isOk ? "ok" : "NOT OK"} - ${name}`);
}

/** The longest first, so that no long one is left when the others are done; those that run alone come last. */
async function runFiles(files, env) {
  const { compile } = await import("./helpers/compile.mjs");
  const compiled = await timed("compiling the tests", () =>
    compile([...files, ...childScripts()], env.PURSER_TEST_COMPILED),
  );
  const known = existsSync(TIMES) ? JSON.parse(readFileSync(TIMES, "utf8")) : {};
  const cost = (file) => known[file] ?? Infinity;
  const inOrder = files.toSorted((a, b) => cost(b) - cost(a) || a.localeCompare(b));
  const browserFiles = inOrder.filter(opensBrowser);
  const doomed = new Set();
  if (browserFiles.length > 0 && !(await browserStarts(env)))
    for (const file of browserFiles) doomed.add(file);
  const runnable = inOrder.filter((file) => !doomed.has(file));
  const units = runnable.filter(isUnit);
  const together = runnable
    .filter((file) => !isUnit(file) && !runsAlone(file))
    .map((file) => [file]);
  // The pure ones share nothing that could be spoilt, and loading the same libraries would be most of their time.
  if (units.length > 0) together.push(units);
  const next = async () => {
    while (together.length > 0 && !interrupted.signal.aborted)
      await runProcess(together.shift(), compiled, env);
  };
  await Promise.all(Array.from({ length: JOBS }, next));
  for (const file of runnable.filter(runsAlone))
    if (!interrupted.signal.aborted) await runProcess([file], compiled, env);
}

/** One process; it is called by its file, or by the folder of its files. */
async function runProcess(files, compiled, env) {
  const file = files.length === 1 ? files[0] : UNIT;
  const paths = files.map(compiled);
  const load = paths.map((path) => `await import(${JSON.stringify(`./${path}`)});`).join("\n");
  const args = paths.length === 1 ? paths : ["--input-type=module", "--eval", load];
  const { reportTap } = await import("./helpers/report.mjs");
  let code = 1;
  let failed = 0;
  const taken = await timed(file, async () => {
    code = await run(process.execPath, ["--enable-source-maps", ...args], env, {
      read: async (tap) => void (failed = await reportTap(tap, file, totals)),
      limitSeconds: FILE_LIMIT_SECONDS + 30,
    });
    return (performance.now() - started) / 1000;
  });
  // The process failed as a whole, or ended without saying which of its tests did.
  if (code !== 0 && failed === 0) totals.failed += 1;
  const isOk = code === 0 && failed === 0;
  const minute = `${Math.floor(taken / 60)}:${String(Math.floor(taken % 60)).padStart(2, "0")}`;
  console.log(
    `${isOk ? "ok" : "NOT OK"} - ${file} (${seconds.get(file).toFixed(1)} s, at ${minute})`,
  );
}

/** One failure that says why, instead of one for every screen. */
async function browserStarts(env) {
  const script = `
    const { drawAWord } = await import("./test/helpers/bundled-browser.ts");
    if (!((await drawAWord()) > 0)) throw new Error("it draws no text");
  `;
  const args = ["--import=tsx", "--input-type=module", "--eval", script];
  const code = await timed("browser starts", () => run(process.execPath, args, env));
  tell(code === 0, code === 0 ? "browser starts" : "browser starts; no file that opens it was run");
  return code === 0;
}

/** Every code of the error catalogue was answered to some test of this run. */
async function checkCodesProduced(folder) {
  const { ERRORS } = await import("../server/errors.ts");
  const produced = new Set(readdirSync(folder));
  const missing = Object.keys(ERRORS).filter((code) => !produced.has(code));
  tell(
    missing.length === 0,
    missing.length === 0
      ? "every documented error code was produced"
      : `no test produced: ${missing.join(", ")}`,
  );
}

async function withWorld(files, tier, use) {
  const dir = mkdtempSync(join(tmpdir(), "purser-test-"));
  const codes = join(dir, "codes");
  mkdirSync(codes);
  // Inside the repository, where compiled files find the packages.
  mkdirSync(join(ROOT, ".tmp"), { recursive: true });
  const compiled = mkdtempSync(join(ROOT, ".tmp", "tests-"));
  const env = {
    ...process.env,
    TAP_TIMEOUT: String(FILE_LIMIT_SECONDS),
    PURSER_TEST_DIR: dir,
    PURSER_TEST_CODES_DIR: codes,
    PURSER_TEST_COMPILED: compiled,
    PURSER_TEST_TIER: tier,
  };
  let postgres;
  try {
    if (!files.every(isUnit)) {
      postgres = await startTestPostgres(dir);
      env.PURSER_TEST_POSTGRES_URL = postgres.adminUrl;
    }
    await use(env);
  } finally {
    await postgres?.stop();
    rmSync(compiled, { recursive: true, force: true });
    rmSync(dir, { recursive: true, force: true });
  }
}

async function startTestPostgres(dir) {
  const { register } = await import("tsx/esm/api");
  register();
  const { startPostgres } = await import("../server/local/postgres.ts");
  return startPostgres({
    dir,
    password: randomBytes(12).toString("hex"),
    durable: false,
    maxConnections: 400,
    removeOnExit: dir,
  });
}

/**
 * @param {{read?: (stdout: import("node:stream").Readable) => Promise<void>, limitSeconds?: number}} [options]
 *   `read` takes its stdout, else the terminal does
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
  console.log("\nseconds, longest first:");
  for (const [name, took] of [...seconds].sort(([, a], [, b]) => b - a))
    console.log(`${took.toFixed(1).padStart(7)}  ${name}`);
  const wall = (performance.now() - started) / 1000;
  console.log(`${wall.toFixed(1).padStart(7)}  in all, ${JOBS} files at a time`);
}

function saveTimes(files) {
  const sorted = files.toSorted().map((file) => [file, Math.round(seconds.get(file) ?? 0)]);
  writeFileSync(TIMES, `${JSON.stringify(Object.fromEntries(sorted), null, 2)}\n`);
}

/** All test files, or those that the paths name or hold. */
function testFiles(paths) {
  const wanted = (paths.length > 0 ? paths : ["test"]).map((path) => resolve(ROOT, path));
  return wanted.flatMap((path) => {
    if (!existsSync(path)) throw new BootstrapError(`there is no ${relative(ROOT, path)}`, "");
    if (!statSync(path).isDirectory()) return [relative(ROOT, path)];
    return filesIn(path, ".test.ts");
  });
}

/** Programs that tests start beside themselves. */
function childScripts() {
  return filesIn(join(ROOT, "test"), ".child.ts");
}

/** Not those of packages, which npm may put below a workspace. */
function filesIn(folder, ending) {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(ending) && !name.split(sep).includes("node_modules"))
    .map((name) => relative(ROOT, join(folder, name)));
}

function sourceOf(file) {
  return readFileSync(join(ROOT, file), "utf8");
}

function isUnit(file) {
  return file.startsWith(UNIT);
}

function isFullTier(file) {
  return /^\/\/ Tier: full \(/m.test(sourceOf(file).slice(0, 2000));
}

function runsAlone(file) {
  return /^\/\/ Runs alone\b/m.test(sourceOf(file).slice(0, 2000));
}

function opensBrowser(file) {
  return /from "(\.\.\/helpers\/browser|\.\/world)\.ts"/.test(sourceOf(file));
}

function nextChange() {
  return new Promise((resolve) => {
    const watchers = WATCHED.map((folder) =>
      watch(join(ROOT, folder), { recursive: true }, () => {
        for (const watcher of watchers) watcher.close();
        setTimeout(resolve, 200);
      }),
    );
    const stop = () => {
      for (const watcher of watchers) watcher.close();
      resolve();
    };
    interrupted.signal.addEventListener("abort", stop, { once: true });
  });
}
