// `npm start`: from a fresh clone to a running server. Plain JavaScript without dependencies until they are installed;
// then the server runs in this same process, so that signals work as usual.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  BootstrapError,
  checkNode,
  ensureDependencies,
  ensurePackages,
  ensurePrismaClient,
  ensureServerBuild,
  ensureWebBuild,
  prepare,
  prepareDocs,
  ROOT,
} from "./local/bootstrap.mjs";

const [, , ...args] = process.argv;
const [WATCH, BUILT, BUILD] = ["--watch", "--built", "--build"].map((flag) => args.includes(flag));
/** @param {string} line */
const say = (line) => console.log(line);
/** A service that stops sooner, as in most tests, builds no documentation. */
const DOCS_AFTER_MS = 20_000;

/** The settings are in the environment, so an argument is mostly a slip, such as PORT after the command. */
const USAGE = `Usage: npm start
  npm start -- --built   starts what was built before
  npm run build          builds, and starts nothing
  npm run dev            follows your changes
Settings are in the environment, such as PORT=3001 npm start. All: docs/reference/configuration.md`;

try {
  checkArguments();
  checkNode();
  const steps = [ensureDependencies, ensurePrismaClient, ensurePackages];
  if (WATCH) {
    // The sources are run directly, and Vite serves the web app.
    await prepare(say, steps);
    watch();
  } else if (BUILD) {
    await prepare(say, [...steps, ensureServerBuild, ensureWebBuild]);
    await prepareDocs(say);
    say("Everything is built.");
  } else {
    // An image is built already, and has no tools to build it again.
    if (!BUILT) await prepare(say, [...steps, ensureServerBuild, ensureWebBuild]);
    // The path is a variable, so that the type checker does not read the compiled file.
    const compiled = new URL("dist/main.js", import.meta.url).href;
    const { main } = await import(compiled);
    await main();
    if (!BUILT) buildDocs();
  }
} catch (error) {
  if (!(error instanceof BootstrapError)) throw error;
  if (error.details) console.error(error.details);
  console.error(`Purser could not start: ${error.message}`);
  process.exit(1);
}

function checkArguments() {
  const unknown = args.find((arg) => !["--watch", "--built", "--build"].includes(arg));
  if (unknown === undefined) return;
  if (unknown === "--help") say(USAGE);
  else console.error(`There is no option ${unknown}.\n${USAGE}`);
  process.exit(unknown === "--help" ? 0 : 2);
}

/** In its own process at low priority, after the first requests, so that the service does not wait for it. */
function buildDocs() {
  const script = fileURLToPath(new URL("local/build-docs.mjs", import.meta.url));
  const start = () => {
    // It ends when this pipe closes, also if this process is killed.
    const child = spawn(process.execPath, [script], {
      cwd: ROOT,
      stdio: ["pipe", "ignore", "inherit"],
    });
    child.on("error", (error) => console.error(error.message));
    child.unref();
    /** @type {import("node:net").Socket} */ (child.stdin).unref();
  };
  setTimeout(start, DOCS_AFTER_MS).unref();
}

/** `npm run dev`: the server restarts and the web app reloads when their sources change. */
function watch() {
  // The browser uses Vite, which forwards API calls, so Vite's address is the public one.
  const env = {
    ...process.env,
    PUBLIC_URL: process.env.PUBLIC_URL || "http://localhost:5173",
    PURSER_API: `http://127.0.0.1:${process.env.PORT || 3000}`,
  };
  const vite = join(ROOT, "node_modules", ".bin", "vite");
  const server = ["--watch", "--watch-preserve-output", "--import=tsx", "server/main.ts"];
  const children = [
    spawn(process.execPath, server, { cwd: ROOT, stdio: "inherit", env }),
    spawn(vite, [], { cwd: join(ROOT, "web"), stdio: "inherit", env }),
  ];
  let left = children.length;
  const stopAll = () => {
    for (const child of children) child.kill("SIGTERM");
  };
  // Ctrl-C in a terminal reaches the children too; this is for signals to this process only.
  process.on("SIGINT", () => {});
  process.on("SIGTERM", stopAll);
  for (const child of children) {
    child.on("error", (error) => console.error(error.message));
    child.on("exit", (code) => {
      left -= 1;
      if (left === 0) process.exit(code ?? 1);
      stopAll();
    });
  }
}
