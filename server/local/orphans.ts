// After a power cut or a SIGKILL of everything but the database, a child of an earlier start may still run.
import { readFileSync, rmSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { identityOf } from "./process-identity.mjs";

const GRACE_MS = 10_000;

/** Ends the process a pid file names, if it is truly that process and not a later one with its number. */
export async function endOrphan(pidFile: string, signal: NodeJS.Signals): Promise<void> {
  const orphan = readPidFile(pidFile);
  if (orphan !== undefined && isSame(orphan)) {
    process.kill(orphan.pid, signal);
    const deadline = Date.now() + GRACE_MS;
    while (isSame(orphan)) {
      if (Date.now() > deadline) process.kill(orphan.pid, "SIGKILL");
      await delay(20);
    }
  }
  rmSync(pidFile, { force: true });
}

interface PidFile {
  pid: number;
  identity: string;
}

function isSame(orphan: PidFile): boolean {
  return identityOf(orphan.pid) === orphan.identity;
}

function readPidFile(path: string): PidFile | undefined {
  try {
    const content = JSON.parse(readFileSync(path, "utf8")) as Partial<PidFile>;
    if (typeof content.pid !== "number" || typeof content.identity !== "string") return undefined;
    return { pid: content.pid, identity: content.identity };
  } catch {
    return undefined; // None, or half written: then its process never got to hold data.
  }
}
