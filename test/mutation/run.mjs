// `npm run mutate`: changes one small thing at a time in the decisions about money, and runs the quick tests that reach
// it. A change that no test notices has survived: a test is missing, or the code is not needed.
//
//   npm run mutate                       everything
//   npm run mutate -- prisma/functions   only files at or below these paths
//   npm run mutate -- --tests path,...   with these tests as well
//   npm run mutate -- --every 5          a sample: every fifth mutant
//   npm run mutate -- --lines 12,40 file only mutants that begin on these lines
//   npm run mutate -- --again FILE       those that survived, by the output of an earlier run
//   npm run mutate -- --list             the mutants, without running them
//
// Mutants that change nothing are in no-change.json, each with the reason.
import { fork } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { ROOT } from "../../server/local/bootstrap.mjs";
import { compile } from "../runner/compile.mjs";
import { AREAS, functionOf, isSql, killingTests, withInlined } from "./areas.mjs";
import { installing, mutantsOfSql } from "./sql.mjs";
import { mutantsOfTypescript } from "./typescript.mjs";

const JOBS = Number(process.env.MUTATE_JOBS ?? 2);
/** A file with a mutant may take this many times as long as without, and this much longer. */
const SLOWER = 3;
const EXTRA_MS = 8_000;
/** A process keeps every copy of the tests that it loaded. */
const MAX_RSS = 1_200_000_000;
const HIT_LIMIT = 1_000_000;
/** The test that killed the latest mutant of a file. */
const killerOf = new Map();

const stopped = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => stopped.abort());

const read = (file) => readFileSync(join(ROOT, file), "utf8");
const args = process.argv.slice(2);
const optionOf = (name) => (args.includes(name) ? args[args.indexOf(name) + 1] : undefined);
const moreTests = optionOf("--tests")?.split(",") ?? [];
const every = Number(optionOf("--every") ?? 1);
const lines = optionOf("--lines")?.split(",").map(Number);
const again = optionOf("--again");
const onlyTests = optionOf("--only-tests")?.split(",");
const paths = args.filter(
  (arg, index) =>
    !arg.startsWith("--") && !args[index - 1]?.match(/^--(only-tests|tests|every|lines|again)$/),
);

const all = Object.values(AREAS).flat();
const isWanted = (file) =>
  paths.length === 0 ||
  paths.some((path) => file === path || file.startsWith(path.replace(/\/?$/, "/")));
const wanted = all.filter(isWanted);
if (wanted.length === 0) throw new Error(`no file with mutants is at ${paths.join(" ")}`);

const started = performance.now();
const typescript = await mutantsOfTypescript(wanted.filter((file) => !isSql(file)));
const mutants = [
  ...typescript.mutants,
  ...wanted.filter(isSql).flatMap((file) => mutantsOfSql(file, read(file))),
].filter(({ line }, index) => index % every === 0 && (!lines || lines.includes(line)));
if (again !== undefined) {
  const earlier = readFileSync(again, "utf8");
  mutants.splice(0, mutants.length, ...mutants.filter((one) => earlier.includes(shown(one))));
}
const noChange = JSON.parse(read("test/mutation/no-change.json"));
const isSame = (entry, mutant) =>
  entry.file === mutant.file &&
  entry.from === mutant.from &&
  entry.to === mutant.to &&
  (entry.line === undefined ||
    read(mutant.file).split("\n")[mutant.line - 1].includes(entry.line)) &&
  (entry.near === undefined || isWithin(read(mutant.file), entry.near, mutant.at));
/** Whether the place is inside an occurrence of the text. */
function isWithin(text, part, at) {
  const first = text.lastIndexOf(part, at);
  return first >= 0 && at < first + part.length;
}
const used = new Set();
for (const mutant of mutants) {
  const entry = noChange.find((one) => isSame(one, mutant));
  if (entry) used.add(entry);
  mutant.reason = entry?.reason;
}
if (args.includes("--list")) {
  // Written as a whole before the end: a pipe would lose the rest.
  const list = mutants.map((mutant) => `${shown(mutant)}\n`).join("");
  await new Promise((resolve) => process.stdout.write(list, resolve));
  process.exit(reportStale());
}

const dir = mkdtempSync(join(tmpdir(), "purser-mutate-"));
mkdirSync(join(ROOT, ".tmp"), { recursive: true });
const outdir = mkdtempSync(join(ROOT, ".tmp", "mutate-"));
const workers = [];
try {
  const tests = onlyTests ?? [...killingTests(wanted), ...moreTests];
  const compiled = await compile(tests, outdir, { isSplit: false, change: typescript.change });
  await Promise.all(
    Array.from({ length: JOBS }, async (_, index) => workers.push(await startWorker(index))),
  );
  const baseline = await runBaseline(tests, compiled);
  console.log(
    `${mutants.length} mutants; ${baseline.length} test files without a mutant: ${seconds()} s`,
  );
  await runMutants(baseline);
  await runKillersAgain(baseline);
  report();
} finally {
  await Promise.all(workers.map((worker) => worker.stop()));
  rmSync(outdir, { recursive: true, force: true });
  rmSync(dir, { recursive: true, force: true });
}

