// `npm test`: everything that must hold, in one command, on a fresh clone.
//
//   npm test                      format, lint, types, then every test
//   npm test -- test/a.test.ts    only these test files
//
// One throw-away Postgres serves the whole run; each test file clones a template database in it.
// A test file with a line starting `// Runs alone` gets the machine to itself, after all the others.
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import {
  BootstrapError,
  checkNode,
  ensureDependencies,
  ensurePrismaClient,
  ensureTestRunner,
  ensureWebBuild,
  prepare,
  ROOT,
} from "../server/local/bootstrap.mjs";

const bin = (name) => join(ROOT, "node_modules", ".bin", name);
const running = new Set();
const totals = { passed: 0, failed: 0, skipped: 0 };
let interrupted = false;

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.on(signal, () => {
    interrupted = true;
    for (const child of running) child.kill(signal);
  });
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  totals.failed += 1;
  console.error(error instanceof BootstrapError ? `${error.message}\n${error.details}` : error);
}
if (interrupted) console.log("Interrupted.");
const skipped = totals.skipped > 0 ? `, ${totals.skipped} skipped` : "";
console.log(`\n${totals.passed} passed, ${totals.failed} failed${skipped}`);
process.exitCode = totals.failed > 0 || totals.passed === 0 || interrupted ? 1 : 0;

async function main(args) {
  checkNode();
  const steps = [ensureDependencies, ensurePrismaClient, ensureTestRunner];
  const opensWebApp = args.length === 0 || args.some((file) => file.includes("web"));
  await prepare(console.log, opensWebApp ? [...steps, ensureWebBuild] : steps);
  if (args.length === 0) await checkSources();
  const files = args.length > 0 ? args : testFiles(join(ROOT, "test"));
  await withPostgres(async (env) => {
    await runTests(
      files.filter((file) => !runsAlone(file)),
      [],
      env,
    );
    await runTests(files.filter(runsAlone), ["--jobs=1"], env);
    if (args.length === 0) await checkCodesProduced(env.PURSER_TEST_CODES_DIR);
  });
}

/** Format, lint, types: each counts as one check. */
async function checkSources() {
  const typeProjects = ["server", "test", "web"].filter((folder) =>
    existsSync(join(ROOT, folder, "tsconfig.json")),
  );
  await check("format", bin("oxfmt"), ["--check"]);
  await check("lint", bin("oxlint"), ["--type-aware"]);
  for (const folder of typeProjects) {
    await check(`types of ${folder}`, bin("tsc"), ["--noEmit", "-p", join(ROOT, folder)]);
  }
}

async function check(name, command, args) {
  if (interrupted) return;
  const code = await run(command, args, process.env);
  console.log(`${code === 0 ? "ok" : "NOT OK"} - ${name}`);
  totals[code === 0 ? "passed" : "failed"] += 1;
}

async function runTests(files, options, env) {
  if (files.length === 0 || interrupted) return;
  const { reportTap } = await import("./helpers/report.mjs");
  const before = totals.failed;
  const code = await run(bin("tap"), ["run", "--reporter=tap", ...options, ...files], env, (tap) =>
    reportTap(tap, totals),
  );
  // The runner itself failed, or a file ended without saying which of its tests did.
  if (code !== 0 && totals.failed === before) totals.failed += 1;
}

/** Every code of the error catalogue was answered to some test of this run. */
async function checkCodesProduced(folder) {
  const { ERRORS } = await import("../server/errors.ts");
  const produced = new Set(readdirSync(folder));
  const missing = Object.keys(ERRORS).filter((code) => !produced.has(code));
  console.log(
    missing.length === 0
      ? "ok - every documented error code was produced"
      : `NOT OK - no test produced: ${missing.join(", ")}`,
  );
  totals[missing.length === 0 ? "passed" : "failed"] += 1;
}

async function withPostgres(use) {
  const { register } = await import("tsx/esm/api");
  register();
  const { startPostgres } = await import("../server/local/postgres.ts");
  const dir = mkdtempSync(join(tmpdir(), "purser-test-"));
  const postgres = await startPostgres({
    dir,
    password: randomBytes(12).toString("hex"),
    durable: false,
    maxConnections: 400,
    removeOnExit: dir,
  });
  try {
    const codes = join(dir, "codes");
    mkdirSync(codes);
    const env = { PURSER_TEST_POSTGRES_URL: postgres.adminUrl, PURSER_TEST_CODES_DIR: codes };
    await use({ ...process.env, ...env });
  } finally {
    await postgres.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}

/** @param {(stdout: import("node:stream").Readable) => Promise<void>} [read] takes its stdout, else the terminal does */
function run(command, args, env, read) {
  return new Promise((resolve, reject) => {
    const stdio = ["inherit", read ? "pipe" : "inherit", "inherit"];
    const child = spawn(command, args, { cwd: ROOT, env, stdio });
    running.add(child);
    const reading = read?.(child.stdout);
    child.on("error", reject);
    child.on("close", async (code) => {
      running.delete(child);
      await reading;
      resolve(code ?? 1);
    });
  });
}

function testFiles(folder) {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => relative(ROOT, join(folder, name)))
    .sort();
}

function runsAlone(file) {
  const path = join(ROOT, file);
  return existsSync(path) && /^\/\/ Runs alone\b/m.test(readFileSync(path, "utf8").slice(0, 2000));
}
