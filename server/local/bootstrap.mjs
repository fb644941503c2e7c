// Prepares what must be on disk before anything else can be loaded: dependencies, the Prisma client, builds. Plain
// JavaScript without dependencies, because it runs on a fresh clone.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { constants } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { lockDataDir } from "./data-dir-lock.mjs";

export const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

const MIN_NODE = { major: 20, minor: 19 };
const LOCK_RETRY_MS = 200;
/** @type {NodeJS.Signals[]} */
const STOP_SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];

/** A failure reported in one line; `details` are shown below it only where they help (such as a compiler's output). */
export class BootstrapError extends Error {
  /** @param {string} message @param {string} [details] */
  constructor(message, details = "") {
    super(message);
    this.details = details;
  }
}

export function checkNode() {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major > MIN_NODE.major || (major === MIN_NODE.major && minor >= MIN_NODE.minor)) return;
  throw new BootstrapError(
    `Purser needs Node ${MIN_NODE.major}.${MIN_NODE.minor} or newer; this is Node ${process.versions.node}.`,
  );
}

/**
 * Runs the steps while no other start or test run prepares this checkout: two of them would install or build
 * into each other's files. The second one waits, and then finds everything done.
 * @param {(line: string) => void} say
 * @param {((say: (line: string) => void) => Promise<void>)[]} steps
 */
export async function prepare(say, steps, folder = join(ROOT, ".tmp")) {
  mkdirSync(folder, { recursive: true });
  let lock = lockDataDir(folder);
  while (!("release" in lock)) {
    await delay(LOCK_RETRY_MS);
    lock = lockDataDir(folder);
  }
  try {
    for (const step of steps) await step(say);
  } finally {
    lock.release();
  }
}

/** @param {(line: string) => void} say */
export async function ensureDependencies(say) {
  const wanted = lockFileHash();
  if (readStamp("dependencies") === wanted && existsSync(INSTALLED)) return;
  if (installedCovers()) return writeStamp("dependencies", wanted);
  say("Installing dependencies (first start, or they changed; about a minute)...");
  const npm = process.env.npm_execpath;
  const args = ["ci", "--no-audit", "--no-fund", "--loglevel=error"];
  const [command, commandArgs] = npm?.endsWith(".js")
    ? [process.execPath, [npm, ...args]]
    : ["npm", args];
  await run(command, commandArgs, "the dependencies could not be installed", {
    // An npm older than `allowScripts` would let Prisma download engines that Purser does not use.
    PRISMA_SCHEMA_ENGINE_BINARY: process.env.PRISMA_SCHEMA_ENGINE_BINARY ?? "/bin/true",
    PRISMA_SKIP_POSTINSTALL_GENERATE: "1",
  });
  writeStamp("dependencies", wanted);
}

/** @param {(line: string) => void} say */
export async function ensurePrismaClient(say) {
  const schema = join(ROOT, "prisma", "schema.prisma");
  if (!existsSync(schema)) return;
  const hash = hashOf([schema]);
  const generated = join(ROOT, "server", "generated", "prisma", "client.ts");
  if (existsSync(generated) && readStamp("prisma") === hash) return;
  say("Generating the database client...");
  const cli = join(ROOT, "node_modules", "prisma", "build", "index.js");
  await run(process.execPath, [cli, "generate"], "the database client could not be generated", {
    PRISMA_SCHEMA_ENGINE_BINARY: process.env.PRISMA_SCHEMA_ENGINE_BINARY ?? "/bin/true",
    PRISMA_HIDE_UPDATE_MESSAGE: "1",
    CHECKPOINT_DISABLE: "1",
  });
  writeStamp("prisma", hash);
}

/**
 * The commit of this checkout, with `-dirty` if a tracked file of what is compiled differs from it. Where there is no
 * checkout, as in the build of an image, PURSER_COMMIT names it.
 */
