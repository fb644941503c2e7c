/** New blocks, as soon as they are there: by the word of an endpoint that announces them, else by asking at the right moment. */
import { WebSocket } from "undici";
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
/** A block that is due is asked for this often, so many times; then as if it had no time. */
const DUE_POLL_MS = 25;
const DUE_POLLS = 6;
/** An endpoint that announced a block may be ahead of the one that is asked: so often it is asked again. */
const BEHIND_POLLS = 8;

/**
 * One watcher of new blocks per chain and process, shared by everything that waits for one. It polls
 * fast only while somebody has something in flight, and tells whether the chain can be reached at all.
 *
 * What is announced is only a reason to ask: what counts is what the endpoints say that everything else is read from.
 */
export class HeadWatcher {
  readonly #rpc: ChainRpc;
  readonly #blockTimeMs: number;
  readonly #fastMs: number;
  readonly #stuckMs: number;
  readonly #listeners = new Set<(head: Head) => void>();
  readonly #announcements: Announcements | undefined;
  #head: Head | undefined;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<Head> | undefined;
  #interest = 0;
  #lastAnswerMs = Number.NEGATIVE_INFINITY;
  #lastFailed = false;
  #closed = false;
  readonly #rhythm: Rhythm;
  /** The number that was announced and not seen yet, and how often it was asked for. */
  #announced: { number: bigint; asked: number } | undefined;

  constructor(rpc: ChainRpc, blockTimeMs: number, wsUrls: readonly string[] = []) {
    this.#rpc = rpc;
    this.#blockTimeMs = blockTimeMs;
    this.#stuckMs = Math.max(blockTimeMs * 10, 4_000);
    this.#fastMs = Math.min(Math.max(blockTimeMs / 5, 40), 400);
    this.#rhythm = new Rhythm(blockTimeMs);
    if (wsUrls.length > 0)
      this.#announcements = new Announcements(wsUrls, blockTimeMs, (number) => this.#hear(number));
  }

  get head(): Head | undefined {
    return this.#head;
  }

  /** The last try was answered, and that was not long ago (or nobody has tried since). */
  get healthy(): boolean {
    return !this.#lastFailed && performance.now() - this.#lastAnswerMs < HEALTHY_FOR_MS;
  }

  /** A new block is heard of without asking. */
  get isAnnounced(): boolean {
    return this.#announcements?.stillHears() === true;
  }

