/**
 * Watches a chain for new blocks (heads). A send that waits for its receipt announces its block (EIP-7966); otherwise a
 * WebSocket endpoint announces each one; otherwise the newest block is polled at a fixed fraction of the block time.
 */
import type { Hex } from "viem";
import { WebSocket } from "undici";
import { TIMINGS } from "../../core/timings.ts";
import { classifyChainError } from "./errors.ts";
import type { ChainRpc, RpcCall } from "./rpc.ts";

export interface Head {
  number: bigint;
  hash: Hex;
  timestampSeconds: bigint;
  baseFeeWei: bigint;
  gasLimit: bigint;
  /** When this process first saw the block, on its monotonic clock. */
  seenAtMs: number;
}

interface BlockHeader {
  number: Hex;
  hash: Hex;
  timestamp: Hex;
  baseFeePerGas?: Hex;
  gasLimit?: Hex;
}

/** Extra reads that a component wants with each new block; they are sent in the same request as the block. */
export type PiggybackRead = () => {
  calls: readonly RpcCall[];
  /** Called before the listeners of the block. */
  receive(answers: readonly PromiseSettledResult<unknown>[]): void;
};

/** After this long without a response, nothing new is signed. */
const HEALTHY_FOR_MS = 6_000;
/** A block is polled for this often in its time, within these bounds. */
const POLLS_PER_BLOCK = 8;
const LEAST_POLL_MS = 40;
const MOST_POLL_MS = 400;
/** Polls do not wait for the response to the one before. A distant or silent endpoint gets at most this many at once. */
const MAX_OPEN_POLLS = 4;
/** While another endpoint announces blocks, polling goes on at this many block times, because a notification may be lost. */
const ANNOUNCED_POLL_BLOCKS = 2;
/** The endpoint we read from may lag behind the one that sent a notification, so it is polled up to this often. */
const BEHIND_POLLS = 8;
const BEHIND_POLL_MS = 50;
const FAILED_POLL_MS = 500;
/** If the extra reads fail together with a block, they are left out for this long. */
const EXTRA_READS_AGAIN_MS = 10_000;

const LATEST: RpcCall = { method: "eth_getBlockByNumber", params: ["latest", false] };

/**
 * One watcher of new blocks per chain and process, shared by everything that waits for one. It polls fast only while
 * something is in flight, and reports whether the chain is reachable. A notification only triggers a poll: what counts
 * is the response of the endpoints that everything else is read from.
 */
export class HeadWatcher {
  readonly #rpc: ChainRpc;
  readonly #nowMs: () => number;
  readonly #blockTimeMs: number;
  readonly #idleMs: number;
  readonly #pollMs: number;
  readonly #stuckMs: number;
  readonly #listeners = new Set<(head: Head) => void>();
  readonly #piggybackReads = new Set<PiggybackRead>();
  readonly #announcements: Announcements | undefined;
  #head: Head | undefined;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<Head> | undefined;
  #openPolls = 0;
  #interest = 0;
  /** How many sends wait for an endpoint to return their receipt. */
  #waitingSends = 0;
  #lastAnswerMs = Number.NEGATIVE_INFINITY;
  #lastFailed = false;
  /** When the head was last requested, or first wanted: the next poll is due a pace after this. */
  #pacedFromMs = Number.NEGATIVE_INFINITY;
  /** The send time of the newest request that was answered: what we know of the head is as of this time. */
  #knownMs = Number.NEGATIVE_INFINITY;
  #piggybackFromMs = Number.NEGATIVE_INFINITY;
  #closed = false;
  /** The number that was announced but not seen yet, and how often it was polled. */
  #announced: { number: bigint; polls: number } | undefined;
  /** An announced block is still missing: it is polled for as if nothing had been announced. */
  #isBehind = false;

