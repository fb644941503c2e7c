// The data folder: taken by one process, its files written whole.
import { mkdirSync, statSync } from "node:fs";
import { open, rename } from "node:fs/promises";
import { dirname } from "node:path";
import { lockDataDir } from "./data-dir-lock.mjs";
import { plainly, StartError } from "./start-error.ts";

/** Others may pass through to what they own (Postgres may run as another user), and list nothing. */
const DATA_DIR_MODE = 0o711;

/** Makes the folder where it is missing, and holds it until released. */
export function takeDataDir(dataDir: string): { release: () => void } {
  try {
    makeFolder(dataDir);
    const lock = lockDataDir(dataDir);
    if ("release" in lock) return lock;
    throw new StartError(
      `another Purser (process ${lock.heldBy}) already uses ${dataDir}. Stop it, or set DATA_DIR to another folder.`,
    );
  } catch (error) {
    throw plainly(error, dataDir);
  }
}

/** Folder by folder: Node's own recursive mkdir misnames a read-only disk, and never returns on /proc. */
function makeFolder(path: string): void {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found?.isDirectory()) return;
  if (found === undefined) makeFolder(dirname(path));
  mkdirSync(path, { mode: DATA_DIR_MODE });
}

/** Replaces a file whole or not at all, also through a power cut. */
export async function writeFileAtomic(
  path: string,
  content: string | Uint8Array,
  mode = 0o600,
): Promise<void> {
  const draft = `${path}.new`;
  const file = await open(draft, "w", mode);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(draft, path);
}