function seconds() {
  return ((performance.now() - started) / 1000).toFixed(0);
}

/** A process with a Postgres of its own, whose template database gets the changed functions. */
async function startWorker(index) {
  const { register } = await import("tsx/esm/api");
  register();
  const { startPostgres } = await import("../../server/local/postgres.ts");
  const { migrate } = await import("../../server/infra/db/migrate.ts");
  const own = join(dir, String(index));
  const codes = join(own, "codes");
  mkdirSync(codes, { recursive: true });
  const postgres = await startPostgres({
    dir: own,
    password: randomBytes(12).toString("hex"),
    durable: false,
    maxConnections: 200,
    removeOnExit: own,
    // A mutant may loop for ever: its statement ends with the process that asked.
    settings: ["track_functions=all", "client_connection_check_interval=1000"],
  });
  await makeTemplate(postgres.adminUrl, migrate);
  const env = {
    ...process.env,
    TAP_TIMEOUT: "360000",
    PURSER_TEST_POSTGRES_URL: postgres.adminUrl,
    PURSER_TEST_DIR: own,
    PURSER_TEST_CODES_DIR: codes,
    PURSER_TEST_COMPILED: outdir,
    PURSER_TEST_TIER: "default",
    PURSER_TEST_EFFORT: "0.3",
  };
  let child;
  const start = async () => {
    child = fork(join(ROOT, "test/mutation/worker.mjs"), {
      cwd: ROOT,
      env,
      stdio: ["ignore", "ignore", "ignore", "ipc"],
    });
    await response(child);
  };
  await start();
  const restart = async () => {
    child.kill("SIGKILL");
    await start();
  };
  return {
    /** @returns the worker's response; undefined if it ended or did not respond in time */
    async request(message, limitMs = 120_000) {
      if (!child.connected) await start();
      child.send(message);
      let result = await response(child, limitMs);
      if (result?.isOver) {
        await restart();
        child.send(message);
        result = await response(child, limitMs);
      }
      if (!result || result.rss > MAX_RSS) await restart();
      return result;
    },
    async stop() {
      child.kill("SIGKILL");
      await postgres.stop();
    },
  };
}

async function makeTemplate(adminUrl, migrate) {
  const { default: pg } = await import("pg");
  const admin = new pg.Client({ connectionString: adminUrl });
  await admin.connect();
  await admin.query("CREATE DATABASE purser_template");
  await admin.end();
  const url = new URL(adminUrl);
  url.pathname = "/purser_template";
  await migrate({ connectionString: url.href });
}

function response(child, limitMs = 60_000) {
  return new Promise((resolve) => {
    const end = (result) => {
      // tap sends messages of its own.
      if (result && !result.ofWorker) return;
      clearTimeout(limit);
      child.off("message", end);
      child.off("exit", failed);
      resolve(result);
    };
    const failed = () => end(undefined);
    const limit = setTimeout(failed, limitMs);
    child.on("message", end);
    child.on("exit", failed);
  });
}

/** Each file without a mutant: its duration, the mutants it reaches and the functions it calls. */
async function runBaseline(tests, compiled) {
  const waiting = [...tests];
  const done = [];
  await Promise.all(
    workers.map(async (worker) => {
      for (let test = waiting.shift(); test; test = waiting.shift()) {
        const path = join(ROOT, compiled(test));
        const first = await worker.request({ compiled: path });
        if (!first?.isOk) console.log(`fails without a mutant, so it is not used: ${test}`);
        else
          done.push({
            test,
            path,
            ms: first.ms,
            loaded: new Set(first.loaded),
            ran: new Set(first.ran),
            called: withInlined(new Set(first.called)),
          });
      }
    }),
  );
  return done.toSorted((a, b) => a.ms - b.ms);
}

async function runMutants(baseline) {
  const waiting = mutants.filter(({ reason }) => reason === undefined);
  const total = waiting.length;
  let shownAt = performance.now();
  await Promise.all(
    workers.map(async (worker) => {
      for (
        let mutant = waiting.shift();
        mutant && !stopped.signal.aborted;
        mutant = waiting.shift()
      ) {
        await (isSql(mutant.file) ? runSqlMutant : runTypescriptMutant)(worker, mutant, baseline);
        if (performance.now() - shownAt < 30_000) continue;
        shownAt = performance.now();
        console.log(`${total - waiting.length} of ${total}, ${seconds()} s`);
      }
    }),
  );
}

