// After a power cut or a SIGKILL of everything but the database, a child of an earlier start may still run.
import { readFileSync, rmSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { identityOf } from "./process-identity.mjs";

const GRACE_MS = 10_000;

/**
 * Ends the process a pid file names, if it is truly that process and not a later one with its number.
 * @param {string} pidFile
 * @param {NodeJS.Signals} signal
 */
export async function endOrphan(pidFile, signal) {
  const orphan = readPidFile(pidFile);
  if (orphan !== undefined && isSame(orphan)) {
    kill(orphan.pid, signal);
    const deadline = Date.now() + GRACE_MS;
    while (isSame(orphan)) {
      if (Date.now() > deadline) kill(orphan.pid, "SIGKILL");
      await delay(20);
    }
  }
  rmSync(pidFile, { force: true });
}

function isSame(orphan) {
  return identityOf(orphan.pid) === orphan.identity;
}

function kill(pid, signal) {
  try {
    process.kill(pid, signal);
  } catch {
    // It ended meanwhile.
  }
}

function readPidFile(path) {
  try {
    const { pid, identity } = JSON.parse(readFileSync(path, "utf8"));
    return typeof pid === "number" && typeof identity === "string" ? { pid, identity } : undefined;
  } catch {
    return undefined; // None, or half written: then its process never got to hold data.
  }
}
