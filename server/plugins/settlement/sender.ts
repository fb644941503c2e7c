/**
 * Turns queued settlements into transactions: claims them, gathers them into batches, preflights each by simulation,
 * signs, stores, and broadcasts. Nothing is sent before it is stored.
 *
 * One rule decides when a batch leaves (`Collector`): when it is full, or when it has gathered for a quarter of a block.
 * A withdrawal leaves at once, and so does a single payment on an idle lane, unless a batch was shared in the last blocks.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Address, LocalAccount } from "viem";
import { CLAIM_LOST, LEASE_LOST, LOCK_TIMEOUT, sqlState } from "../../infra/db/pool.ts";
import { classifyChainError } from "../../infra/chain/errors.ts";
import { isKeysUnavailable } from "../../infra/kms.ts";
import {
  type BatchItem,
  type Fees,
  gasLimitOf,
  initialFees,
  isThirdParty,
  MAX_BATCH,
  MAX_GIVEN_UP,
  MAX_IN_FLIGHT,
  RESERVED_PLACES,
  signAttempt,
  SOLO_PLACES,
  toBatchItem,
  transactionOf,
} from "./batch.ts";
import { type EngineContext, type Signal, writeOutcomes } from "./context.ts";
import { persistTransaction, type Lease } from "./lane-store.ts";
import type { Slot } from "./mempool.ts";
import {
  type RefusedItem,
  preflight,
  type PreflightResult,
  type PreflightTerms,
} from "./preflight.ts";
import { proveRefused, Refusals, refusalsBy } from "./prove.ts";
import { claim, inQueueOrder, unclaim, type ClaimRoom } from "./store.ts";
import type { Tracker } from "./tracker.ts";
import { traceProven, TransactionTrace } from "./transaction-trace.ts";
import type { ProvenOutcome, SettlementRecord } from "./types.ts";

interface SenderDeps {
  ctx: EngineContext;
  lease: Lease;
  signer: LocalAccount;
  /** It sends only what is bound to its account. */
  onlyBound: boolean;
  tracker: Tracker;
  /** The next free nonce when the sender starts. */
  nextNonce: bigint;
  priorityFeeWei: () => Promise<bigint>;
  /** Returns false when the lane cannot pay this much more gas. */
  canPay: (wei: bigint) => Promise<boolean>;
  isActive: () => boolean;
  /** Something is in flight, so new blocks must be watched. */
  onDispatch: () => void;
  /** This process's view of the lease or of the stored state is wrong: it must be read again. */
  onDoubt: (reason: string) => void;
  onUnfunded: () => void;
  /** Reports whether the lane's signer responded. */
  onSigner: (answers: boolean) => void;
  wake: Signal;
}

type Sendable = Pick<PreflightResult, "good" | "batcher">;

/** Delay before rows are retried whose agent's row was locked. */
const LOCKED_RETRY_MS = 5_000;
const UNSIGNED_RETRY_MS = 500;
const MAX_CLAIM = 500;
/** How long a batch that is not full gathers, in blocks. */
const GATHER_BLOCKS = 0.25;
/** How often the queue is read while a batch gathers: this often in its gathering time, within these bounds. */
const CLAIMS_PER_GATHERING = 4;
const LEAST_PACE_MS = 5;
const MOST_PACE_MS = 25;

export class Sender {
  readonly #deps: SenderDeps;
  readonly collector: Collector;
  readonly #paceMs: number;
  readonly #underway = new Set<BatchItem[]>();
  #nextNonce: bigint;
  #tail: Promise<void> = Promise.resolve();
  readonly #refusals = new Refusals();

  constructor(deps: SenderDeps) {
    this.#deps = deps;
    this.#nextNonce = deps.nextNonce;
    const { ctx, lease } = deps;
    const gatherMs = ctx.network.blockTimeMs * GATHER_BLOCKS;
    this.#paceMs = Math.min(Math.max(gatherMs / CLAIMS_PER_GATHERING, LEAST_PACE_MS), MOST_PACE_MS);
    this.collector = new Collector({
      gasCapPerItem: ctx.gasCapPerItem,
      gatherMs,
      claim: async (room) => {
        const records = await claim(ctx.pool, lease, room, deps.onlyBound);
        if (records.length > 0) await ctx.fault("claimed");
        return records;
      },
      inFlight: () => this.inFlight,
      ahead: () => this.#ahead,
      blockGas: () => ctx.heads.head?.gasLimit ?? 0n,
    });
  }

