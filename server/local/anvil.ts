// Starts anvil under its warden and waits until it answers. The local world and the tests share this.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { rpc } from "./json-rpc.ts";
import { endOrphan } from "./orphans.mjs";
import { StartError } from "./start-error.ts";
import { startWarded, type WardedChild } from "./warded-child.ts";

export interface AnvilOptions {
  binary: string;
  /** Holds the log, the pid file and, when `keepState`, the chain's state. */
  dir: string;
  port: number;
  chainId: number;
  /** Undefined mines each transaction at once. */
  blockTimeSeconds?: number;
  keepState: boolean;
  removeOnExit?: string;
  /** More anvil flags; tests only. */
  flags?: string[];
}

export interface Anvil extends WardedChild {
  readonly rpcUrl: string;
}

const READY_WITHIN_MS = 30_000;
/** How many past states calls at an old block can use; older ones would fill memory over the days. */
const STATES_KEPT = 256;

export const statePath = (dir: string): string => join(dir, "state.json");

export async function startAnvil(options: AnvilOptions): Promise<Anvil> {
  const pidFile = join(options.dir, "anvil.pid");
  const logFile = join(options.dir, "anvil.log");
  await endOrphan(pidFile, "SIGTERM");
  const child = await startWarded({
    command: options.binary,
    args: anvilArguments(options),
    stopSignal: "SIGTERM",
    pidFile,
    logFile,
    ...(options.removeOnExit && { removeOnExit: options.removeOnExit }),
  });
  const rpcUrl = `http://127.0.0.1:${options.port}`;
  try {
    await waitUntilReady(rpcUrl, options.chainId, child, logFile);
  } catch (error) {
    await child.stop();
    throw error;
  }
  return { ...child, rpcUrl };
}

function anvilArguments(options: AnvilOptions): string[] {
  return [
    "--host=127.0.0.1",
    `--port=${options.port}`,
    `--chain-id=${options.chainId}`,
    "--accounts=0",
    "--no-cors",
    "--quiet",
    `--prune-history=${STATES_KEPT}`,
    ...(options.blockTimeSeconds === undefined ? [] : [`--block-time=${options.blockTimeSeconds}`]),
    ...(options.keepState ? [`--state=${statePath(options.dir)}`] : []),
    ...(options.flags ?? []),
  ];
}

async function waitUntilReady(
  rpcUrl: string,
  chainId: number,
  child: WardedChild,
  logFile: string,
): Promise<void> {
  const deadline = Date.now() + READY_WITHIN_MS;
  let ended = false;
  void child.ended.then(() => (ended = true));
  for (;;) {
    try {
      const answer = await rpc(rpcUrl, "eth_chainId", [], 2_000);
      if (Number(answer) === chainId) return;
      throw new Error(`another chain (${String(answer)}) answers at ${rpcUrl}`);
    } catch (error) {
      if (ended || Date.now() > deadline) {
        const reason = lastLine(logFile) ?? (error as Error).message;
        throw new StartError(`the local chain did not start: ${reason} (log: ${logFile})`, {
          cause: error,
        });
      }
    }
    await delay(10);
  }
}

function lastLine(logFile: string): string | undefined {
  if (!existsSync(logFile)) return undefined;
  return readFileSync(logFile, "utf8").trimEnd().split("\n").at(-1) || undefined;
}
