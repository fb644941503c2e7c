// The local chain's saved state. anvil writes `state.json` in place when it stops, and a power cut can leave half of
// it. So a second file, `checkpoint.json`, is replaced atomically after each block with a transaction, and a start uses
// the newer of the two that is readable. anvil keeps every block forever: at two blocks a second, an idle day is
// 170,000 empty blocks (300 MB). So old empty blocks are removed from the state before each start; transactions,
// receipts and logs stay. keepChain does this while the chain runs.
import { existsSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { gunzip } from "node:zlib";
import { statePath, rpc, rpcBatch } from "./anvil.ts";
import { StartError } from "./start-error.ts";
import { writeFileAtomic } from "./data-dir.ts";
import { setTimeout as delay } from "node:timers/promises";

/** The parts of anvil's state that we read; the rest is kept as it is. */
interface ChainState {
  best_block_number: number;
  blocks: { header: { number: string }; transactions: unknown[] }[];
  transactions: { block_number: number }[];
}

/** The newest known block with a transaction. */
export interface ChainHead {
  number: number;
  hash: string;
}

const EMPTY_BLOCKS_KEPT = 2_000;
const FULL_BLOCKS_KEPT = 20_000;

const checkpointPath = (dir: string): string => join(dir, "checkpoint.json");
const headPath = (dir: string): string => join(dir, "head.json");

/** Writes the newest readable state, without old empty blocks, to where anvil reads it. */
export async function prepareState(dir: string): Promise<void> {
  const paths = [statePath(dir), checkpointPath(dir)];
  const states = await Promise.all(paths.map(readState));
  const readable = states.filter((state) => state !== undefined);
  if (readable.length === 0) {
    const everUsed = existsSync(headPath(dir));
    if (everUsed && paths.some((path) => existsSync(path)))
      throw new StartError(
        `the local chain's state in ${dir} is damaged. Start fresh with: npm run reset`,
      );
    await rm(statePath(dir), { force: true }); // A first start that was interrupted before anything happened.
    return;
  }
  const newest = readable.reduce((best, state) =>
    state.best_block_number > best.best_block_number ? state : best,
  );
  await writeFileAtomic(statePath(dir), JSON.stringify(withoutOldBlocks(newest)));
}

const DUMPS = 5;

/** Saves the running chain's state; after that, a power cut loses nothing that happened before. */
export async function saveCheckpoint(dir: string, rpcUrl: string): Promise<void> {
  let dump = "0x";
  for (let tries = 0; tries < DUMPS; tries += 1) {
    const before = await rpc(rpcUrl, "eth_blockNumber");
    dump = (await rpc(rpcUrl, "anvil_dumpState", [], 60_000)) as string;
    // A block mined during the dump may be in one half of the state only, so the dump is repeated. A state so large
    // that this always happens is saved as it is, which is better than none.
    if ((await rpc(rpcUrl, "eth_blockNumber")) === before) break;
  }
  const packed = Buffer.from(dump.slice(2), "hex");
  const isGzip = packed[0] === 0x1f && packed[1] === 0x8b;
  await writeFileAtomic(checkpointPath(dir), isGzip ? await promisify(gunzip)(packed) : packed);
}

async function writeHead(dir: string, head: ChainHead): Promise<void> {
  await writeFileAtomic(headPath(dir), JSON.stringify(head));
}

export async function readHead(dir: string): Promise<ChainHead | undefined> {
  try {
    return JSON.parse(await readFile(headPath(dir), "utf8")) as ChainHead;
  } catch {
    return undefined;
  }
}

export function withoutOldBlocks<State extends ChainState>(state: State): State {
  const numberOf = (block: ChainState["blocks"][number]): number => Number(block.header.number);
  const full = state.blocks.filter((block) => block.transactions.length > 0).map(numberOf);
  const oldestFull = full.sort((a, b) => b - a)[FULL_BLOCKS_KEPT - 1] ?? 0;
  const oldestEmpty = state.best_block_number - EMPTY_BLOCKS_KEPT;
  return {
    ...state,
    blocks: state.blocks.filter((block) => {
      const number = numberOf(block);
      const oldest = block.transactions.length > 0 ? oldestFull : oldestEmpty;
      return number === 0 || number >= oldest;
    }),
    transactions: state.transactions.filter(
      (transaction) => transaction.block_number >= oldestFull,
    ),
  };
}

async function readState(path: string): Promise<ChainState | undefined> {
  try {
    const state = JSON.parse(await readFile(path, "utf8")) as Partial<ChainState>;
    const whole =
      typeof state.best_block_number === "number" &&
      Array.isArray(state.blocks) &&
      Array.isArray(state.transactions);
    return whole ? (state as ChainState) : undefined;
  } catch {
    return undefined;
  }
}

interface ChainKeeperOptions {
  dir: string;
  rpcUrl: string;
  /** Restarts the node from its saved and trimmed state. */
  recycle: () => Promise<void>;
  /** After this many new blocks the node is recycled when idle; after three times as many, even if busy. */
  recycleAfterBlocks?: number;
}

const LOOK_EVERY_MS = 500;
/** Saving takes at most this share of the time, however large the state is. */
const SAVE_SHARE = 0.1;
const RECYCLE_AFTER_BLOCKS = 30_000;
const IDLE_BLOCKS = 120;
/** The most blocks read at once; after a long pause the next rounds catch up. */
const MAX_BLOCKS_PER_LOOK = 500;

interface BlockSummary {
  number: string;
  hash: string;
  transactions: string[];
}

/**
 * Maintains the running chain: records the newest block with a transaction, saves the state after it, and now and then
 * restarts an idle anvil, so that an idle chain does not fill the memory.
 */
export function keepChain(options: ChainKeeperOptions): { stop(): Promise<void> } {
  const stopped = new AbortController();
  const recycleAfter = options.recycleAfterBlocks ?? RECYCLE_AFTER_BLOCKS;
  let firstBlock: number | undefined;
  let seen: number | undefined;
  let lastFull = 0;
  let unsaved = false;
  let saveNotBefore = 0;

  async function look(): Promise<void> {
    const height = Number(await rpc(options.rpcUrl, "eth_blockNumber"));
    firstBlock ??= height;
    seen ??= Math.max(0, height - 1);
    const until = Math.min(height, seen + MAX_BLOCKS_PER_LOOK);
    const head = await newestFullBlock(options.rpcUrl, seen + 1, until);
    if (head !== undefined) {
      await writeHead(options.dir, head);
      lastFull = head.number;
      unsaved = true;
    }
    seen = until;
    if (unsaved && Date.now() >= saveNotBefore) await save();
    const grown = height - firstBlock;
    const idle = height - lastFull > IDLE_BLOCKS;
    if (grown > recycleAfter && (idle || grown > 3 * recycleAfter)) {
      await options.recycle();
      firstBlock = undefined;
    }
  }

  async function save(): Promise<void> {
    const startedAt = Date.now();
    unsaved = false;
    await saveCheckpoint(options.dir, options.rpcUrl);
    saveNotBefore = Date.now() + (Date.now() - startedAt) / SAVE_SHARE;
  }

  const running = (async () => {
    while (!stopped.signal.aborted) {
      // The node may be down for a moment (a restart after a crash): the next round catches up.
      await look().catch(() => undefined);
      await delay(LOOK_EVERY_MS, undefined, { signal: stopped.signal }).catch(() => undefined);
    }
  })();

  return {
    async stop() {
      stopped.abort();
      await running;
    },
  };
}

async function newestFullBlock(
  rpcUrl: string,
  from: number,
  to: number,
): Promise<ChainHead | undefined> {
  const numbers = Array.from({ length: Math.max(0, to - from + 1) }, (_, index) => from + index);
  const blocks = await rpcBatch(
    rpcUrl,
    numbers.map((number) => ({
      method: "eth_getBlockByNumber",
      params: [`0x${number.toString(16)}`, false],
    })),
  );
  const full = (blocks as (BlockSummary | null)[]).findLast(
    (block) => block !== null && block.transactions.length > 0,
  );
  return full ? { number: Number(full.number), hash: full.hash } : undefined;
}