  get inFlight(): number {
    return this.#underway.size + this.#deps.tracker.unmined;
  }

  /** Items that are in no block yet. */
  get #ahead(): BatchItem[][] {
    const unmined = [...this.#deps.tracker.slots.values()].filter((slot) => !slot.mined);
    return [...this.#underway, ...unmined.flatMap((slot) => (slot.batch ? [slot.batch] : []))];
  }

  /** Runs until the queue is empty and all is sent, or until sending is not allowed. */
  async drain(): Promise<void> {
    const { ctx } = this.#deps;
    const { collector } = this;
    try {
      while (this.#deps.isActive() && ctx.heads.healthy && !this.isGasTooExpensive) {
        const claimed = await collector.claim(performance.now());
        for (;;) {
          const batch = collector.take(performance.now());
          if (!batch) break;
          this.#dispatch(batch);
        }
        if (collector.isEmpty && claimed === 0) return;
        await sleep(this.#paceMs);
      }
    } finally {
      await this.#release(collector.empty(), 0);
    }
  }

  /** Gas costs more than the operator's cap: nothing is sent until it is cheaper. */
  get isGasTooExpensive(): boolean {
    const { heads, feeCaps } = this.#deps.ctx;
    return (heads.head?.baseFeeWei ?? 0n) > feeCaps.maxFeeWei;
  }

  /** Waits until nothing is between claim and broadcast. */
  async settle(): Promise<void> {
    await this.#tail;
  }

  /** Simulations of several batches run concurrently; signing and nonces are sequential, in order. */
  #dispatch(items: BatchItem[]): void {
    const ahead = [...this.#underway].flat();
    const takenMs = Date.now();
    this.#underway.add(items);
    this.#deps.onDispatch();
    const preflighted = this.#preflight(items, ahead).catch(async (error: unknown) => {
      await this.#giveBack(items, error);
      return { good: [] };
    });
    this.#tail = this.#afterTail(this.#tail, items, preflighted, takenMs);
  }

