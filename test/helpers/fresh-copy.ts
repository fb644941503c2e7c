// A copy of this checkout like a `git clone` (plus uncommitted work), and helpers that start the service in it.
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import {
  chownSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";

const ROOT = dirname(dirname(dirname(new URL(import.meta.url).pathname)));

export interface FreshCopy {
  dir: string;
  /** The user that runs it; undefined = the user of the tests. */
  user?: { uid: number; gid: number };
}

/**
 * Installing node_modules would take minutes, so they are hard-linked, with the location, owners and modes of
 * installed ones. `mode` is that of the folder above the copy.
 */
export function freshCopy(t: Test, mode: number, user?: { uid: number; gid: number }): FreshCopy {
  const parent = mkdtempSync(join(tmpdir(), "purser-clone-"));
  t.teardown(async () => {
    // The watchdogs of a killed server stop its children; delete the folder only after them.
    await until(() => processesIn(parent).length === 0, "every child is gone");
    rmSync(parent, { recursive: true, force: true });
  });
  execFileSync("chmod", [mode.toString(8), parent]);
  const dir = join(parent, "purser");
  mkdirSync(dir);
  for (const file of sourceFiles()) cpSync(join(ROOT, file), join(dir, file));
  for (const modules of ["node_modules", "web/node_modules"])
    execFileSync("cp", ["-al", join(ROOT, modules), join(dir, modules)]);
  // Build stamps record what was built where; a clone has none.
  rmSync(join(dir, "node_modules", ".purser"), { recursive: true, force: true });
  if (user) giveFolders(parent, user);
  return { dir, ...(user && { user }) };
}

function sourceFiles(): string[] {
  const listed = execFileSync("git", ["ls-files", "-co", "--exclude-standard", "-z"], {
    cwd: ROOT,
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });
  const deleted = execFileSync("git", ["ls-files", "-d", "-z"], { cwd: ROOT, encoding: "utf8" });
  const gone = new Set(deleted.split("\0"));
  return listed.split("\0").filter((file) => file !== "" && !gone.has(file));
}

/** Folders only: hard-linked files are shared with this checkout, and keep their owner. */
function giveFolders(parent: string, user: { uid: number; gid: number }): void {
  const give = (path: string) => chownSync(path, user.uid, user.gid);
  give(parent);
  for (const entry of readdirSync(parent, { recursive: true, withFileTypes: true }))
    if (entry.isDirectory()) give(join(entry.parentPath, entry.name));
}

export interface Started {
  process: ChildProcess;
  /** Everything printed so far, both streams. */
  output: () => string;
  /** Resolves with the exit code (or signal) when it ended. */
  ended: Promise<number | string>;
}

/** The command that a person types, run with the same npm as the tests. */
export const NPM_START: readonly string[] = [
  ...(process.env["npm_execpath"]?.endsWith(".js")
    ? [process.execPath, process.env["npm_execpath"]]
    : ["npm"]),
  "start",
];

export function startIn(
  t: Test,
  copy: FreshCopy,
  environment: Record<string, string>,
  command: readonly string[] = [process.execPath, "server/start.mjs"],
): Started {
  const inherited = Object.entries(process.env).filter(
    ([key]) => key !== "NODE_OPTIONS" && !/^(_?TAP|PURSER_|npm_)/.test(key),
  );
  // `env -u`: tap adds its loader to every Node process that it sees being spawned; a user's process has none.
  const child = spawn("env", ["-u", "NODE_OPTIONS", ...command], {
    cwd: copy.dir,
    // Its own process group, like a foreground job of a terminal: Ctrl-C signals the whole group.
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    // npm keeps its logs and cache in HOME, which must be writable for the starting user.
    env: { ...Object.fromEntries(inherited), HOME: dirname(copy.dir), ...environment },
    ...copy.user,
  });
  let text = "";
  child.stdout.on("data", (chunk) => (text += String(chunk)));
  child.stderr.on("data", (chunk) => (text += String(chunk)));
  const ended = once(child, "close").then(
    ([code, signal]) => (code as number | null) ?? (signal as string),
  );
  t.teardown(async () => {
    // The whole group: a server that outlived its npm keeps the pipes open that `ended` waits for.
    endGroup(child.pid);
    await ended;
  });
  return { process: child, output: () => text, ended };
}

function endGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL");
  } catch {
    // No process of the group is left.
  }
}

/** Waits until the text was printed; fails at once, with the output, if the process ends first. */
export async function printed(started: Started, text: string, withinMs = 60_000): Promise<void> {
  let end: number | string | undefined;
  void started.ended.then((how) => (end = how));
  await until(
    () => started.output().includes(text) || end !== undefined,
    `"${text}" is printed`,
    withinMs,
  ).catch((error: unknown) => {
    throw new Error(`${String(error)}\n${started.output()}`);
  });
  if (!started.output().includes(text))
    throw new Error(`ended (${end}) before "${text}":\n${started.output()}`);
}

/** Processes whose command line contains the folder, or whose working directory is in it (Linux). */
export function processesIn(dir: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^[0-9]+$/.test(name))
    .map(Number)
    .filter((pid) => pid !== process.pid)
    .filter((pid) => commandOf(pid).includes(dir) || workingDirOf(pid).startsWith(dir));
}

function workingDirOf(pid: number): string {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return "";
  }
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}

export async function until(holds: () => boolean, what: string, withinMs = 30_000): Promise<void> {
  const deadline = Date.now() + withinMs;
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`not within ${withinMs} ms: ${what}`);
    await delay(50);
  }
}
