/**
 * One watcher of new blocks per chain and process, shared by everything that waits for one. It polls
 * fast only while somebody has something in flight, and tells whether the chain can be reached at all.
 */
import type { Hex } from "viem";
import { classifyChainError } from "./errors.ts";
import type { ChainRpc } from "./rpc.ts";

export interface Head {
  number: bigint;
  hash: Hex;
  timestampSeconds: bigint;
  baseFeeWei: bigint;
  gasLimit: bigint;
  /** When this process first saw it, on its monotonic clock. */
  seenAtMs: number;
}

interface BlockHeader {
  number: Hex;
  hash: Hex;
  timestamp: Hex;
  baseFeePerGas?: Hex;
  gasLimit?: Hex;
}

const IDLE_POLL_MS = 4_000;
/** Longer without an answer than this, and nothing new is signed. */
const HEALTHY_FOR_MS = 6_000;

export class HeadWatcher {
  readonly #rpc: ChainRpc;
  readonly #fastMs: number;
  readonly #listeners = new Set<(head: Head) => void>();
  #head: Head | undefined;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<Head> | undefined;
  #interest = 0;
  #lastAnswerMs = Number.NEGATIVE_INFINITY;
  #lastFailed = false;
  #closed = false;

  constructor(rpc: ChainRpc, blockTimeMs: number) {
    this.#rpc = rpc;
    this.#fastMs = Math.min(Math.max(blockTimeMs / 5, 40), 400);
  }

  get head(): Head | undefined {
    return this.#head;
  }

  /** The last try was answered, and that was not long ago (or nobody has tried since). */
  get healthy(): boolean {
    return !this.#lastFailed && performance.now() - this.#lastAnswerMs < HEALTHY_FOR_MS;
  }

  onHead(listener: (head: Head) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Polls fast until the returned function is called. */
  want(): () => void {
    this.#interest += 1;
    this.#schedule(0);
    let released = false;
    return () => {
      if (released) return;
      released = true;
      this.#interest -= 1;
    };
  }

  start(): void {
    this.#schedule(0);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  /** Asks now. Calls at the same moment share one request. */
  refresh(): Promise<Head> {
    this.#polling ??= this.#poll().finally(() => {
      this.#polling = undefined;
    });
    return this.#polling;
  }

  async #poll(): Promise<Head> {
    try {
      const block = await this.#rpc.call<BlockHeader>("eth_getBlockByNumber", ["latest", false]);
      this.#lastAnswerMs = performance.now();
      this.#lastFailed = false;
      if (this.#head?.hash === block.hash) return this.#head;
      const head: Head = {
        number: BigInt(block.number),
        hash: block.hash,
        timestampSeconds: BigInt(block.timestamp),
        baseFeeWei: BigInt(block.baseFeePerGas ?? "0x0"),
        gasLimit: BigInt(block.gasLimit ?? "0x1c9c380"),
        seenAtMs: performance.now(),
      };
      this.#head = head;
      for (const listener of this.#listeners) listener(head);
      return head;
    } catch (error) {
      if (classifyChainError(error).kind === "unreachable") this.#lastFailed = true;
      throw error;
    }
  }

  #schedule(delayMs: number): void {
    if (this.#closed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      // A failure is remembered in `healthy`; whoever needs the chain asks that.
      this.refresh()
        .catch(() => undefined)
        .finally(() => this.#schedule(this.#delay()));
    }, delayMs);
    this.#timer.unref();
  }

  #delay(): number {
    if (this.#lastFailed) return 500;
    return this.#interest > 0 ? this.#fastMs : IDLE_POLL_MS;
  }
}
