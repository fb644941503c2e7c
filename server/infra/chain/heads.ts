/** New blocks, as soon as they are there: by the word of an endpoint that announces them, else by asking at the right moment. */
import type { Hex } from "viem";
import { TIMINGS } from "../../core/timings.ts";
import { Announcements } from "./announcements.ts";
import { classifyChainError } from "./errors.ts";
import { BlockSchedule } from "./block-schedule.ts";
import type { ChainRpc, Question } from "./rpc.ts";

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

/** What somebody wants to know with each new block: asked in the same request as the block. */
export type PiggybackRead = () => {
  questions: readonly Question[];
  /** Told before the block is. */
  receive(answers: readonly PromiseSettledResult<unknown>[]): void;
};

/** Longer without an answer than this, and nothing new is signed. */
const HEALTHY_FOR_MS = 6_000;
/** A block that is due is asked for this often, for so long; then as if it had no time. */
const DUE_POLL_MS = 25;
const DUE_FOR_MS = 150;
/** In short steps one question need not be answered before the next: by an endpoint far away, at most so many. */
const MOST_ASKED = 4;
const SLACK_MS = 100;
const MOST_ROUND_TRIP_MS = 1_000;
/** An endpoint that announced a block may be ahead of the one that is asked: so often it is asked again. */
const BEHIND_POLLS = 8;
const AT_ONCE_MS = 3;
/** Where somebody is to say that a block is there, it is asked for only this long after it was due. */
const GRACE_MS = 120;
/** What could not be answered together with a block is not asked together with the next ones. */
const RIDE_AGAIN_MS = 10_000;
const WORDS = 32;
/** The first blocks that somebody waits for are looked for in shorter steps, to find their rhythm. */
const LEARNING_BLOCKS = 8;
const LEARNING_MS = 100;

const LATEST: Question = { method: "eth_getBlockByNumber", params: ["latest", false] };