  async #afterTail(
    before: Promise<void>,
    items: BatchItem[],
    preflighted: Promise<Sendable>,
    takenMs: number,
  ): Promise<void> {
    await before;
    const { good, batcher } = await preflighted;
    try {
      if (good.length > 0) await this.#submit(good, batcher, takenMs);
    } catch (error) {
      await this.#giveBack(good, error);
    } finally {
      this.#underway.delete(items);
    }
  }

  /** Returns the items that can be sent. The others are proven failed or returned to the queue. */
  async #preflight(items: BatchItem[], ahead: BatchItem[]): Promise<Sendable> {
    const { ctx, lease, tracker } = this.#deps;
    const inFlight = [...tracker.slots.values()].flatMap((slot) => slot.batch ?? []);
    const terms = {
      from: lease.address,
      fees: await this.#fees(),
      ahead: [...inFlight, ...ahead],
    };
    const { good, refused, alone, isTokenDead, batcher } = await preflight(ctx, items, terms);
    // Returned to the queue, which limits how many are sent alone.
    await this.#release(alone, 0, true);
    if (isTokenDead) {
      // Or one endpoint is wrong: the next attempt asks another.
      ctx.rpc.suspectEndpoint();
      const kept = new Set(alone);
      ctx.log.error(
        { network: ctx.network.id, asset: items[0]?.asset },
        "the token accepts transfers without effect: nothing is sent until it works again",
      );
      await this.#release(
        items.filter((item) => !kept.has(item)),
        ctx.timings.deadTokenRestMs,
      );
      return { good: [] };
    }
    void this.#prove(refused, terms).catch((error: unknown) =>
      this.#giveBack(
        refused.map(({ item }) => item),
        error,
      ),
    );
    return { good, batcher };
  }

  async #prove(refused: readonly RefusedItem[], terms: PreflightTerms): Promise<void> {
    if (refused.length === 0) return;
    const { ctx } = this.#deps;
    const items = refused.map(({ item }) => item);
    const proofs = await proveRefused(
      ctx,
      refused.map(({ item, text, hasTooManyFaults }) => ({
        record: item.record,
        text,
        hasTooManyFaults,
      })),
      this.#refusals,
      refusalsBy(ctx, items, terms),
    );
    const outcomes = proofs.flatMap(({ proof, record }) =>
      "outcome" in proof ? [explainIfGivenUp(proof.outcome, record)] : [],
    );
    await writeOutcomes(ctx, outcomes);
    for (const { proof, record } of proofs)
      if ("outcome" in proof) traceProven(record, proof.outcome);
    const delays = new Map<number, BatchItem[]>();
    for (const [index, { proof }] of proofs.entries()) {
      const item = refused[index]?.item;
      if (!item || "outcome" in proof) continue;
      delays.set(proof.retryAfterMs, [...(delays.get(proof.retryAfterMs) ?? []), item]);
    }
    for (const [delayMs, rows] of delays) await this.#release(rows, delayMs);
  }

  async #submit(items: BatchItem[], probed: Address | undefined, takenMs: number): Promise<void> {
    const { ctx, lease, signer, tracker } = this.#deps;
    if (!this.#deps.isActive()) return this.#release(items, 0);
    const { maxFeeWei, priorityFeeWei } = await this.#fees();
    if (this.isGasTooExpensive) return this.#release(items, 1_000);
    const sentBlock = (ctx.heads.head ?? (await ctx.heads.refresh())).number;
    const gasLimit = gasLimitOf(items);
    if (!(await this.#deps.canPay(gasLimit * maxFeeWei))) return this.#release(items, 1_000);
    // The batcher worked in this batch's own simulation and has not been found missing since.
    const batcher = probed === ctx.batcher.address ? probed : undefined;
    const tx = { nonce: this.#nextNonce, ...transactionOf(items, batcher), gasLimit };
    const trace = TransactionTrace.ofBatch(ctx, lease.address, items, takenMs);
    const step = <T>(name: string, work: () => Promise<T>): Promise<T> =>
      trace ? trace.within(name, work) : work();
    const terms = { maxFeeWei, priorityFeeWei, attempt: 1, purpose: "work" } as const;
    const attempt = await step("settlement.sign", () =>
      signAttempt(signer, ctx.network.chainId, tx, terms),
    );
    this.#deps.onSigner(true);
    await ctx.fault("signed");
    await step("settlement.store", () =>
      persistTransaction(ctx.pool, lease, { ...tx, attempt, items, sentBlock }),
    );
    this.#nextNonce += 1n;
    const slot = tracker.add({
      ...tx,
      attempts: [attempt],
      items,
      sentBlock,
      included: undefined,
    });
    slot.batch = items;
    slot.trace = trace;
    await ctx.fault("persisted");
    ctx.meter.batch(items.length);
    // Not awaited: the next batch is signed meanwhile, and the response proves nothing anyway.
    void this.#send(slot);
  }

  /** Never throws: whatever fails here, the bytes are stored and are followed up. */
  async #send(slot: Slot): Promise<void> {
    const { ctx, tracker } = this.#deps;
    try {
      const { trace } = slot;
      await (trace
        ? trace.within("settlement.broadcast", () => tracker.sendAndWait(slot))
        : tracker.sendAndWait(slot));
      trace?.sent();
      await ctx.fault("broadcast");
      if (slot.shown || slot.mined) return await tracker.receiveShown(slot);
      // The block may already exist (on a local chain that mines each transaction): it is read without waiting for
      // the next poll, and reading it wakes the tracker.
      if (!ctx.heads.isAnnounced) await ctx.heads.poll();
    } catch (error) {
      ctx.log.warn({ err: error, nonce: slot.nonce }, "could not track a transaction immediately");
    }
  }

  async #fees(): Promise<Fees> {
    const { heads, network, feeCaps } = this.#deps.ctx;
    const known = heads.head;
    const isFresh = known && performance.now() - known.seenAtMs < network.blockTimeMs * 2;
    const head = isFresh ? known : await heads.refresh();
    return initialFees(head.baseFeeWei, await this.#deps.priorityFeeWei(), feeCaps);
  }

  /**
   * Something failed between claim and send. The kind of error decides whether anything may have been stored.
   */
  async #giveBack(items: BatchItem[], error: unknown): Promise<void> {
    const { ctx, onDoubt } = this.#deps;
    const state = sqlState(error);
    if (state === LEASE_LOST || state === CLAIM_LOST)
      return onDoubt("the lease or a claim was lost");
    // An agent's row is locked: its payments are retried later, and the lane continues.
    if (state === LOCK_TIMEOUT) return this.#release(items, LOCKED_RETRY_MS);
    // Nothing was signed, so nothing was stored: it is retried when the KMS is available again.
    if (isKeysUnavailable(error)) {
      this.#deps.onSigner(false);
      return this.#release(items, UNSIGNED_RETRY_MS);
    }
    const { kind } = classifyChainError(error);
    if (state === undefined && (kind === "unreachable" || kind === "fee_too_low"))
      return this.#release(items, 250);
    if (state === undefined && kind === "insufficient_gas_money") {
      this.#deps.onUnfunded();
      return this.#release(items, 1_000);
    }
    ctx.log.error({ err: error }, "a batch could not be submitted");
    // The commit may have happened although its response was lost: only the database knows.
    onDoubt("the stored state is uncertain");
  }

  async #release(items: BatchItem[], delayMs: number, solo = false): Promise<void> {
    if (items.length === 0) return;
    const { ctx, lease, wake } = this.#deps;
    try {
      await unclaim(ctx.pool, lease, items, delayMs, solo);
    } catch (error) {
      // The claim ends with the lease; reading the state again frees it sooner.
      this.#deps.onDoubt(`rows could not be given back: ${String(error)}`);
    }
    if (delayMs > 0) setTimeout(() => wake.raise(), delayMs + 5).unref();
    else wake.raise();
  }
}

