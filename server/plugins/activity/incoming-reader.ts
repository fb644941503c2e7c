/**
 * Incoming transfers to agents' wallets, read from the token's logs. One replica at a time per
 * chain; the cursor lives in Postgres, so downtime leaves no gap and a restart tells nothing twice.
 */
import type { Address, Hex } from "viem";
import type { BlockFacts, TransferLog } from "../../infra/chain/transfer-logs.ts";
import type { Cursor, IncomingRow } from "./incoming-store.ts";
import { newId } from "../../core/ids.ts";

export interface Deps {
  owner: string;
  confirmations: number;
  head(): Promise<bigint>;
  block(blockNumber: bigint): Promise<BlockFacts | undefined>;
  transfers(args: {
    wallets: readonly Address[];
    fromBlock: bigint;
    toBlock: bigint;
  }): Promise<TransferLog[]>;
  wallets(): Promise<readonly Address[]>;
  lease(firstBlock: bigint): Promise<Cursor | undefined>;
  store(args: { rows: IncomingRow[]; nextBlock: bigint; lastHash: Hex | null }): Promise<boolean>;
  log: { warn(fields: object, message: string): void };
}

const RANGE = 2_000n;
const MIN_RANGE = 1n;
/** After a rollback: far enough back for any reorganization beyond the confirmations. */
const REWIND = 2_000n;
/** A lease is renewed by every pass; a long catch-up ends a pass so that it is. */
const MAX_RANGES_PER_PASS = 20;

export class IncomingReader {
  readonly #deps: Deps;
  #range = RANGE;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** Reads what is new. True when there is more to read at once. */
  async pass(): Promise<boolean> {
    // The head first, the wallets after it: a wallet made later is funded in a later block.
    const head = await this.#deps.head();
    const safe = head - BigInt(this.#deps.confirmations - 1);
    const cursor = await this.#deps.lease(safe + 1n);
    if (!cursor || safe < 0n) return false;
    let next = await this.#afterRollback(cursor, safe);
    if (next > safe) return false;
    const wallets = await this.#deps.wallets();
    for (let done = 0; done < MAX_RANGES_PER_PASS && next <= safe; done += 1) {
      const read = await this.#readRange(wallets, next, safe);
      if (read === undefined) return false;
      next = read;
    }
    return next <= safe;
  }

  /** The next block to read after the range, or undefined when another process took over. */
  async #readRange(
    wallets: readonly Address[],
    fromBlock: bigint,
    safe: bigint,
  ): Promise<bigint | undefined> {
    const last = fromBlock + this.#range - 1n;
    const toBlock = last < safe ? last : safe;
    const logs = await this.#deps
      .transfers({ wallets, fromBlock, toBlock })
      .catch((error: unknown) => {
        // Nodes limit ranges or results in their own ways: half of it next time, down to one block.
        if (this.#range > MIN_RANGE) this.#range /= 2n;
        throw error;
      });
    if (this.#range < RANGE) this.#range *= 2n;
    const tail = await this.#deps.block(toBlock);
    if (!tail) return undefined;
    const rows = await this.#toRows(logs);
    const nextBlock = toBlock + 1n;
    const isStored = await this.#deps.store({ rows, nextBlock, lastHash: tail.hash });
    return isStored ? nextBlock : undefined;
  }

  async #toRows(logs: readonly TransferLog[]): Promise<IncomingRow[]> {
    const times = new Map<bigint, Date>();
    for (const { blockNumber } of logs)
      if (!times.has(blockNumber))
        times.set(blockNumber, (await this.#deps.block(blockNumber))?.at ?? new Date());
    return logs.map((log) => ({
      ...log,
      id: newId("pay"),
      settledAt: times.get(log.blockNumber) ?? new Date(),
    }));
  }

  /** Where to read on: further back if the last block read is not on the chain any more. */
  async #afterRollback(cursor: Cursor, safe: bigint): Promise<bigint> {
    const { nextBlock, lastHash } = cursor;
    const last = nextBlock - 1n;
    // A node that lags, or a chain that shrank: told apart when it has grown past the place again.
    if (lastHash === null || last > safe || last < 0n) return nextBlock;
    const block = await this.#deps.block(last);
    if (block?.hash === lastHash) return nextBlock;
    const rewound = nextBlock > REWIND ? nextBlock - REWIND : 0n;
    this.#deps.log.warn(
      { lastBlock: String(last), readAgainFrom: String(rewound) },
      "the chain was rolled back below what was read; reading transfers again",
    );
    return rewound;
  }
}
