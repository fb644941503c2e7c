// Looks after the running local chain: notes the newest block with a transaction, saves the state after it,
// and now and then restarts anvil while nothing happens, so that an idle chain does not fill the memory.
import { setTimeout as delay } from "node:timers/promises";
import { saveCheckpoint, writeHead, type ChainHead } from "./chain-state.ts";
import { rpc, rpcBatch } from "./json-rpc.ts";

export interface ChainKeeperOptions {
  dir: string;
  rpcUrl: string;
  /** Restarts the node from its saved and trimmed state. */
  recycle: () => Promise<void>;
  /** New blocks after which the node is recycled, once idle; past three times as many, busy or not. */
  recycleAfterBlocks?: number;
}

const LOOK_EVERY_MS = 500;
/** Saving takes at most this share of the time, however large the state has grown. */
const SAVE_SHARE = 0.1;
const RECYCLE_AFTER_BLOCKS = 30_000;
const IDLE_BLOCKS = 120;
/** Blocks looked at in one go; after a long pause the rest is caught up on the next look. */
const MAX_BLOCKS_PER_LOOK = 500;

interface BlockSummary {
  number: string;
  hash: string;
  transactions: string[];
}

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
      // The node may be away for a moment (a restart after a crash): the next look catches up.
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
