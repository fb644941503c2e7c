/**
 * Watches a chain for new blocks (heads): by notifications where an endpoint sends them, otherwise by polling at the
 * right time.
 */
import type { Hex } from "viem";
import { TIMINGS } from "../../core/timings.ts";
import { Announcements } from "./announcements.ts";
import { classifyChainError } from "./errors.ts";
import { BlockSchedule } from "./block-schedule.ts";
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
  questions: readonly RpcCall[];
  /** Called before the listeners of the block. */
  receive(answers: readonly PromiseSettledResult<unknown>[]): void;
};

/** After this long without a response, nothing new is signed. */
const HEALTHY_FOR_MS = 6_000;
/** How often a due block is polled, and for how long; after that, as if it had no due time. */
const DUE_POLL_MS = 25;
const DUE_FOR_MS = 150;
/**
 * Polling in short steps does not wait for the previous response. A distant endpoint gets at most this many requests at
 * once.
 */
const MAX_OPEN_REQUESTS = 4;
const SLACK_MS = 100;
const MOST_ROUND_TRIP_MS = 1_000;
/** The endpoint we read from may lag behind the one that sent a notification, so it is polled up to this often. */
const BEHIND_POLLS = 8;
const AT_ONCE_MS = 3;
/** While a notification is expected, polling starts only this long after the due time. */
const GRACE_MS = 120;
/** If the extra reads fail together with a block, they are left out for this long. */
const EXTRA_READS_AGAIN_MS = 10_000;
const MAX_NOTIFICATIONS = 32;
/** The first blocks that a caller waits for are polled in shorter steps, to learn the block schedule. */
const LEARNING_BLOCKS = 8;
const LEARNING_MS = 100;

const LATEST: RpcCall = { method: "eth_getBlockByNumber", params: ["latest", false] };

/**
 * One watcher of new blocks per chain and process, shared by everything that waits for one. It polls fast only while
 * something is in flight, and reports whether the chain is reachable. A notification only triggers a poll: what counts
 * is the response of the endpoints that everything else is read from.
 */
export class HeadWatcher {
  readonly #rpc: ChainRpc;
  readonly #configuredMs: number;
  readonly #idleMs: number;
  readonly #fastMs: number;
  readonly #stuckMs: number;
  readonly #listeners = new Set<(head: Head) => void>();
  readonly #piggybackReads = new Set<PiggybackRead>();
  readonly #announcements: Announcements | undefined;
  readonly #schedule: BlockSchedule;
  /** When each block number was first announced; used once the block itself is seen. */
  readonly #announcedAtMs = new Map<bigint, number>();
  #head: Head | undefined;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<Head> | undefined;
  #interest = 0;
  /** How many endpoints will respond with the next block. */
  #promises = 0;
  #lastAnswerMs = Number.NEGATIVE_INFINITY;
  /** When the head was last requested, and how many requests are open. */
  #requestedMs = Number.NEGATIVE_INFINITY;
  #openRequests = 0;
  /** Round-trip time of the last response. */
  #roundTripMs = 0;
  /** The send time of the newest request that was answered: what we know of the head is as of this time. */
  #knownMs = Number.NEGATIVE_INFINITY;
  /** Since when new blocks are wanted; earlier blocks do not matter. */
  #wantedMs = Number.NEGATIVE_INFINITY;
  #learned = 0;
  #piggybackFromMs = Number.NEGATIVE_INFINITY;
  #lastFailed = false;
  #closed = false;
  /** The number that was announced but not seen yet, and how often it was polled. */
  #announced: { number: bigint; polls: number } | undefined;