/** A test that fails without a mutant now would have killed any: something that an earlier run left behind. */
async function runKillersAgain(baseline) {
  if (stopped.signal.aborted) return;
  const killers = new Set(mutants.map(({ by }) => by));
  for (const worker of workers)
    for (const { test, path, ms } of baseline.filter((one) => killers.has(one.test))) {
      const result = await worker.request({ compiled: path }, ms * SLOWER + EXTRA_MS);
      if (!result?.isOk)
        console.log(`fails without a mutant now, so its kills may be none: ${test}`);
    }
}

async function runTypescriptMutant(worker, mutant, baseline) {
  const inTests = baseline.filter(({ ran }) => ran.has(mutant.id));
  // What runs only when the file is loaded is reached by every test that imports it: those that use the file most.
  const reaching =
    inTests.length > 0
      ? inTests
      : usersOf(
          mutant,
          baseline.filter(({ loaded }) => loaded.has(mutant.id)),
        );
  mutant.state = reaching.length === 0 ? "not reached" : "survived";
  await runTests(worker, mutant, reaching, { mutant: mutant.id, hitLimit: HIT_LIMIT });
}

function usersOf({ file }, loading) {
  const ids = mutants.filter((mutant) => mutant.file === file).map(({ id }) => id);
  const uses = ({ ran }) => ids.filter((id) => ran.has(id)).length;
  return loading.toSorted((a, b) => uses(b) - uses(a)).slice(0, 5);
}

async function runSqlMutant(worker, mutant, baseline) {
  const text = read(mutant.file);
  const installed = await worker.request({ install: installing(text, mutant) });
  if (!installed) throw new Error("the process of the tests ended");
  if (!installed.isInstalled) {
    mutant.state = "invalid";
    return;
  }
  const reaching = baseline.filter(({ called }) => called.has(functionOf(mutant.file)));
  mutant.state = reaching.length === 0 ? "not reached" : "survived";
  await runTests(worker, mutant, reaching, {});
  await worker.request({ install: installing(text) });
}

async function runTests(worker, mutant, reaching, message) {
  // Mutants of one file are often killed by the same test.
  const first = killerOf.get(mutant.file);
  const ordered = reaching.toSorted((a, b) => Number(b.test === first) - Number(a.test === first));
  for (const { test, path, ms } of ordered) {
    const result = await worker.request({ compiled: path, ...message }, ms * SLOWER + EXTRA_MS);
    if (result?.isOk) continue;
    mutant.state = "killed";
    mutant.by = test;
    killerOf.set(mutant.file, test);
    return;
  }
}

function shown({ file, line, from, to, state = "" }) {
  const short = (text) => text.replaceAll(/\s+/g, " ").slice(0, 110);
  return `  ${file}:${line}  ${short(from)}  =>  ${short(to) || "(removed)"}  ${state}`;
}

function report() {
  for (const mutant of mutants.filter(
    ({ state }) => state === "survived" || state === "not reached",
  ))
    console.log(shown(mutant));
  console.log("\n killed  survived  not reached  reasoned  score");
  for (const [area, files] of Object.entries(AREAS)) {
    const inArea = files.filter(isWanted);
    if (inArea.length === 0) continue;
    const of = (names) => mutants.filter(({ file }) => names.includes(file));
    console.log(lineOf(area, of(inArea)));
    for (const file of inArea) console.log(lineOf(`  ${file}`, of([file])));
  }
  process.exitCode = reportStale();
  console.log("\nOne file again: npm run mutate -- <file>");
  console.log(`${seconds()} s with ${JOBS} processes`);
}

/** Entries of no-change.json that fit no mutant. A sample does not have every mutant. */
function reportStale() {
  const isSample = every > 1 || lines !== undefined || again !== undefined;
  const stale = noChange.filter((entry) => isWanted(entry.file) && !used.has(entry));
  if (isSample || stale.length === 0) return 0;
  for (const entry of stale)
    console.log(
      `no-change.json has an entry for a mutant that is not there: ${JSON.stringify(entry)}`,
    );
  return 1;
}

function lineOf(name, some) {
  const count = (state) =>
    some.filter((mutant) => (mutant.reason ? "reasoned" : mutant.state) === state).length;
  const states = ["killed", "survived", "not reached", "reasoned"];
  const [killed, survived, unreached, reasoned] = states.map(count);
  const all = killed + survived + unreached;
  const score = all === 0 ? 100 : (100 * killed) / all;
  const columns = [
    [killed, 7],
    [survived, 10],
    [unreached, 13],
    [reasoned, 10],
    [score.toFixed(1), 7],
  ];
  return `${columns.map(([value, width]) => String(value).padStart(width)).join("")} %  ${name}`;
}
