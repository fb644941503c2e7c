// Distinguishes a process from a later one with the same id by its start time: a pid alone proves nothing after a power
// cut. Locks and pid files name a process as `{pid, identity}`.
import { execFileSync } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

/**
 * The start time, read from the system.
 * @param {number | undefined} pid
 * @returns {string | null} null if no such process runs
 */
export function identityOf(pid) {
  if (!pid) return null;
  try {
    if (process.platform === "linux") return linuxIdentity(pid);
    const started = execFileSync("ps", ["-p", String(pid), "-o", "lstart="], {
      stdio: ["ignore", "pipe", "ignore"],
      encoding: "utf8",
    }).trim();
    return started === "" ? null : started;
  } catch {
    return null;
  }
}

/** @param {number} pid */
function linuxIdentity(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The second field is the command in parentheses and may contain spaces: count from the last parenthesis.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, startTicks] = [fields[0], fields[19]];
  if (state === "Z" || state === "X") return null;
  const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  return `${boot}:${startTicks}`;
}

const GRACE_MS = 10_000;

/**
 * Ends the process that a pid file names, unless it is a later process with the same id. After a power cut or a
 * SIGKILL of everything but the database, a child of an earlier start may still run.
 * @param {string} pidFile
 * @param {NodeJS.Signals} signal
 */
export async function endOrphan(pidFile, signal) {
  const orphan = readProcess(pidFile);
  if (orphan !== null && isRunning(orphan)) {
    kill(orphan.pid, signal);
    const deadline = Date.now() + GRACE_MS;
    while (isRunning(orphan)) {
      if (Date.now() > deadline) kill(orphan.pid, "SIGKILL");
      await delay(20);
    }
  }
  rmSync(pidFile, { force: true });
}

/**
 * The process that a file names; null if there is no such file, or if a power cut left half of it.
 * @param {string} path
 * @returns {{pid: number, identity: string} | null}
 */
export function readProcess(path) {
  try {
    const { pid, identity } = JSON.parse(readFileSync(path, "utf8"));
    return typeof pid === "number" && typeof identity === "string" ? { pid, identity } : null;
  } catch {
    return null;
  }
}

/**
 * @param {{pid: number, identity: string}} named
 * @returns {boolean}
 */
export function isRunning({ pid, identity }) {
  return identityOf(pid) === identity;
}

/** @param {number} pid @param {NodeJS.Signals} signal */
function kill(pid, signal) {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended meanwhile.
  }
}
