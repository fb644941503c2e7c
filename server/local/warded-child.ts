// The server's side of the warden: starts a child process under it, notices its end, restarts it and stops it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

interface WardedSpec {
  command: string;
  args: string[];
  /** The uid and gid to spawn with, if no wrapper command sets them. */
  ids?: { uid: number; gid: number };
  stopSignal: NodeJS.Signals;
  pidFile: string;
  logFile: string;
  /** A folder that the warden deletes after the child has ended; for temporary test environments. */
  removeOnExit?: string;
  /** The same, but only if the child is stopped because the process that could delete the folder died. */
  removeIfAbandoned?: string;
}

export interface WardedChild {
  readonly pid: number;
  /** Resolves when the child has ended, for any reason. */
  readonly ended: Promise<{ code: number | null; signal: string | null }>;
  stop(): Promise<void>;
}

type WardenMessage =
  | { pid: number }
  | { failed: string }
  | { code: number | null; signal: string | null };

const WARDEN_PATH = fileURLToPath(new URL("./warden.mjs", import.meta.url));
const KILL_AFTER_MS = 10_000;

export async function startWarded(spec: WardedSpec): Promise<WardedChild> {
  const warden = spawn(
    process.execPath,
    [WARDEN_PATH, JSON.stringify({ cwd: "/", killAfterMs: KILL_AFTER_MS, ...spec })],
    { detached: true, stdio: ["pipe", "pipe", "ignore"], cwd: "/", env: wardenEnvironment() },
  );
  warden.stdin.on("error", () => undefined); // A dead warden is noticed by its exit.
  const wardenExit = once(warden, "exit");
  wardenExit.catch(() => undefined);

  let started: (pid: number) => void = () => undefined;
  let failed: (error: Error) => void = () => undefined;
  const pidKnown = new Promise<number>((resolve, reject) => {
    started = resolve;
    failed = reject;
  });
  let end: { code: number | null; signal: string | null } | undefined;

  const lines = createInterface({ input: warden.stdout });
  lines.on("line", (line) => {
    const message = JSON.parse(line) as WardenMessage;
    if ("pid" in message) started(message.pid);
    else if ("failed" in message)
      failed(new Error(`${spec.command} did not start: ${message.failed}`));
    else end = message;
  });

  const ended = (async () => {
    await wardenExit.catch(() => undefined);
    failed(new Error(`the process that watches ${spec.command} ended too early`));
    if (end !== undefined) return end;
    // The warden itself was killed, so we end its child.
    const pid = await pidKnown.catch(() => undefined);
    if (pid !== undefined) tryKill(pid, "SIGKILL");
    return { code: null, signal: "SIGKILL" };
  })();

  const pid = await pidKnown;
  return {
    pid,
    ended,
    async stop() {
      warden.stdin.end("stop");
      const limit = new AbortController();
      const inTime = await Promise.race([
        ended.then(() => true),
        delay(KILL_AFTER_MS + 5_000, false, { signal: limit.signal }).catch(() => true),
      ]);
      limit.abort();
      if (inTime) return;
      tryKill(pid, "SIGKILL");
      warden.kill("SIGKILL");
      await ended;
    },
  };
}

/** The warden must not inherit a test runner's loader and coverage flags, nor the database libpq settings. */
function wardenEnvironment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([key]) => key !== "NODE_OPTIONS" && !/^(PG|TAP|_TAPJS)/.test(key),
  );
  return Object.fromEntries(kept);
}

function tryKill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // Already ended.
  }
}

interface KeepRunningOptions {
  name: string;
  first: WardedChild;
  /** Restarts the child with the same port and data. */
  restart: () => Promise<WardedChild>;
  onProgress: (line: string) => void;
}

interface KeptRunning {
  /** Stops the child and starts it again, on purpose. */
  recycle(): Promise<void>;
  stop(): Promise<void>;
}

const MAX_RESTARTS_PER_MINUTE = 3;
const RETRY_DELAY_MS = 1_000;

/**
 * Restarts a child that ended unexpectedly, so that one crash of the database or the chain does not end all of local
 * mode.
 */
export function keepRunning(options: KeepRunningOptions): KeptRunning {
  let child = options.first;
  const state = { stopping: false };
  let recycling: (() => void) | undefined;
  let restarts: number[] = [];

  const watching = (async () => {
    for (;;) {
      const end = await child.ended;
      if (state.stopping) return;
      if (recycling === undefined && !mayRestart(end)) return;
      const next = await startAgain();
      if (next === undefined) return;
      child = next;
      recycling?.();
      recycling = undefined;
      if (state.stopping) await child.stop();
    }
  })();

  function mayRestart(end: { code: number | null; signal: string | null }): boolean {
    const how = end.signal ?? `code ${end.code}`;
    restarts = [...restarts.filter((at) => at > Date.now() - 60_000), Date.now()];
    if (restarts.length > MAX_RESTARTS_PER_MINUTE) {
      options.onProgress(`${options.name} keeps ending (${how}) and is not started again.`);
      return false;
    }
    options.onProgress(`${options.name} ended unexpectedly (${how}); starting it again.`);
    return true;
  }

  async function startAgain(): Promise<WardedChild | undefined> {
    for (let attempt = 0; attempt < MAX_RESTARTS_PER_MINUTE && !state.stopping; attempt += 1) {
      try {
        return await options.restart();
      } catch (error) {
        options.onProgress(`${options.name} did not start again: ${(error as Error).message}`);
        await delay(RETRY_DELAY_MS);
      }
    }
    return undefined;
  }

  return {
    async recycle() {
      if (state.stopping || recycling !== undefined) return;
      const done = new Promise<void>((resolve) => {
        recycling = resolve;
      });
      await child.stop();
      await Promise.race([done, watching]);
    },
    async stop() {
      state.stopping = true;
      await child.stop();
      await watching;
    },
  };
}
