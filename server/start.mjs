// `npm start`: from a fresh clone to a running server. Plain JavaScript without dependencies until they are
// there; then the server itself runs in this same process, so that signals and kills behave simply.
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
  ROOT,
} from "./local/bootstrap.mjs";

const WATCH = process.argv.includes("--watch");
const BUILT = process.argv.includes("--built");
/** @param {string} line */
const say = (line) => console.log(line);
/** A service that stops sooner, as those of most tests do, builds no documentation. */
const DOCS_AFTER_MS = 20_000;

try {
  checkNode();
  const steps = [ensureDependencies, ensurePrismaClient, ensurePackages];
  if (WATCH) {
    // The sources are run as they are, and Vite serves the web app itself.
    await prepare(say, steps);
    watch();
  } else {
    // What is built into an image is not built again where it runs: there is nothing to build it with.
    if (!BUILT) await prepare(say, [...steps, ensureServerBuild, ensureWebBuild]);
    // The type checker does not look into what was compiled.
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

/** In a process of its own with low priority, after the first requests: the site is no reason to wait for the service. */
function buildDocs() {
  const script = fileURLToPath(new URL("local/build-docs.mjs", import.meta.url));
  const start = () => {
    // It ends when this pipe closes, also where this process is killed.
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
  // The browser talks to Vite, which passes API calls on: so Vite's address is the public one.
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
  // Ctrl-C in a terminal reaches the children too; this is for what only signals us.
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
