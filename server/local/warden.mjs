// Supervises one child process (Postgres or anvil), so that it does not outlive the server. The warden has its own
// process group, so a Ctrl-C in the terminal reaches the server but not the child. Its stdin is a pipe from the server:
// when that closes, the server stopped or died (even by SIGKILL or a crash), and the warden stops the child in order
// and exits.
import { spawn } from "node:child_process";
import {
  closeSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { identityOf } from "./processes.mjs";

const MAX_LOG_BYTES = 8 * 1024 * 1024;

/** @type {{command: string, args: string[], cwd: string, ids?: {uid: number, gid: number}, stopSignal: NodeJS.Signals,
 *   killAfterMs: number, pidFile: string, logFile: string, removeOnExit?: string, removeIfAbandoned?: string}} */
const spec = JSON.parse(process.argv[2] ?? "");

/** @param {object} message */
const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
process.stdout.on("error", () => {}); // The server is gone, so nothing reads this any more.

const logFd = openLog(spec.logFile);
const child = spawn(spec.command, spec.args, {
  cwd: spec.cwd,
  stdio: ["ignore", logFd, logFd],
  ...spec.ids,
});
closeSync(logFd);

let stopping = false;
let isRequested = false;

child.on("error", (error) => {
  say({ failed: error.message });
  process.exit(1);
});
child.on("spawn", () => {
  writeFileSync(spec.pidFile, JSON.stringify({ pid: child.pid, identity: identityOf(child.pid) }));
  say({ pid: child.pid });
});
child.on("exit", (code, signal) => {
  removeOwnPidFile();
  const isAbandoned = stopping && !isRequested;
  const leftovers = spec.removeOnExit ?? (isAbandoned ? spec.removeIfAbandoned : undefined);
  if (leftovers) rmSync(leftovers, { recursive: true, force: true });
  say({ code, signal });
  process.exit(0);
});

// Any input on stdin means that the server stops the child on purpose; a mere end means that the server is gone.
process.stdin.on("data", () => (isRequested = true));
process.stdin.on("end", stop).on("close", stop).on("error", stop);
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, stop);

function stop() {
  if (stopping) return;
  stopping = true;
  child.kill(spec.stopSignal);
  setTimeout(() => child.kill("SIGKILL"), spec.killAfterMs);
}

/** The next start may have written its own pid file already. */
function removeOwnPidFile() {
  try {
    if (JSON.parse(readFileSync(spec.pidFile, "utf8")).pid === child.pid) rmSync(spec.pidFile);
  } catch {
    // Deleted already.
  }
}

/** @param {string} path */
function openLog(path) {
  try {
    if (statSync(path).size > MAX_LOG_BYTES) truncateSync(path);
  } catch {
    // No log yet.
  }
  return openSync(path, "a", 0o600);
}