/**
 * One watcher of new blocks per chain and process, shared by everything that waits for one. It polls
 * fast only while somebody has something in flight, and tells whether the chain can be reached at all.
 *
 * What is announced is only a reason to ask: what counts is what the endpoints say that everything else is read from.
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
  /** When which block was first heard of; believed once the block is seen. */
  readonly #callbacks = new Map<bigint, number>();
  #head: Head | undefined;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<Head> | undefined;
  #interest = 0;
  /** Endpoints that will answer with the next block. */
  #promises = 0;
  #lastAnswerMs = Number.NEGATIVE_INFINITY;
  /** When the head was last asked for, and how often it is asked for now. */
  #askedMs = Number.NEGATIVE_INFINITY;
  #asking = 0;
  /** Of the last answer, after its question. */
  #roundTripMs = 0;
  /** Of this moment is what is known of the head: it was asked for then, and answered. */
  #knownMs = Number.NEGATIVE_INFINITY;
  /** Since when somebody wants new blocks: those before are of no interest. */
  #wantedMs = Number.NEGATIVE_INFINITY;
  #learned = 0;
  #piggybackFromMs = Number.NEGATIVE_INFINITY;
  #lastFailed = false;
  #closed = false;
  /** The number that was announced and not seen yet, and how often it was asked for. */
  #announced: { number: bigint; asked: number } | undefined;

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

  /** The last try was answered, and that was not long ago (or nobody has tried since). */
  get healthy(): boolean {
    return !this.#lastFailed && performance.now() - this.#lastAnswerMs < HEALTHY_FOR_MS;
  }

  /** A new block is heard of without asking. */
  get isAnnounced(): boolean {
    return this.#announcements?.isReceiving() === true;
  }

  /** Between two blocks: as they come, where they come regularly, else as the network is said to make them. */
  get blockTimeMs(): number {
    return this.#schedule.intervalMs ?? this.#configuredMs;
  }

  /** When the first block after this moment is due, where blocks come regularly. */
  nextDueMs(afterMs: number): number | undefined {
    return this.#schedule.nextDue(afterMs);
  }

  onHead(listener: (head: Head) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** From now on, what it wants to know is asked with each block that is looked for. */
  addPiggybackRead(piggybackRead: PiggybackRead): () => void {
    this.#piggybackReads.add(piggybackRead);
    return () => void this.#piggybackReads.delete(piggybackRead);
  }

  /** The newest block there may be by now: of those that came since the head was asked for, only the rhythm tells. */
  get reckonedNumber(): bigint {
    return (
      (this.#head?.number ?? 0n) + this.#schedule.countBetween(this.#knownMs, performance.now())
    );
  }

  /** The head, as long as no newer one is due. */
  get current(): Head | undefined {
    const head = this.#head;
    const isYoung = head && performance.now() - head.seenAtMs < this.blockTimeMs;
    return isYoung && this.reckonedNumber === head.number ? head : undefined;
  }

  /** Looks for each block that comes from now on, until the returned function is called. */
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

  /** An endpoint has been asked to answer as soon as there is a block: until it has, or the answer is called, that is awaited. */
  awaitWord(): () => void {
    const count = (by: number): void => {
      this.#promises += by;
      // What is waited for is another moment now.
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

  /** Asks now. Calls at the same moment share one request. */
  refresh(): Promise<Head> {
    return this.#share(false);
  }

  /** The head, asked for only where there may be a newer one. */
  async newest(): Promise<Head> {
    const head = this.#head;
    return head && this.#isNewest() ? head : this.refresh();
  }

  /** Somebody says that there is such a block. */
  receive(number: bigint): void {
    if (!this.#callbacks.has(number)) this.#callbacks.set(number, performance.now());
    const [oldest] = this.#callbacks.keys();
    if (this.#callbacks.size > WORDS && oldest !== undefined) this.#callbacks.delete(oldest);
    if (this.#interest === 0 || (this.#head && number <= this.#head.number)) return;
    if (this.#announced && number <= this.#announced.number) return;
    this.#announced = { number, asked: 0 };
    this.#look();
  }

  #share(rides: boolean): Promise<Head> {
    return this.#polling ?? this.#another(rides);
  }

  #another(rides: boolean): Promise<Head> {
    const polling = this.#poll(rides).finally(() => {
      if (this.#polling === polling) this.#polling = undefined;
    });
    this.#polling = polling;
    return polling;
  }

  async #poll(rides: boolean): Promise<Head> {
    const askedMs = performance.now();
    this.#askedMs = askedMs;
    this.#asking += 1;
    try {
      const block = await this.#ask(askedMs, rides);
      this.#lastAnswerMs = performance.now();
      this.#lastFailed = false;
      const isOvertaken = askedMs < this.#knownMs;
      if (this.#head && isOvertaken && BigInt(block.number) <= this.#head.number) return this.#head;
      const previousMs = this.#knownMs;
      this.#knownMs = Math.max(previousMs, askedMs);
      // What took much longer than the one before was perhaps asked again, and not when it was asked first.
      const leftMs = Math.max(askedMs, this.#lastAnswerMs - 2 * this.#roundTripMs - SLACK_MS);
      this.#roundTripMs = Math.min(this.#lastAnswerMs - askedMs, MOST_ROUND_TRIP_MS);
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
      // Between the last question that was in vain and this one: what was not answered yet, or not in turn, tells nothing.
      if (!isOvertaken) this.#learn(head, leftMs, leftMs - previousMs);
      this.#head = head;
      if (this.#announced && this.#announced.number <= head.number) this.#announced = undefined;
      for (const listener of this.#listeners) listener(head);
      return head;
    } catch (error) {
      if (classifyChainError(error).kind === "unreachable") this.#lastFailed = true;
      throw error;
    } finally {
      this.#asking -= 1;
    }
  }

  /** The newest block, and what the riders want to know, in one request. */
  async #ask(askedMs: number, rides: boolean): Promise<BlockHeader> {
    const isTogether = rides && askedMs >= this.#piggybackFromMs;
    const asked = isTogether
      ? [...this.#piggybackReads].map((piggybackRead) => piggybackRead())
      : [];
    const questions = asked.flatMap((each) => each.questions);
    if (questions.length === 0) return this.#rpc.call<BlockHeader>(LATEST.method, LATEST.params);
    const [block, ...answers] = await this.#rpc
      .callMany([LATEST, ...questions])
      .catch((): PromiseSettledResult<unknown>[] => []);
    if (block?.status !== "fulfilled") {
      // What else was asked may be the reason.
      this.#piggybackFromMs = performance.now() + RIDE_AGAIN_MS;
      return this.#rpc.call<BlockHeader>(LATEST.method, LATEST.params);
    }
    // Nobody is told less than a later question has told them.
    if (askedMs >= this.#knownMs)
      for (const each of asked) each.receive(answers.splice(0, each.questions.length));
    return block.value as BlockHeader;
  }

  /**
   * When which block came: as somebody said, or when it was asked for, at the latest since that was in vain. The moment
   * of the question counts and not of its answer, which says how far away the endpoint is.
   */
  #learn(head: Head, leftMs: number, lateMs: number): void {
    for (const [number, ms] of this.#callbacks) {
      if (number > head.number) continue;
      this.#callbacks.delete(number);
      this.#schedule.saw(number, ms, 0);
    }
    this.#schedule.saw(head.number, leftMs, lateMs);
    if (this.#interest > 0) this.#learned += 1;
  }

  /** By the schedule, there is no newer one yet. */
  #isNewest(): boolean {
    const head = this.#head;
    const dueMs = head && this.#schedule.dueOf(head.number + 1n);
    return dueMs !== undefined && performance.now() < this.#schedule.askAt(dueMs);
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
    const mayAsk = this.#asking < MOST_ASKED;
    const stepMs = mayAsk ? this.#shortStepMs() : undefined;
    const isOverdue = mayAsk && performance.now() - this.#askedMs >= this.#patienceMs;
    // A failure is remembered in `healthy`; whoever needs the chain asks that.
    (stepMs === undefined && !isOverdue ? this.#share(true) : this.#another(true))
      .catch(() => undefined)
      .finally(() => this.#lookIn(this.#delay()));
    if (stepMs !== undefined) this.#lookIn(stepMs);
    else if (mayAsk && this.#interest > 0) this.#lookIn(this.#patienceMs);
  }

  /** A question that hangs for longer is asked again beside it. */
  get #patienceMs(): number {
    return Math.max(this.#fastMs, 2 * this.#roundTripMs + SLACK_MS);
  }

  #delay(): number {
    if (this.#lastFailed) return 500;
    if (this.#interest === 0) return this.#afterAsked(this.#idleMs);
    // The first look may have been under way before the block was there.
    if (this.#announced && (this.#announced.asked += 1) < BEHIND_POLLS)
      return this.#announced.asked === 1 ? AT_ONCE_MS : DUE_POLL_MS;
    // Nobody has it: a word like that must not outshout those that come.
    this.#announced = undefined;
    // Whoever announces will; in case the word is lost, blocks are looked for all the same, a little later.
    const isTold = this.isAnnounced || this.#promises > 0;
    const dueMs = this.#nextDue(isTold);
    const now = performance.now();
    const fromMs = dueMs === undefined ? now : this.#askFrom(dueMs, isTold);
    if (now < fromMs) return Math.min(Math.max(fromMs - now, 1), this.#idleMs);
    const stepMs = this.#shortStepMs();
    if (stepMs !== undefined) return this.#afterAsked(stepMs);
    const isUnknown = isTold && dueMs === undefined;
    return isUnknown
      ? Math.min(Math.max(this.#configuredMs * 2, this.#fastMs), this.#idleMs)
      : this.#fastMs;
  }

  #afterAsked(ms: number): number {
    return Math.max(this.#askedMs + ms - performance.now(), AT_ONCE_MS);
  }

  /** From one question to the next, answered or not: while a block is due, or nothing is known of when they are. */
  #shortStepMs(): number | undefined {
    if (this.#interest === 0 || this.#lastFailed || this.#announced) return undefined;
    const isTold = this.isAnnounced || this.#promises > 0;
    const dueMs = this.#nextDue(isTold);
    const leastMs = this.#roundTripMs / MOST_ASKED;
    if (dueMs !== undefined) {
      const now = performance.now();
      // A timer may ring a little early.
      const isDue = now >= this.#askFrom(dueMs, isTold) - AT_ONCE_MS && now < dueMs + DUE_FOR_MS;
      return isDue ? Math.max(DUE_POLL_MS, leastMs) : undefined;
    }
    const isLearning = !isTold && (this.#learned < LEARNING_BLOCKS || this.#schedule.isLost);
    return isLearning ? Math.max(Math.min(this.#fastMs, LEARNING_MS), leastMs) : undefined;
  }

  #askFrom(dueMs: number, isTold: boolean): number {
    return isTold ? dueMs + GRACE_MS : this.#schedule.askAt(dueMs);
  }

  /** When the block after the head is due; undefined where it may come at any time. */
  #nextDue(isTold: boolean): number | undefined {
    const nextMs = this.#head && this.#schedule.dueOf(this.#head.number + 1n);
    if (nextMs === undefined || (this.#schedule.isLost && !isTold)) return undefined;
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
