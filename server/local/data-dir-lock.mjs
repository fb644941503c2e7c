// The lock of a data folder: a file that names the process that holds it. A process that no longer runs does not count.
import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { identityOf, isRunning, readProcess } from "./processes.mjs";

const ATTEMPTS = 5;

/** @param {string} dataDir */
const lockPath = (dataDir) => join(dataDir, "lock");

/**
 * Takes the lock, or returns the process that holds it.
 * @param {string} dataDir an existing folder
 * @returns {{heldBy: number} | {release: () => void}}
 */
export function lockDataDir(dataDir) {
  const path = lockPath(dataDir);
  const mine = JSON.stringify({ pid: process.pid, identity: identityOf(process.pid) });
  const draft = `${path}.${process.pid}`;
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    writeFileSync(draft, mine, { mode: 0o600 });
    try {
      linkSync(draft, path); // Fails if the file exists; otherwise creates it with its content, atomically.
      return { release: () => release(path, mine) };
    } catch (error) {
      if (codeOf(error) !== "EEXIST") throw error;
    } finally {
      rmSync(draft, { force: true });
    }
    const heldBy = holderOf(dataDir);
    if (heldBy !== null) return { heldBy };
    removeStale(path);
  }
  throw new Error(`${path} cannot be taken`);
}

/**
 * The process that holds the folder now, or null.
 * @param {string} dataDir
 * @returns {number | null}
 */
export function holderOf(dataDir) {
  const holder = readProcess(lockPath(dataDir));
  return holder !== null && isRunning(holder) ? holder.pid : null;
}

/**
 * Renamed first: if another process took the lock between our read and our rename, it is put back.
 * @param {string} path
 */
function removeStale(path) {
  const before = read(path);
  const aside = `${path}.stale.${process.pid}`;
  try {
    renameSync(path, aside);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return;
    throw error;
  }
  if (read(aside) === before) rmSync(aside);
  else renameSync(aside, path);
}

/** @param {string} path @param {string} mine */
function release(path, mine) {
  if (read(path) === mine) rmSync(path, { force: true });
}

/** @param {string} path */
function read(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}

/** @param {unknown} error */
function codeOf(error) {
  return /** @type {NodeJS.ErrnoException} */ (error).code;
}
