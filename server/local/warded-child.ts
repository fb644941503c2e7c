// The server's side of the warden: start one child under it, hear of its end, stop it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

export interface WardedSpec {
  command: string;
  args: string[];
  /** Plain uid and gid to spawn with, where no wrapper command does it. */
  ids?: { uid: number; gid: number };
  stopSignal: NodeJS.Signals;
  pidFile: string;
  logFile: string;
  /** A folder the warden deletes when the child has ended; for throw-away test worlds. */
  removeOnExit?: string;
  /** The same, but only when nobody asked for the stop: the process that could delete it died. */
  removeIfAbandoned?: string;
}

export interface WardedChild {
  readonly pid: number;
  /** Resolves when the child has ended, for whatever reason. */
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
    // The warden itself was killed: its child is ours to end.
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

/** Loader and coverage flags of a test runner must not reach the warden, nor libpq settings the database. */
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
    // Already gone.
  }
}