  onHead(listener: (head: Head) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Polls fast until the returned function is called. */
  want(): () => void {
    this.#interest += 1;
    if (this.#interest === 1) this.#schedule(0);
    let released = false;
    return () => {
      if (released) return;
      released = true;
      this.#interest -= 1;
    };
  }

  start(): void {
    this.#announcements?.open();
    this.#schedule(0);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#announcements?.close();
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
      if (this.#head?.hash === block.hash) {
        // The chain stands still, or this endpoint does: another may know more.
        if (performance.now() - this.#head.seenAtMs > this.#stuckMs) this.#rpc.doubt();
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
      this.#rhythm.saw(head.number, this.#lastAnswerMs);
      this.#head = head;
      if (this.#announced && this.#announced.number <= head.number) this.#announced = undefined;
      for (const listener of this.#listeners) listener(head);
      return head;
    } catch (error) {
      if (classifyChainError(error).kind === "unreachable") this.#lastFailed = true;
      throw error;
    }
  }

  #hear(number: bigint): void {
    if (this.#interest === 0 || (this.#head && number <= this.#head.number)) return;
    this.#announced = { number, asked: 0 };
    this.#schedule(0);
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
    if (this.#interest === 0) return IDLE_POLL_MS;
    if (this.#announced && (this.#announced.asked += 1) < BEHIND_POLLS) return DUE_POLL_MS;
    // Whoever announces will; in case the word is lost, blocks are still looked for, and the chain counts as healthy.
    if (this.isAnnounced)
      return Math.min(Math.max(this.#blockTimeMs * 2, this.#fastMs), IDLE_POLL_MS);
    return Math.min(this.#fastMs, this.#rhythm.untilDue(performance.now()) ?? this.#fastMs);
  }
}

/** So many blocks make a rhythm, and so much before its moment the next one is asked for first. */
const REMEMBERED = 16;
const LEAD_MS = 10;

/**
 * When the next block is due, where blocks come regularly. They are seen late and never early: the moment of the one
 * that was seen soonest is that of all, and asking a little before it finds out whether it is sooner still.
 */
class Rhythm {
  readonly #blockTimeMs: number;
  #seen: { number: bigint; ms: number }[] = [];
  #asked = 0;

  constructor(blockTimeMs: number) {
    this.#blockTimeMs = blockTimeMs;
  }

  saw(number: bigint, ms: number): void {
    const last = this.#seen.at(-1);
    if (last && number <= last.number) this.#seen = [];
    this.#seen = [...this.#seen.slice(1 - REMEMBERED), { number, ms }];
    this.#asked = 0;
  }

  /** Undefined where it may come at any time. */
  untilDue(nowMs: number): number | undefined {
    const [first, last] = [this.#seen[0], this.#seen.at(-1)];
    if (!first || !last || this.#seen.length < 3) return undefined;
    const intervalMs = (last.ms - first.ms) / Number(last.number - first.number);
    if (intervalMs < DUE_POLL_MS * 4 || intervalMs > this.#blockTimeMs * 8) return undefined;
    const phases = this.#seen.map(
      ({ number, ms }) => ms - Number(number - last.number) * intervalMs,
    );
    const phase = Math.min(...phases);
    // As irregular as this, and there is none.
    if (Math.max(...phases) - phase > intervalMs / 2) return undefined;
    const dueMs = phase + intervalMs - LEAD_MS;
    if (nowMs < dueMs) return Math.max(dueMs - nowMs, 1);
    this.#asked += 1;
    return this.#asked <= DUE_POLLS ? DUE_POLL_MS : undefined;
  }
}

const REOPEN_MS = 5_000;
/** So long without a word, and the connection is given up. */
const SILENT_BLOCKS = 5;
const SUBSCRIBED_WITHIN_MS = 10_000;

/** `eth_subscribe` to new heads at the first endpoint that answers; the next one when it falls silent. */
class Announcements {
  readonly #urls: readonly string[];
  readonly #onNumber: (number: bigint) => void;
  #socket: WebSocket | undefined;
  #at = 0;
  #isSubscribed = false;
  #isClosed = false;
  #timer: NodeJS.Timeout | undefined;
  /** The last word, or the attempt to hear one. */
  #heardMs = 0;
  #hasHeard = false;
  /** Between two blocks, as they come. */
  #usualMs: number;

  constructor(urls: readonly string[], blockTimeMs: number, onNumber: (number: bigint) => void) {
    this.#urls = urls;
    this.#usualMs = blockTimeMs;
    this.#onNumber = onNumber;
  }

  /** Words come, as far as can be known; an end that has been silent for too long is given up for the next. */
  stillHears(): boolean {
    const patienceMs = this.#isSubscribed
      ? Math.max(this.#usualMs * SILENT_BLOCKS, 2_000)
      : SUBSCRIBED_WITHIN_MS;
    if (performance.now() - this.#heardMs > patienceMs) this.#giveUp(this.#socket);
    return this.#isSubscribed;
  }

  open(): void {
    const url = this.#urls[this.#at % this.#urls.length];
    if (this.#isClosed || url === undefined) return;
    const socket = new WebSocket(url);
    this.#socket = socket;
    this.#heardMs = performance.now();
    this.#hasHeard = false;
    socket.addEventListener("open", () =>
      socket.send(
        JSON.stringify({ jsonrpc: "2.0", id: 1, method: "eth_subscribe", params: ["newHeads"] }),
      ),
    );
    socket.addEventListener("message", ({ data }) => {
      if (this.#socket === socket) this.#read(data);
    });
    // An error is followed by its close, and says nothing that helps; its URL may hold a key.
    socket.addEventListener("error", () => undefined);
    socket.addEventListener("close", () => this.#giveUp(socket));
  }

  /** At once: an end that fell silent does not answer to a close either. */
  #giveUp(socket: WebSocket | undefined): void {
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
    const now = performance.now();
    const word = typeof data === "string" ? numberIn(data) : undefined;
    if (word === "subscribed") this.#isSubscribed = true;
    else if (word === "refused") return this.#giveUp(this.#socket);
    else if (word !== undefined) {
      if (this.#hasHeard) this.#usualMs = (this.#usualMs + now - this.#heardMs) / 2;
      this.#hasHeard = true;
      this.#onNumber(word);
    }
    this.#heardMs = now;
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
