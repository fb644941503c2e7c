// The local world: what a fresh clone needs beside the server itself. A real Postgres, a real chain, keys.
import { mkdirSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { Client } from "pg";
import { privateKeyToAddress } from "viem/accounts";
import { startLocalChain, type LocalChain } from "./chain.ts";
import { lockDataDir } from "./data-dir-lock.mjs";
import { keepRunning } from "./keep-running.ts";
import { startPostgres } from "./postgres.ts";
import { loadSecrets, type Secrets } from "./secrets.ts";
import { StartError } from "./start-error.ts";

export interface LocalWorldOptions {
  dataDir: string;
  postgres: boolean;
  chain: boolean;
  /** Relayer keys from the environment; without any, generated ones are used. */
  relayerPrivateKeys?: `0x${string}`[];
  chainId?: number;
  onProgress: (line: string) => void;
}

export interface LocalWorld {
  databaseUrl?: string;
  rpcUrl?: string;
  relayerPrivateKeys: `0x${string}`[];
  /** `kid:base64`, as MASTER_KEYS has it. */
  masterKeys: string;
  masterKeyActive: string;
  faucetPrivateKey: `0x${string}`;
  demoOwnerPrivateKey: `0x${string}`;
  /** See LocalChain.lostFromBlock. */
  lostFromBlock?: number;
  stop(): Promise<void>;
}

const LOCAL_CHAIN_ID = 5042002;
const DATABASE = "purser";
const MAX_CONNECTIONS = 100;
/** Others may pass through to what they own (Postgres may run as another user), and list nothing. */
const DATA_DIR_MODE = 0o711;

export async function startLocalWorld(options: LocalWorldOptions): Promise<LocalWorld> {
  const dataDir = resolve(options.dataDir);
  const lock = takeDataDir(dataDir);
  const stops: (() => Promise<void>)[] = [];
  const stop = async (): Promise<void> => {
    await Promise.allSettled(stops.splice(0).map((stopOne) => stopOne()));
    lock.release();
  };
  try {
    const secrets = await loadSecrets(dataDir);
    const relayerPrivateKeys = options.relayerPrivateKeys?.length
      ? options.relayerPrivateKeys
      : secrets.relayerPrivateKeys;
    const [database, chain] = await bothOrThrow(
      options.postgres ? startDatabase(dataDir, secrets, options, stops) : undefined,
      options.chain ? startChain(dataDir, secrets, relayerPrivateKeys, options, stops) : undefined,
    );
    return {
      ...(database !== undefined && { databaseUrl: database }),
      ...(chain !== undefined && { rpcUrl: chain.rpcUrl }),
      ...(chain?.lostFromBlock !== undefined && { lostFromBlock: chain.lostFromBlock }),
      relayerPrivateKeys,
      masterKeys: secrets.masterKeys,
      masterKeyActive: secrets.masterKeyActive,
      faucetPrivateKey: secrets.faucetPrivateKey,
      demoOwnerPrivateKey: secrets.demoOwnerPrivateKey,
      stop,
    };
  } catch (error) {
    await stop();
    throw plainly(error, dataDir);
  }
}

function takeDataDir(dataDir: string): { release: () => void } {
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

async function startDatabase(
  dataDir: string,
  secrets: Secrets,
  options: LocalWorldOptions,
  stops: (() => Promise<void>)[],
): Promise<string> {
  options.onProgress("Starting Postgres...");
  const settings = {
    dir: dataDir,
    password: secrets.postgresPassword,
    durable: true,
    maxConnections: MAX_CONNECTIONS,
  };
  const server = await startPostgres(settings);
  const kept = keepRunning({
    name: "Postgres",
    first: server,
    restart: () => startPostgres({ ...settings, port: server.port }),
    onProgress: options.onProgress,
  });
  stops.push(() => kept.stop());
  await ensureDatabase(server.adminUrl);
  const url = new URL(server.adminUrl);
  url.pathname = `/${DATABASE}`;
  return url.href;
}

async function ensureDatabase(adminUrl: string): Promise<void> {
  const admin = new Client({ connectionString: adminUrl });
  await admin.connect();
  try {
    const found = await admin.query("SELECT 1 FROM pg_database WHERE datname = $1", [DATABASE]);
    if (found.rowCount === 0) await admin.query(`CREATE DATABASE ${DATABASE}`);
  } finally {
    await admin.end();
  }
}

async function startChain(
  dataDir: string,
  secrets: Secrets,
  relayerPrivateKeys: `0x${string}`[],
  options: LocalWorldOptions,
  stops: (() => Promise<void>)[],
): Promise<LocalChain> {
  options.onProgress("Starting the local chain...");
  const chain = await startLocalChain({
    dataDir,
    chainId: options.chainId ?? LOCAL_CHAIN_ID,
    admin: privateKeyToAddress(secrets.faucetPrivateKey),
    senders: relayerPrivateKeys.map((key) => privateKeyToAddress(key)),
    onProgress: options.onProgress,
  });
  stops.push(() => chain.stop());
  return chain;
}

/** Waits for both, so that a failure of one leaves no half-started other behind. */
async function bothOrThrow<A, B>(
  first: Promise<A> | undefined,
  second: Promise<B> | undefined,
): Promise<[A | undefined, B | undefined]> {
  const [a, b] = await Promise.allSettled([first, second]);
  if (a.status === "rejected") throw a.reason;
  if (b.status === "rejected") throw b.reason;
  return [a.value, b.value];
}

const FILE_PROBLEMS: Record<string, string> = {
  EACCES: "this user may not write there",
  EPERM: "this user may not write there",
  EROFS: "it is on a read-only disk",
  ENOSPC: "the disk is full",
  EDQUOT: "the disk quota is used up",
  ENOTDIR: "part of the path is a file",
  EEXIST: "there is a file in its place",
  ENOENT: "it cannot be made there",
};

/** Turns the file system's own words into one sentence for the person at the terminal. */
function plainly(error: unknown, dataDir: string): unknown {
  const problem = FILE_PROBLEMS[(error as NodeJS.ErrnoException).code ?? ""];
  if (error instanceof StartError || problem === undefined) return error;
  return new StartError(`the data folder ${dataDir} cannot be used: ${problem}.`, { cause: error });
}
