// Local mode: starts what a fresh clone needs besides the server itself, a real Postgres, a real chain and keys.
import { resolve } from "node:path";
import { Client } from "pg";
import { hexToBytes } from "viem";
import { privateKeyToAddress } from "viem/accounts";
import { LOCAL_CHAIN_ID, missingServices, type Config, type NetworkConfig } from "../config.ts";
import { readVapidKeys } from "../core/push-settings.ts";
import { startLocalChain, type LocalChain } from "./chain.ts";
import { takeDataDir, loadSecrets, type Secrets } from "./data-dir.ts";
import { startPostgres } from "./postgres.ts";
import { plainly, StartError } from "./start-error.ts";
import { keepRunning } from "./warded-child.ts";

interface LocalWorldOptions {
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
  /** `kid:base64`, in the form of MASTER_KEYS. */
  masterKeys: string;
  masterKeyActive: string;
  faucetPrivateKey: `0x${string}`;
  demoOwnerPrivateKey: `0x${string}`;
  /** Signs for merchants with payment channels. */
  receiverAuthorizerKey: `0x${string}`;
  channelKey: `0x${string}`;
  vapidKeys: string;
  /** See LocalChain.lostFromBlock. */
  lostFromBlock?: number;
  stop(): Promise<void>;
}

const DATABASE = "purser";
const MAX_CONNECTIONS = 100;
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
      receiverAuthorizerKey: secrets.receiverAuthorizerKey,
      channelKey: secrets.channelKey,
      vapidKeys: secrets.vapidKeys,
      stop,
    };
  } catch (error) {
    await stop();
    throw plainly(error, dataDir);
  }
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
    senders: [...relayerPrivateKeys, secrets.channelKey].map((key) => privateKeyToAddress(key)),
    onProgress: options.onProgress,
  });
  stops.push(() => chain.stop());
  return chain;
}

/** Waits for both, so that a failure of one does not leave the other half started. */
async function bothOrThrow<A, B>(
  first: Promise<A> | undefined,
  second: Promise<B> | undefined,
): Promise<[A | undefined, B | undefined]> {
  const [a, b] = await Promise.allSettled([first, second]);
  if (a.status === "rejected") throw a.reason;
  if (b.status === "rejected") throw b.reason;
  return [a.value, b.value];
}

/** Completes a configuration with local services, if the environment configures no database or no chain. */
export async function withLocalWorld(
  config: Config,
  onProgress: (line: string) => void,
): Promise<{ config: Config; world: LocalWorld | undefined }> {
  const missing = missingServices(config);
  if (!missing.postgres && !missing.chain) return { config, world: undefined };
  // Such a configuration was refused earlier; this makes sure that production never starts a local service.
  if (config.mode === "production") throw new StartError("production runs on no embedded part.");
  const world = await startLocalWorld({
    dataDir: config.dataDir,
    ...missing,
    relayerPrivateKeys: config.relayerPrivateKeys,
    onProgress,
  });
  return { config: withFacts(config, world), world };
}

/** The facts of running local services, in this process or in the one that started it. */
export type WorldFacts = Omit<LocalWorld, "stop">;

export function withFacts(config: Config, world: WorldFacts): Config {
  const { rpcUrl } = world;
  const reachable = (network: NetworkConfig): NetworkConfig =>
    network.rpcUrls.length === 0 && rpcUrl !== undefined
      ? { ...network, rpcUrls: [rpcUrl], wsUrls: [rpcUrl.replace("http", "ws")] }
      : network;
  const [first, ...others] = config.networks;
  const keys = config.masterKeys.length > 0 ? config : localMasterKeys(world);
  return {
    ...config,
    databaseUrl: config.databaseUrl ?? world.databaseUrl,
    networks: [reachable(first), ...others.map(reachable)],
    relayerPrivateKeys: world.relayerPrivateKeys,
    receiverAuthorizerKey: config.receiverAuthorizerKey ?? hexToBytes(world.receiverAuthorizerKey),
    channelKeys:
      config.channelKeys.length > 0 ? config.channelKeys : [hexToBytes(world.channelKey)],
    vapidKeys: config.vapidKeys ?? readVapidKeys(world.vapidKeys),
    masterKeys: keys.masterKeys,
    masterKeyActive: keys.masterKeyActive,
    // Faucet and demo wallet exist only with play money.
    local:
      rpcUrl === undefined
        ? undefined
        : {
            faucetPrivateKey: world.faucetPrivateKey,
            demoOwnerPrivateKey: world.demoOwnerPrivateKey,
          },
  };
}

function localMasterKeys(world: WorldFacts): Pick<Config, "masterKeys" | "masterKeyActive"> {
  const masterKeys = world.masterKeys.split(",").map((entry) => {
    const [kid = "", encoded = ""] = entry.split(":");
    return { kid, key: new Uint8Array(Buffer.from(encoded, "base64")) };
  });
  return { masterKeys, masterKeyActive: world.masterKeyActive };
}
