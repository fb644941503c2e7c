// anvil, the node of the local chain: finds it (or downloads it once), starts it under its warden and waits until it
// responds. Shared by local mode and the tests.
import { existsSync, readFileSync, rmSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join, dirname, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { endOrphan } from "./processes.mjs";
import { StartError } from "./start-error.ts";
import { startWarded, type WardedChild } from "./warded-child.ts";
import { execFile, spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { promisify } from "node:util";

interface AnvilOptions {
  binary: string;
  /** Contains the log, the pid file and, with `keepState`, the chain's state. */
  dir: string;
  port: number;
  chainId: number;
  /** Undefined: each transaction is mined at once. */
  blockTimeSeconds?: number;
  keepState: boolean;
  /** Deleted if the process that started anvil dies; tests only. */
  removeIfAbandoned?: string;
  /** More anvil flags; tests only. */
  flags?: string[];
}

export interface Anvil extends WardedChild {
  readonly rpcUrl: string;
  readonly port: number;
}

/** Another program took our port between our check and our start. */
export class PortTaken extends StartError {}

const READY_WITHIN_MS = 30_000;
const IN_USE = /address already in use/i;
/** How many past states are available to calls at an old block; more would fill the memory over the days. */
const STATES_KEPT = 256;

export const statePath = (dir: string): string => join(dir, "state.json");

export async function startAnvil(options: AnvilOptions): Promise<Anvil> {
  const pidFile = join(options.dir, "anvil.pid");
  const logFile = join(options.dir, "anvil.log");
  // An account that only this start knows: a node at our port that has it is the one we started.
  const identityFile = join(options.dir, "anvil.json");
  await endOrphan(pidFile, "SIGTERM");
  rmSync(identityFile, { force: true });
  const child = await startWarded({
    command: options.binary,
    args: [...anvilArguments(options), `--config-out=${identityFile}`],
    stopSignal: "SIGTERM",
    pidFile,
    logFile,
    ...(options.removeIfAbandoned && { removeIfAbandoned: options.removeIfAbandoned }),
  });
  const rpcUrl = `http://127.0.0.1:${options.port}`;
  try {
    await waitUntilReady(rpcUrl, child, identityFile, logFile);
    await mineFirstBlock(rpcUrl);
  } catch (error) {
    await child.stop();
    throw error;
  }
  const stop = async (): Promise<void> => {
    if (options.blockTimeSeconds !== undefined) await endMining(rpcUrl);
    await child.stop();
  };
  return { ...child, stop, rpcUrl, port: options.port };
}

/** Calls on block 0 see a block time of 1, so a currently valid authorization would be "not yet valid" there. */
async function mineFirstBlock(rpcUrl: string): Promise<void> {
  if (BigInt((await rpc(rpcUrl, "eth_blockNumber")) as string) === 0n)
    await rpc(rpcUrl, "evm_mine");
}

/**
 * Stops mining before anvil saves its state. A block mined during the save would be in one half of the state only: the
 * balances, but not the blocks. evm_mine waits for the block that is being mined. Errors are ignored, so that a node
 * that does not respond is stopped all the same.
 */
async function endMining(rpcUrl: string): Promise<void> {
  try {
    await rpc(rpcUrl, "evm_setIntervalMining", [0], 2_000);
    await rpc(rpcUrl, "evm_mine", [], 2_000);
  } catch {
    // The node has ended already.
  }
}

function anvilArguments(options: AnvilOptions): string[] {
  return [
    "--host=127.0.0.1",
    `--port=${options.port}`,
    `--chain-id=${options.chainId}`,
    "--accounts=1",
    "--mnemonic-random",
    "--balance=0",
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
  child: WardedChild,
  identityFile: string,
  logFile: string,
): Promise<void> {
  const deadline = Date.now() + READY_WITHIN_MS;
  let ended = false;
  void child.ended.then(() => (ended = true));
  for (;;) {
    const accounts = await accountsOf(rpcUrl);
    if (accounts !== undefined && accounts[0] === ownAccount(identityFile)) return;
    if (ended || Date.now() > deadline) {
      const reason = lastLine(logFile) ?? "no answer";
      if (ended && (accounts !== undefined || IN_USE.test(reason)))
        throw new PortTaken(
          `another program responds at ${rpcUrl}; it took the port in the meantime.`,
        );
      throw new StartError(`the local chain did not start: ${reason} (log: ${logFile})`);
    }
    await delay(10);
  }
}

async function accountsOf(rpcUrl: string): Promise<string[] | undefined> {
  try {
    return (await rpc(rpcUrl, "eth_accounts", [], 2_000)) as string[];
  } catch {
    return undefined; // Nothing responds yet.
  }
}

function ownAccount(identityFile: string): string | null {
  try {
    const config = JSON.parse(readFileSync(identityFile, "utf8")) as {
      available_accounts: string[];
    };
    return config.available_accounts[0] ?? null;
  } catch {
    return null; // Not written yet.
  }
}

function lastLine(logFile: string): string | undefined {
  if (!existsSync(logFile)) return undefined;
  return readFileSync(logFile, "utf8").trimEnd().split("\n").at(-1) || undefined;
}

const ANVIL_VERSION = "1.7.1";
const ARCHITECTURES: Record<string, string> = { x64: "amd64", arm64: "arm64" };
const FETCH_WITHIN_MS = 180_000;

const packageName = (): string =>
  `@foundry-rs/anvil-${process.platform}-${ARCHITECTURES[process.arch] ?? process.arch}`;
const fileName = process.platform === "win32" ? "anvil.exe" : "anvil";

/** The npm package's binary for this machine, or the one on PATH; undefined if there is neither. */
export function findAnvil(): string | undefined {
  try {
    const manifest = createRequire(import.meta.url).resolve(`${packageName()}/package.json`);
    const path = join(dirname(manifest), "bin", fileName);
    if (existsSync(path)) return path;
  } catch {
    // Not installed: the lock file contains only the package for Linux on x64.
  }
  const onPath = spawnSync(fileName, ["--version"], { stdio: "ignore" });
  return onPath.status === 0 ? fileName : undefined;
}

/** The same, or else a download into the data folder. */
export async function resolveAnvil(
  dataDir: string,
  onProgress: (line: string) => void,
): Promise<string> {
  const found = findAnvil();
  if (found !== undefined) return found;
  const tools = join(resolve(dataDir), "tools");
  const fetched = join(tools, "node_modules", packageName(), "bin", fileName);
  if (!existsSync(fetched)) {
    onProgress(`Fetching the local chain's node (${packageName()}, once)...`);
    await fetchPackage(tools);
  }
  if (existsSync(fetched)) return fetched;
  throw cannotRun("the package holds no binary");
}

/** Installed in a temporary folder and renamed, so that an interrupted download is never used. */
async function fetchPackage(tools: string): Promise<void> {
  const building = `${tools}.new`;
  rmSync(building, { recursive: true, force: true });
  mkdirSync(building, { recursive: true });
  writeFileSync(join(building, "package.json"), '{"private":true}\n');
  try {
    await promisify(execFile)(
      "npm",
      [
        "install",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        `${packageName()}@${ANVIL_VERSION}`,
      ],
      { cwd: building, timeout: FETCH_WITHIN_MS },
    );
  } catch (error) {
    throw cannotRun(`it could not be fetched: ${firstLine(error)}`);
  }
  rmSync(tools, { recursive: true, force: true });
  renameSync(building, tools);
}

function cannotRun(reason: string): StartError {
  return new StartError(
    `the local chain needs anvil ${ANVIL_VERSION} (${packageName()}); ${reason}. ` +
      "Install Foundry so that `anvil` is on PATH, or set RPC_URL_5042002 to your own chain.",
  );
}

function firstLine(error: unknown): string {
  const said = (error as { stderr?: string }).stderr ?? String(error);
  return said.trim().split("\n")[0] ?? "unknown reason";
}

// A small JSON-RPC client for anvil's own methods.

export interface RpcCall {
  method: string;
  params: unknown[];
}

interface RpcAnswer {
  id: number;
  result?: unknown;
  error?: { code: number; message: string };
}

/** Sends the calls as one batch and returns their results in order; throws on the first error. */
export async function rpcBatch(
  url: string,
  calls: RpcCall[],
  timeoutMs = 10_000,
): Promise<unknown[]> {
  if (calls.length === 0) return [];
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(calls.map((call, id) => ({ jsonrpc: "2.0", id, ...call }))),
    signal: AbortSignal.timeout(timeoutMs),
  });
  const answers = (await response.json()) as RpcAnswer[];
  return calls.map((call, id) => {
    const answer = answers.find((candidate) => candidate.id === id);
    if (answer === undefined || answer.error !== undefined)
      throw new Error(`${call.method}: ${answer?.error?.message ?? "no answer"}`);
    return answer.result;
  });
}

export async function rpc(
  url: string,
  method: string,
  params: unknown[] = [],
  timeoutMs?: number,
): Promise<unknown> {
  const [result] = await rpcBatch(url, [{ method, params }], timeoutMs);
  return result;
}