  constructor(
    rpc: ChainRpc,
    blockTimeMs: number,
    wsUrls: readonly string[] = [],
    { idleHeadMs, stuckHeadMs } = TIMINGS,
  ) {
    this.#rpc = rpc;
    this.#idleMs = idleHeadMs;
    this.#configuredMs = blockTimeMs;
    this.#stuckMs = Math.max(blockTimeMs * 10, stuckHeadMs);
    this.#fastMs = Math.min(Math.max(blockTimeMs / 5, 40), 400);
    this.#schedule = new BlockSchedule(blockTimeMs);
    if (wsUrls.length > 0)
      this.#announcements = new Announcements(wsUrls, blockTimeMs, (number) =>
        this.receive(number),
      );
  }

  get head(): Head | undefined {
    return this.#head;
  }

  /** True if the last request was answered, and not long ago. */
  get healthy(): boolean {
    return !this.#lastFailed && performance.now() - this.#lastAnswerMs < HEALTHY_FOR_MS;
  }

  /** True while notifications of new blocks arrive. */
  get isAnnounced(): boolean {
    return this.#announcements?.isReceiving() === true;
  }

  /** The interval between blocks: measured where it is regular, otherwise as configured for the network. */
  get blockTimeMs(): number {
    return this.#schedule.intervalMs ?? this.#configuredMs;
  }

  /** When the first block after this time is due; undefined where blocks come irregularly. */
  nextDueMs(afterMs: number): number | undefined {
    return this.#schedule.nextDue(afterMs);
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

  /**
   * The newest block that should exist by now: the known head plus the blocks that the schedule predicts since it was
   * read.
   */
  get expectedNumber(): bigint {
    return (
      (this.#head?.number ?? 0n) + this.#schedule.countBetween(this.#knownMs, performance.now())
    );
  }

  /** The head, while no newer one is due. */
  get current(): Head | undefined {
    const head = this.#head;
    const isYoung = head && performance.now() - head.seenAtMs < this.blockTimeMs;
    return isYoung && this.expectedNumber === head.number ? head : undefined;
  }

  /** Polls for each new block until the returned function is called. */
  want(): () => void {
    this.#interest += 1;
    if (this.#interest === 1) {
      this.#wantedMs = performance.now();
      const isTimely = !this.#lastFailed && this.nextDueMs(this.#wantedMs) !== undefined;
      this.#lookIn(isTimely ? this.#delay() : 0);
    }
    return once(() => {
      this.#interest -= 1;
      if (this.#interest === 0 && !this.#polling) this.#lookIn(this.#delay());
    });
  }

  /** Registers that an endpoint will respond with the next block, until the returned function is called. */
  expectNotification(): () => void {
    const count = (by: number): void => {
      this.#promises += by;
      // The next poll moves to another time.
      if (this.#interest > 0 && !this.#polling) this.#lookIn(this.#delay());
    };
    count(1);
    return once(() => count(-1));
  }

  start(): void {
    this.#announcements?.open();
    this.#lookIn(0);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#announcements?.close();
  }

  /** Polls now. Concurrent calls share one request. */
  refresh(): Promise<Head> {
    return this.#share(false);
  }

  /** The head, polled only if there may be a newer one. */
  async newest(): Promise<Head> {
    const head = this.#head;
    return head && this.#isNewest() ? head : this.refresh();
  }

  /** Handles a notification of this block number. */
  receive(number: bigint): void {
    if (!this.#announcedAtMs.has(number)) this.#announcedAtMs.set(number, performance.now());
    const [oldest] = this.#announcedAtMs.keys();
    if (this.#announcedAtMs.size > MAX_NOTIFICATIONS && oldest !== undefined)
      this.#announcedAtMs.delete(oldest);
    if (this.#interest === 0 || (this.#head && number <= this.#head.number)) return;
    if (this.#announced && number <= this.#announced.number) return;
    this.#announced = { number, polls: 0 };
    this.#look();
  }

  #share(withExtraReads: boolean): Promise<Head> {
    return this.#polling ?? this.#another(withExtraReads);
  }

  #another(withExtraReads: boolean): Promise<Head> {
    const polling = this.#poll(withExtraReads).finally(() => {
      if (this.#polling === polling) this.#polling = undefined;
    });
    this.#polling = polling;
    return polling;
  }

  async #poll(withExtraReads: boolean): Promise<Head> {
    const requestedMs = performance.now();
    this.#requestedMs = requestedMs;
    this.#openRequests += 1;
    try {
      const block = await this.#readHead(requestedMs, withExtraReads);
      this.#lastAnswerMs = performance.now();
      this.#lastFailed = false;
      const isOvertaken = requestedMs < this.#knownMs;
      if (this.#head && isOvertaken && BigInt(block.number) <= this.#head.number) return this.#head;
      const previousMs = this.#knownMs;
      this.#knownMs = Math.max(previousMs, requestedMs);
      // A response that took much longer than the previous one may be to a retry inside the transport, so the first
      // send time is not used.
      const leftMs = Math.max(requestedMs, this.#lastAnswerMs - 2 * this.#roundTripMs - SLACK_MS);
      this.#roundTripMs = Math.min(this.#lastAnswerMs - requestedMs, MOST_ROUND_TRIP_MS);
      if (this.#head?.hash === block.hash) {
        // The chain or this endpoint is stuck; another endpoint may be ahead.
        if (performance.now() - this.#head.seenAtMs > this.#stuckMs) this.#rpc.suspectEndpoint();
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
      // The block appeared between the last request that did not find it and this one. Responses out of order teach
      // nothing.
      if (!isOvertaken) this.#learn(head, leftMs, leftMs - previousMs);
      this.#head = head;
      if (this.#announced && this.#announced.number <= head.number) this.#announced = undefined;
      for (const listener of this.#listeners) listener(head);
      return head;
    } catch (error) {
      if (classifyChainError(error).kind === "unreachable") this.#lastFailed = true;
      throw error;
    } finally {
      this.#openRequests -= 1;
    }
  }

  /** Reads the newest block and the extra reads in one request. */
  async #readHead(requestedMs: number, withExtraReads: boolean): Promise<BlockHeader> {
    const isTogether = withExtraReads && requestedMs >= this.#piggybackFromMs;
    const extraReads = isTogether
      ? [...this.#piggybackReads].map((piggybackRead) => piggybackRead())
      : [];
    const questions = extraReads.flatMap((each) => each.questions);
    if (questions.length === 0) return this.#rpc.call<BlockHeader>(LATEST.method, LATEST.params);
    const [block, ...answers] = await this.#rpc
      .callMany([LATEST, ...questions])
      .catch((): PromiseSettledResult<unknown>[] => []);
    if (block?.status !== "fulfilled") {
      // The extra reads may be the cause of the failure.
      this.#piggybackFromMs = performance.now() + EXTRA_READS_AGAIN_MS;
      return this.#rpc.call<BlockHeader>(LATEST.method, LATEST.params);
    }
    // A slow response does not overwrite the results of a later request.
    if (requestedMs >= this.#knownMs)
      for (const each of extraReads) each.receive(answers.splice(0, each.questions.length));
    return block.value as BlockHeader;
  }

  /**
   * Records when blocks appeared: when they were announced, or when the request that found them was sent. The send time
   * counts and not the time of the response, which only reflects the distance to the endpoint.
   */
  #learn(head: Head, leftMs: number, lateMs: number): void {
    for (const [number, ms] of this.#announcedAtMs) {
      if (number > head.number) continue;
      this.#announcedAtMs.delete(number);
      this.#schedule.observe(number, ms, 0);
    }
    this.#schedule.observe(head.number, leftMs, lateMs);
    if (this.#interest > 0) this.#learned += 1;
  }

  /** By the schedule, no newer block exists yet. */
  #isNewest(): boolean {
    const head = this.#head;
    const dueMs = head && this.#schedule.dueOf(head.number + 1n);
    return dueMs !== undefined && performance.now() < this.#schedule.pollAt(dueMs);
  }

  #lookIn(delayMs: number): void {
    if (this.#closed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#look(), delayMs);
    this.#timer.unref();
  }

  #look(): void {
    if (this.#closed) return;
    clearTimeout(this.#timer);
    const mayPoll = this.#openRequests < MAX_OPEN_REQUESTS;
    const stepMs = mayPoll ? this.#shortStepMs() : undefined;
    const isOverdue = mayPoll && performance.now() - this.#requestedMs >= this.#repeatAfterMs;
    // `healthy` records a failure; code that needs the chain checks it.
    (stepMs === undefined && !isOverdue ? this.#share(true) : this.#another(true))
      .catch(() => undefined)
      .finally(() => this.#lookIn(this.#delay()));
    if (stepMs !== undefined) this.#lookIn(stepMs);
    else if (mayPoll && this.#interest > 0) this.#lookIn(this.#repeatAfterMs);
  }

  /** After this long, an unanswered request is repeated in parallel. */
  get #repeatAfterMs(): number {
    return Math.max(this.#fastMs, 2 * this.#roundTripMs + SLACK_MS);
  }

  #delay(): number {
    if (this.#lastFailed) return 500;
    if (this.#interest === 0) return this.#afterRequest(this.#idleMs);
    // The first poll may have been under way before the block existed.
    if (this.#announced && (this.#announced.polls += 1) < BEHIND_POLLS)
      return this.#announced.polls === 1 ? AT_ONCE_MS : DUE_POLL_MS;
    // No endpoint has the announced block: a false notification must not hide later ones.
    this.#announced = undefined;
    // A notification is expected. In case it is lost, polling goes on, a little later.
    const isNotified = this.isAnnounced || this.#promises > 0;
    const dueMs = this.#nextDue(isNotified);
    const now = performance.now();
    const fromMs = dueMs === undefined ? now : this.#pollFrom(dueMs, isNotified);
    if (now < fromMs) return Math.min(Math.max(fromMs - now, 1), this.#idleMs);
    const stepMs = this.#shortStepMs();
    if (stepMs !== undefined) return this.#afterRequest(stepMs);
    const isUnknown = isNotified && dueMs === undefined;
    return isUnknown
      ? Math.min(Math.max(this.#configuredMs * 2, this.#fastMs), this.#idleMs)
      : this.#fastMs;
  }

  #afterRequest(ms: number): number {
    return Math.max(this.#requestedMs + ms - performance.now(), AT_ONCE_MS);
  }

  /** The step between two polls, answered or not: while a block is due, or while the schedule is unknown. */
  #shortStepMs(): number | undefined {
    if (this.#interest === 0 || this.#lastFailed || this.#announced) return undefined;
    const isNotified = this.isAnnounced || this.#promises > 0;
    const dueMs = this.#nextDue(isNotified);
    const leastMs = this.#roundTripMs / MAX_OPEN_REQUESTS;
    if (dueMs !== undefined) {
      const now = performance.now();
      // A timer may fire a little early.
      const isDue =
        now >= this.#pollFrom(dueMs, isNotified) - AT_ONCE_MS && now < dueMs + DUE_FOR_MS;
      return isDue ? Math.max(DUE_POLL_MS, leastMs) : undefined;
    }
    const isLearning = !isNotified && (this.#learned < LEARNING_BLOCKS || this.#schedule.isLost);
    return isLearning ? Math.max(Math.min(this.#fastMs, LEARNING_MS), leastMs) : undefined;
  }

  #pollFrom(dueMs: number, isNotified: boolean): number {
    return isNotified ? dueMs + GRACE_MS : this.#schedule.pollAt(dueMs);
  }

  /** When the block after the head is due; undefined where blocks come irregularly. */
  #nextDue(isNotified: boolean): number | undefined {
    const nextMs = this.#head && this.#schedule.dueOf(this.#head.number + 1n);
    if (nextMs === undefined || (this.#schedule.isLost && !isNotified)) return undefined;
    return Math.max(nextMs, this.#schedule.nextDue(this.#wantedMs) ?? nextMs);
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