/** The nodes' rejections are the reason, not the token's. */
const explainIfGivenUp = (outcome: ProvenOutcome, record: SettlementRecord): ProvenOutcome =>
  outcome.status === "failed" && record.givenUp >= MAX_GIVEN_UP
    ? { ...outcome, message: "The network's nodes reject every transaction with this payment." }
    : outcome;

interface CollectorDeps {
  gasCapPerItem: bigint;
  /** How long a batch that is not full gathers. */
  gatherMs: number;
  claim(room: ClaimRoom): Promise<SettlementRecord[]>;
  /** Transactions that are in no block yet, signed or about to be. */
  inFlight: () => number;
  /** The items of those transactions, as far as this process claimed them. */
  ahead: () => readonly BatchItem[][];
  /** The gas limit of a block; 0 while it is unknown. */
  blockGas: () => bigint;
}

/** Withdrawals are the first class, and the first in every batch. */
const WITHDRAWAL_CLASS = 0;
/** The lane is idle after this many gathering times, of a quarter of a block each, without a shared batch. */
const GATHERS_AFTER = 8;

const clamp = (wanted: number, atMost: number): number => Math.max(Math.min(wanted, atMost), 0);

/** Settlements that a lane has claimed and not sent yet: their order, their batch, and when it leaves. */
export class Collector {
  readonly #deps: CollectorDeps;
  #items: BatchItem[] = [];
  #batchLimit = MAX_BATCH;
  #gatheringSinceMs = 0;
  /** When the last batch with more than one item left: for some time after it there is load. */
  #sharedAtMs = Number.NEGATIVE_INFINITY;

  constructor(deps: CollectorDeps) {
    this.#deps = deps;
  }

  get isEmpty(): boolean {
    return this.#items.length === 0;
  }

  /** Claims as many settlements as there is room for; returns their number. */
  async claim(nowMs: number): Promise<number> {
    const places = MAX_IN_FLIGHT - this.#deps.inFlight();
    const solos = this.#items.filter((item) => item.solo);
    const ownSolos = solos.filter((item) => !isThirdParty(item)).length;
    const thirdPartySolos = solos.length - ownSolos + this.#thirdPartySolosAhead;
    const waiting = this.#batchable.length;
    const room = {
      batchable: clamp(places * MAX_BATCH - waiting, MAX_CLAIM),
      ownSolo: clamp(places - ownSolos, MAX_IN_FLIGHT),
      thirdPartySolo: places > 0 ? clamp(SOLO_PLACES - thirdPartySolos, places) : 0,
    };
    if (room.batchable + room.ownSolo + room.thirdPartySolo === 0) return 0;
    const records = await this.#deps.claim(room);
    if (records.length === 0) return 0;
    if (waiting === 0) this.#gatheringSinceMs = nowMs;
    this.#items.push(...records.map((record) => toBatchItem(record, this.#deps.gasCapPerItem)));
    this.#items.sort((one, other) => inQueueOrder(one.record, other.record));
    return records.length;
  }