export function readCommit() {
  const named = process.env.PURSER_COMMIT;
  if (named) return named;
  if (!existsSync(join(ROOT, ".git"))) return "unknown";
  const git = (/** @type {string[]} */ ...args) =>
    spawnSync("git", ["--no-optional-locks", ...args], { cwd: ROOT, encoding: "utf8" });
  const head = git("rev-parse", "HEAD");
  if (head.status !== 0) return "unknown";
  const compiled = ["server", "packages", "package-lock.json"];
  const changes = git("status", "--porcelain", "--untracked-files=no", "--", ...compiled);
  return `${head.stdout.trim()}${changes.stdout === "" ? "" : "-dirty"}`;
}

/** @param {(line: string) => void} say */
export async function ensureServerBuild(say) {
  const server = join(ROOT, "server");
  const dist = join(server, "dist");
  // The server uses the paywall and the rules from their packages' sources.
  const sources = [
    ...filesUnder(server).filter((path) => !path.startsWith(dist)),
    ...filesUnder(join(ROOT, "packages", "paywall", "src")),
    ...filesUnder(join(ROOT, "packages", "rules", "src")),
    join(ROOT, "package-lock.json"),
  ];
  // With the commit, because the compiled server reports it.
  const hash = hashOf(sources, readCommit());
  // In the output folder and written last, so that neither a copy of the folder nor a half-finished build counts as
  // built.
  const stamp = join(dist, "sources.sha256");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === hash) return;
  say("Compiling the server...");
  await run(process.execPath, [join(server, "build.mjs")], "the server could not be compiled");
  writeFileSync(stamp, hash);
}

/** @param {(line: string) => void} say */
export async function ensureWebBuild(say) {
  const web = join(ROOT, "web");
  if (!existsSync(join(web, "index.html"))) return;
  const hash = hashOf([
    ...filesUnder(join(web, "src")),
    ...filesUnder(join(web, "public")),
    ...filesUnder(join(ROOT, "server", "schemas")),
    ...filesUnder(join(ROOT, "packages", "rules", "src")),
    ...["index.html", "package.json", "vite.config.ts", "postcss.config.cjs"].map((file) =>
      join(web, file),
    ),
    join(ROOT, "package-lock.json"),
  ]);
  if (existsSync(join(web, "dist", "index.html")) && readStamp("web") === hash) return;
  say("Building the web app...");
  const vite = [join(web, "node_modules"), join(ROOT, "node_modules")]
    .map((modules) => join(modules, "vite", "bin", "vite.js"))
    .find((path) => existsSync(path));
  if (!vite) throw new BootstrapError("the web app could not be built: vite is not installed");
  await run(
    process.execPath,
    [vite, "build", "--logLevel=error"],
    "the web app could not be built",
    { NODE_ENV: "production" },
    web,
  );
  writeStamp("web", hash);
}

/**
 * Builds the documentation site. It has its own lock, because the build takes long at low priority and nothing waits for it.
 * @param {(line: string) => void} say
 */
export const prepareDocs = (say) => prepare(say, [ensureDocsBuild], join(ROOT, ".tmp", "docs"));

/** @param {(line: string) => void} say */
async function ensureDocsBuild(say) {
  const docs = join(ROOT, "docs");
  const site = join(docs, ".vitepress");
  if (!existsSync(join(ROOT, "node_modules", "vitepress"))) return;
  const isSource = (/** @type {string} */ file) =>
    !/^\/(\.vitepress|node_modules)\//.test(file.slice(docs.length));
  const hash = hashOf([
    ...filesUnder(docs).filter(isSource),
    join(site, "config.ts"),
    ...filesUnder(join(site, "theme")),
    ...["README.md", "package-lock.json"].map((file) => join(ROOT, file)),
  ]);
  if (existsSync(join(site, "dist", "index.html")) && readStamp("docs") === hash) return;
  say("Building the documentation...");
  await run(
    process.execPath,
    [join(docs, "build.mjs")],
    "the documentation could not be built",
    { NODE_ENV: "production" },
    docs,
  );
  writeStamp("docs", hash);
}

/**
 * `npx purser` in this checkout runs the built packages; the server uses the paywall from the sources.
 * @param {(line: string) => void} say
 */
