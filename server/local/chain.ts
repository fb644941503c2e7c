// The local chain: anvil with USDC, with its state kept in the data folder across restarts and crashes.
import { mkdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import type { Address, Hex } from "viem";
import { PortTaken, startAnvil, resolveAnvil, rpc, rpcBatch, type Anvil } from "./anvil.ts";
import { LOCAL_USDC, placeContracts, setupMissing } from "./chain-contracts.ts";
import {
  keepChain,
  prepareState,
  readHead,
  saveCheckpoint,
  type ChainHead,
} from "./chain-state.ts";
import { freePort } from "./free-port.ts";
import { keepRunning } from "./warded-child.ts";
import { endOrphan } from "./processes.mjs";
import { writeFileAtomic } from "./data-dir.ts";

interface LocalChainOptions {
  dataDir: string;
  chainId: number;
  /** The faucet: mints USDC. */
  admin: Address;
  /** Accounts that send transactions and need native balance. */
  senders: Address[];
  onProgress: (line: string) => void;
  blockTimeSeconds?: number;
  recycleAfterBlocks?: number;
}

export interface LocalChain {
  rpcUrl: string;
  /**
   * Set if the chain restarted without a block that it once had (its node was killed before it could save):
   * transactions in this block and later ones may be lost, although the database counts them as settled.
   */
  lostFromBlock: number | undefined;
  stop(): Promise<void>;
}

const BLOCK_TIME_SECONDS = 0.5;
const USUAL_PORT = 8545;
const NATIVE_WEI = 10_000n * 10n ** 18n;
const NATIVE_LOW_WEI = 1_000n * 10n ** 18n;

export async function startLocalChain(options: LocalChainOptions): Promise<LocalChain> {
  const dir = join(options.dataDir, "chain");
  mkdirSync(dir, { recursive: true });
  const binary = await resolveAnvil(options.dataDir, options.onProgress);
  // An orphan saves its state when it ends, which must happen before the state is read.
  await endOrphan(join(dir, "anvil.pid"), "SIGTERM");
  const head = await readHead(dir);
  const launch = async (port: number): Promise<Anvil> => {
    await prepareState(dir);
    return startAnvil({
      binary,
      dir,
      port,
      chainId: options.chainId,
      blockTimeSeconds: options.blockTimeSeconds ?? BLOCK_TIME_SECONDS,
      keepState: true,
    });
  };

  const port = await choosePort(dir);
  const node = await launch(port).catch(async (error: unknown) => {
    if (!(error instanceof PortTaken)) throw error;
    return launch(await savePort(dir, await freePort()));
  });
  try {
    const lostFromBlock = await lostSince(node.rpcUrl, head);
    if (lostFromBlock !== undefined) options.onProgress(lossWarning(lostFromBlock));
    await setUp(node.rpcUrl, dir, options);
    const kept = keepRunning({
      name: "The local chain",
      first: node,
      restart: () => launch(node.port),
      onProgress: options.onProgress,
    });
    const keeper = keepChain({
      dir,
      rpcUrl: node.rpcUrl,
      recycle: () => kept.recycle(),
      ...(options.recycleAfterBlocks && { recycleAfterBlocks: options.recycleAfterBlocks }),
    });
    return {
      rpcUrl: node.rpcUrl,
      lostFromBlock,
      async stop() {
        await keeper.stop();
        await kept.stop();
      },
    };
  } catch (error) {
    await node.stop();
    throw error;
  }
}

/** Places missing contracts and tops up balances; on a later start there is usually nothing to do. */
async function setUp(rpcUrl: string, dir: string, options: LocalChainOptions): Promise<void> {
  const accounts = [options.admin, ...options.senders];
  const balances = await rpcBatch(
    rpcUrl,
    accounts.map((address) => ({ method: "eth_getBalance", params: [address, "latest"] })),
  );
  const poor = accounts.filter((_, index) => BigInt(balances[index] as Hex) < NATIVE_LOW_WEI);
  const setup = {
    usdc: LOCAL_USDC,
    admin: options.admin,
    funded: poor.map((address) => ({ address, wei: NATIVE_WEI })),
  };
  const incomplete = await setupMissing(rpcUrl, setup);
  if (!incomplete && poor.length === 0) return;
  await placeContracts(rpcUrl, setup);
  await saveCheckpoint(dir, rpcUrl);
}

async function lostSince(rpcUrl: string, head: ChainHead | undefined): Promise<number | undefined> {
  if (head === undefined) return undefined;
  const number = `0x${head.number.toString(16)}`;
  const block = (await rpc(rpcUrl, "eth_getBlockByNumber", [number, false])) as {
    hash: string;
  } | null;
  return block?.hash === head.hash ? undefined : head.number;
}

function lossWarning(block: number): string {
  return (
    `Warning: the local chain was killed before it could save; blocks from ${block} on may be lost, ` +
    "and with them payments the database shows as settled. `npm run reset` starts both afresh."
  );
}

/** The same port after each restart, so that a wallet configured for this chain keeps working. */
async function choosePort(dir: string): Promise<number> {
  const saved = Number(await readFile(join(dir, "port"), "utf8").catch(() => USUAL_PORT));
  return (await isFree(saved)) ? saved : savePort(dir, await freePort());
}

async function savePort(dir: string, port: number): Promise<number> {
  await writeFileAtomic(join(dir, "port"), String(port));
  return port;
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", () => resolve(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
  });
}