  /** Removes and returns the next transaction's items; undefined when none may leave now. */
  take(nowMs: number): BatchItem[] | undefined {
    const solo = this.#items.find((item) => item.solo && this.#hasPlace([item]));
    if (solo) return this.#remove([solo]);
    const batch = this.#nextBatch();
    if (batch.length === 0 || !this.#hasPlace(batch)) return undefined;
    const isFull = batch.length === this.#batchLimit;
    if (!isFull && nowMs - this.#gatheringSinceMs < this.#gatherMs(batch, nowMs)) return undefined;
    this.#gatheringSinceMs = nowMs;
    if (batch.length > 1) this.#sharedAtMs = nowMs;
    return this.#remove(batch);
  }

  /**
   * A withdrawal waits for no others. Nor does a single payment on an idle lane, unless a batch was shared within the
   * last blocks, which shows that there are others.
   */
  #gatherMs([first]: readonly BatchItem[], nowMs: number): number {
    const { gatherMs, inFlight } = this.#deps;
    if (first?.record.class === WITHDRAWAL_CLASS) return 0;
    const isAlone = this.#items.length === 1 && inFlight() === 0;
    const isBusy = nowMs - this.#sharedAtMs < gatherMs * GATHERS_AFTER;
    return isAlone && !isBusy ? 0 : gatherMs;
  }

  /** Removes and returns all items, so that they can be returned to the queue. */
  empty(): BatchItem[] {
    return this.#items.splice(0);
  }

  /**
   * Nodes rejected a transaction of this many items for good: the next batches are smaller, and grow as they
   * are mined.
   */
  shrink(items: number): void {
    this.#batchLimit = Math.max(Math.floor(Math.min(items, this.#batchLimit) / 4), 1);
  }

  grow(): void {
    this.#batchLimit = Math.min(this.#batchLimit * 2, MAX_BATCH);
  }

  get #batchable(): BatchItem[] {
    return this.#items.filter((item) => !item.solo);
  }

  #nextBatch(): BatchItem[] {
    // Of two payments with the same trace on chain, it would later be unknown which one was paid: only one goes
    // into a batch.
    const traces = new Set<string>();
    const isFirst = ({ trace }: BatchItem): boolean =>
      trace === undefined || (!traces.has(trace) && traces.add(trace) !== undefined);
    return this.#batchable.filter(isFirst).slice(0, this.#batchLimit);
  }

  #remove(items: BatchItem[]): BatchItem[] {
    const leaving = new Set(items);
    this.#items = this.#items.filter((item) => !leaving.has(item));
    return items;
  }

  get #thirdPartySolosAhead(): number {
    return this.#deps.ahead().filter(([item]) => item?.solo === true && isThirdParty(item)).length;
  }

  /**
   * Third-party payments leave one place to withdrawals and agents, and never put more gas ahead of them than
   * two blocks hold. So a withdrawal or an agent's payment gets into one of the next two blocks, however many
   * third-party payments arrive.
   */
  #hasPlace(items: readonly BatchItem[]): boolean {
    const { inFlight, ahead, blockGas } = this.#deps;
    if (inFlight() >= MAX_IN_FLIGHT) return false;
    if (!items.every(isThirdParty)) return true;
    if (inFlight() >= MAX_IN_FLIGHT - RESERVED_PLACES) return false;
    if (items[0]?.solo === true && this.#thirdPartySolosAhead >= SOLO_PLACES) return false;
    const gasAhead = ahead().reduce((sum, batch) => sum + gasLimitOf(batch), 0n);
    return gasAhead === 0n || gasAhead + gasLimitOf(items) <= 2n * blockGas();
  }
}