export async function ensurePackages(say) {
  const packages = join(ROOT, "packages");
  const built = ["purser", "paywall"].map((name) => join(packages, name));
  const hash = hashOf([
    ...built.flatMap((folder) => filesUnder(join(folder, "src"))),
    ...built.map((folder) => join(folder, "package.json")),
    join(packages, "build.mjs"),
    join(ROOT, "package-lock.json"),
  ]);
  const isBuilt = built.every((folder) => existsSync(join(folder, "dist")));
  if (isBuilt && readStamp("packages") === hash) return;
  say("Building the packages...");
  await run(
    process.execPath,
    [join(packages, "build.mjs")],
    "the packages (client, command line, paywall) could not be built",
  );
  writeStamp("packages", hash);
}

/** npm writes this file when it is done: an interrupted install lacks it. */
const INSTALLED = join(ROOT, "node_modules", ".package-lock.json");

/** Whether npm's record of installed packages covers the lock file, so that a plain `npm install` counts as well. */
function installedCovers() {
  if (!existsSync(INSTALLED)) return false;
  const wanted = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")).packages;
  const installed = readRecord(INSTALLED);
  return Object.entries(wanted).every(([path, entry]) => {
    if (!path.includes("node_modules/") || entry.link) return true;
    if (installed[path]) return installed[path].version === entry.version;
    return entry.optional === true || entry.devOptional === true || entry.peer === true;
  });
}

/**
 * npm's record of installed packages. A half-written record counts as empty.
 * @param {string} path
 * @returns {Record<string, { version: string }>}
 */
function readRecord(path) {
  try {
    return JSON.parse(readFileSync(path, "utf8")).packages ?? {};
  } catch {
    return {};
  }
}

function lockFileHash() {
  const platform = `${process.platform} ${process.arch} ${process.versions.modules}`;
  return hashOf([join(ROOT, "package-lock.json")], platform);
}

/** @param {string[]} paths */
function hashOf(paths, salt = "") {
  const hash = createHash("sha256").update(salt);
  for (const path of paths) {
    if (!existsSync(path)) continue;
    hash.update(path.slice(ROOT.length)).update("\0").update(readFileSync(path)).update("\0");
  }
  return hash.digest("hex");
}

/** @param {string} folder */
function filesUnder(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .sort();
}

// Stamps are in node_modules: they are deleted with it, and belong to this machine only.
/** @param {string} name */
function stampPath(name) {
  return join(ROOT, "node_modules", ".purser", `${name}.stamp`);
}

/** @param {string} name */
function readStamp(name) {
  try {
    return readFileSync(stampPath(name), "utf8");
  } catch {
    return null;
  }
}

/** @param {string} name @param {string} value */
function writeStamp(name, value) {
  const path = stampPath(name);
  mkdirSync(dirname(path), { recursive: true });
  // Written as a new file and renamed: if node_modules was copied with hard links, the other checkout's stamp stays
  // unchanged.
  writeFileSync(`${path}.${process.pid}`, value);
  renameSync(`${path}.${process.pid}`, path);
}

/**
 * Runs a tool silently; its output is shown only when it fails.
 * @param {string} command
 * @param {string[]} args
 * @param {string} failure
 * @param {NodeJS.ProcessEnv} env
 * @returns {Promise<void>}
 */
function run(command, args, failure, env = {}, cwd = ROOT) {
  return new Promise((resolve, reject) => {
    // A signal may reach this process alone; a tool that outlived it would continue to write into the checkout. The
    // handlers are added before the spawn, so that there is no moment with a tool and without a handler.
    /** @type {NodeJS.Signals | undefined} */
    let stoppedBy;
    const stop = (/** @type {NodeJS.Signals} */ signal) => {
      stoppedBy = signal;
      child.kill(signal);
    };
    for (const signal of STOP_SIGNALS) process.on(signal, stop);
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    const keep = (/** @type {Buffer} */ chunk) => {
      output = (output + chunk).slice(-8000);
    };
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    child.on("error", (error) => reject(new BootstrapError(`${failure}: ${error.message}`)));
    child.on("close", (code, signal) => {
      if (stoppedBy) process.exit(128 + constants.signals[stoppedBy]);
      for (const name of STOP_SIGNALS) process.off(name, stop);
      if (code === 0) resolve();
      else
        reject(new BootstrapError(`${failure} (${signal ?? `exit code ${code}`})`, output.trim()));
    });
  });
}