  constructor(
    rpc: ChainRpc,
    blockTimeMs: number,
    wsUrls: readonly string[] = [],
    { idleHeadMs, stuckHeadMs } = TIMINGS,
    nowMs = () => performance.now(),
  ) {
    this.#rpc = rpc;
    this.#nowMs = nowMs;
    this.#blockTimeMs = blockTimeMs;
    this.#idleMs = idleHeadMs;
    this.#stuckMs = Math.max(blockTimeMs * 10, stuckHeadMs);
    this.#pollMs = Math.min(Math.max(blockTimeMs / POLLS_PER_BLOCK, LEAST_POLL_MS), MOST_POLL_MS);
    if (wsUrls.length > 0)
      this.#announcements = new Announcements(
        wsUrls,
        blockTimeMs,
        (number) => this.receive(number),
        nowMs,
      );
  }

  get head(): Head | undefined {
    return this.#head;
  }

  /** True if the last request was answered, and not long ago. */
  get healthy(): boolean {
    return !this.#lastFailed && this.#nowMs() - this.#lastAnswerMs < HEALTHY_FOR_MS;
  }

  /** True while notifications of new blocks arrive. */
  get isAnnounced(): boolean {
    return this.#announcements?.isReceiving() === true;
  }

  /**
   * The newest block that may exist by now: the known head, and as many blocks as the network can have made since it
   * was read.
   */
  get newestPossible(): bigint {
    if (!this.#head) return 0n;
    const blocks = Math.ceil((this.#nowMs() - this.#knownMs) / this.#blockTimeMs);
    return this.#head.number + BigInt(blocks);
  }

  onHead(listener: (head: Head) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** From now on, these reads are sent with each poll for a block. */
  addPiggybackRead(piggybackRead: PiggybackRead): () => void {
    this.#piggybackReads.add(piggybackRead);
    return () => void this.#piggybackReads.delete(piggybackRead);
  }

  /** Polls for each new block until the returned function is called. */
  want(): () => void {
    this.#interest += 1;
    if (this.#interest === 1) {
      this.#pacedFromMs = this.#nowMs();
      this.#schedule();
    }
    return once(() => {
      this.#interest -= 1;
      if (this.#interest === 0) this.#schedule();
    });
  }

  /** Registers that an endpoint will respond with the next block, until the returned function is called. */
  expectNotification(): () => void {
    this.#waitingSends += 1;
    this.#schedule();
    return once(() => {
      this.#waitingSends -= 1;
      this.#schedule();
    });
  }

  start(): void {
    this.#announcements?.open();
    this.#tick();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#announcements?.close();
  }

  /** Reads the newest block now. Concurrent calls share one request. */
  refresh(): Promise<Head> {
    return this.#polling ?? this.#track(this.#read(false));
  }

  /** The same with the extra reads, and never a request that was sent before. */
  poll(): Promise<Head> {
    if (this.#polling && this.#openPolls >= MAX_OPEN_POLLS) return this.#polling;
    return this.#track(this.#read(true));
  }

  /** Handles a notification of this block number. */
  receive(number: bigint): void {
    if (this.#interest === 0 || (this.#head && number <= this.#head.number)) return;
    if (this.#announced && number <= this.#announced.number) return;
    this.#announced = { number, polls: 0 };
    this.#tick();
  }

  #tick(): void {
    if (this.#closed) return;
    if (this.#openPolls < MAX_OPEN_POLLS) {
      // `healthy` records a failure; code that needs the chain checks it.
      this.poll().catch(() => undefined);
      if (this.#announced && (this.#announced.polls += 1) >= BEHIND_POLLS) {
        // No endpoint has the announced block: a false notification must not hide later ones.
        this.#announced = undefined;
        this.#isBehind = true;
      }
    }
    this.#pacedFromMs = this.#nowMs();
    this.#schedule();
  }

  #schedule(): void {
    if (this.#closed) return;
    clearTimeout(this.#timer);
    const inMs = Math.max(this.#pacedFromMs + this.#paceMs() - this.#nowMs(), 1);
    this.#timer = setTimeout(() => this.#tick(), inMs);
    this.#timer.unref();
  }

  #paceMs(): number {
    if (this.#lastFailed) return FAILED_POLL_MS;
    if (this.#interest === 0) return this.#idleMs;
    if (this.#announced) return BEHIND_POLL_MS;
    const isNotified = (this.isAnnounced || this.#waitingSends > 0) && !this.#isBehind;
    return isNotified
      ? Math.min(Math.max(this.#blockTimeMs * ANNOUNCED_POLL_BLOCKS, this.#pollMs), this.#idleMs)
      : this.#pollMs;
  }

  #track(reading: Promise<Head>): Promise<Head> {
    const polling = reading.finally(() => {
      if (this.#polling === polling) this.#polling = undefined;
    });
    this.#polling = polling;
    return polling;
  }

  async #read(withExtraReads: boolean): Promise<Head> {
    const requestedMs = this.#nowMs();
    this.#openPolls += 1;
    try {
      const block = await this.#readBlock(requestedMs, withExtraReads);
      this.#lastAnswerMs = this.#nowMs();
      this.#lastFailed = false;
      return this.#keep(block, requestedMs);
    } catch (error) {
      // A failure says nothing if a later request was answered.
      if (requestedMs >= this.#knownMs && classifyChainError(error).kind === "unreachable") {
        this.#lastFailed = true;
        this.#schedule();
      }
      throw error;
    } finally {
      this.#openPolls -= 1;
    }
  }

  #keep(block: BlockHeader, requestedMs: number): Head {
    const isOvertaken = requestedMs < this.#knownMs;
    if (this.#head && isOvertaken && BigInt(block.number) <= this.#head.number) return this.#head;
    this.#knownMs = Math.max(this.#knownMs, requestedMs);
    if (this.#head?.hash === block.hash) {
      // The chain or this endpoint is stuck; another endpoint may be ahead.
      if (this.#nowMs() - this.#head.seenAtMs > this.#stuckMs) this.#rpc.suspectEndpoint();
      return this.#head;
    }
    const head: Head = {
      number: BigInt(block.number),
      hash: block.hash,
      timestampSeconds: BigInt(block.timestamp),
      baseFeeWei: BigInt(block.baseFeePerGas ?? "0x0"),
      gasLimit: BigInt(block.gasLimit ?? "0x1c9c380"),
      seenAtMs: this.#lastAnswerMs,
    };
    this.#head = head;
    this.#isBehind = false;
    if (this.#announced && this.#announced.number <= head.number) {
      this.#announced = undefined;
      this.#schedule();
    }
    for (const listener of this.#listeners) listener(head);
    return head;
  }

  /** Reads the newest block and the extra reads in one request. */
  async #readBlock(requestedMs: number, withExtraReads: boolean): Promise<BlockHeader> {
    const isTogether = withExtraReads && requestedMs >= this.#piggybackFromMs;
    const extraReads = isTogether
      ? [...this.#piggybackReads].map((piggybackRead) => piggybackRead())
      : [];
    const calls = extraReads.flatMap((each) => each.calls);
    if (calls.length === 0) return this.#rpc.call<BlockHeader>(LATEST.method, LATEST.params);
    const [block, ...answers] = await this.#rpc
      .callMany([LATEST, ...calls])
      .catch((): PromiseSettledResult<unknown>[] => []);
    if (block?.status !== "fulfilled") {
      // The extra reads may be the cause of the failure.
      this.#piggybackFromMs = this.#nowMs() + EXTRA_READS_AGAIN_MS;
      return this.#rpc.call<BlockHeader>(LATEST.method, LATEST.params);
    }
    // A slow response does not overwrite the results of a later request.
    if (requestedMs >= this.#knownMs)
      for (const each of extraReads) each.receive(answers.splice(0, each.calls.length));
    return block.value as BlockHeader;
  }
}

function once(end: () => unknown): () => void {
  let isOver = false;
  return () => {
    if (isOver) return;
    isOver = true;
    end();
  };
}

const REOPEN_MS = 5_000;
/** A connection is given up after this many block times without a notification. */
const SILENT_BLOCKS = 5;
const SUBSCRIBED_WITHIN_MS = 10_000;

/**
 * Notifications of new blocks over WebSocket (`eth_subscribe`): subscribes at the first endpoint that answers, and moves
 * to the next one when it falls silent.
 */
class Announcements {
  readonly #urls: readonly string[];
  readonly #onNumber: (number: bigint) => void;
  readonly #nowMs: () => number;
  #socket: WebSocket | undefined;
  #at = 0;
  #isSubscribed = false;
  #isClosed = false;
  #timer: NodeJS.Timeout | undefined;
  /** Time of the last notification, or of the attempt to subscribe. */
  #receivedMs = 0;
  #hasReceived = false;
  /** The usual time between two blocks, measured from notifications. */
  #usualMs: number;

  constructor(
    urls: readonly string[],
    blockTimeMs: number,
    onNumber: (number: bigint) => void,
    nowMs: () => number,
  ) {
    this.#urls = urls;
    this.#nowMs = nowMs;
    this.#usualMs = blockTimeMs;
    this.#onNumber = onNumber;
  }

  /**
   * True while notifications arrive as expected. An endpoint that has been silent for too long is dropped for the next
   * one.
   */
  isReceiving(): boolean {
    const timeoutMs = this.#isSubscribed
      ? Math.max(this.#usualMs * SILENT_BLOCKS, 2_000)
      : SUBSCRIBED_WITHIN_MS;
    if (this.#nowMs() - this.#receivedMs > timeoutMs) this.#abort(this.#socket);
    return this.#isSubscribed;
  }

  open(): void {
    const url = this.#urls[this.#at % this.#urls.length];
    if (this.#isClosed || url === undefined) return;
    this.#receivedMs = this.#nowMs();
    this.#hasReceived = false;
    const socket = new WebSocket(url);
    this.#socket = socket;
    socket.addEventListener("open", () =>
      socket.send(
        JSON.stringify({ jsonrpc: "2.0", id: 1, method: "eth_subscribe", params: ["newHeads"] }),
      ),
    );
    socket.addEventListener("message", ({ data }) => {
      if (this.#socket === socket) this.#read(data);
    });
    // A close event follows each error. The error itself is not used, because its URL may contain a key.
    socket.addEventListener("error", () => undefined);
    socket.addEventListener("close", () => this.#abort(socket));
  }

  /** Immediate: an endpoint that fell silent does not complete a close handshake either. */
  #abort(socket: WebSocket | undefined): void {
    if (socket === undefined || this.#socket !== socket) return;
    this.#socket = undefined;
    this.#isSubscribed = false;
    socket.close();
    this.#at += 1;
    this.#timer = setTimeout(() => this.open(), REOPEN_MS);
    this.#timer.unref();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
  }

  #read(data: unknown): void {
    const now = this.#nowMs();
    const message = typeof data === "string" ? numberIn(data) : undefined;
    if (message === "subscribed") this.#isSubscribed = true;
    else if (message === "refused") return this.#abort(this.#socket);
    else if (message !== undefined) {
      if (this.#hasReceived) this.#usualMs = (this.#usualMs + now - this.#receivedMs) / 2;
      this.#hasReceived = true;
      this.#onNumber(message);
    }
    this.#receivedMs = now;
  }
}

function numberIn(text: string): bigint | "subscribed" | "refused" | undefined {
  try {
    const { id, error, params } = JSON.parse(text) as {
      id?: number;
      error?: unknown;
      params?: { result?: { number?: string } };
    };
    if (id === 1) return error === undefined ? "subscribed" : "refused";
    const number = params?.result?.number;
    return typeof number === "string" ? BigInt(number) : undefined;
  } catch {
    return undefined;
  }
}
