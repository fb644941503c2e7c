/**
 * Turns queued settlements into transactions: collect briefly, preflight by simulation, sign, store, broadcast.
 * Nothing is sent before it is stored.
 */
import type { Address, LocalAccount } from "viem";
import { CLAIM_LOST, LEASE_LOST, LOCK_TIMEOUT, sqlState } from "../../infra/db/pool.ts";
import { classifyChainError } from "../../infra/chain/errors.ts";
import { isKeysUnavailable } from "../../infra/kms.ts";
import {
  type BatchItem,
  type Fees,
  gasLimitOf,
  initialFees,
  MAX_GIVEN_UP,
  MAX_IN_FLIGHT,
  signAttempt,
  transactionOf,
} from "./batch.ts";
import { Collector, leaveBy } from "./collector.ts";
import {
  type EngineContext,
  type ExpectedPayments,
  pause,
  type Signal,
  writeOutcomes,
} from "./context.ts";
import type { Lease } from "./lane-store.ts";
import { proveRefused, refusalsBy } from "./prove.ts";
import type { ProvenOutcome, SettlementRecord } from "./store.ts";
import type { Slot } from "./slot.ts";
import type { Tracker } from "./tracker.ts";
import { traceProven, TransactionTrace } from "./transaction-trace.ts";
import {
  type RefusedItem,
  preflight,
  type PreflightResult,
  type PreflightTerms,
} from "./preflight.ts";

export interface SenderDeps {
  ctx: EngineContext;
  lease: Lease;
  signer: LocalAccount;
  tracker: Tracker;
  /** The next free nonce when the sender starts. */
  nextNonce: bigint;
  expected: Pick<ExpectedPayments, "count">;
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
const NEEDED_MS = 60;
const MOST_NEEDED_MS = 400;

export class Sender {
  readonly #deps: SenderDeps;
  readonly collector: Collector;
  readonly #underway = new Set<BatchItem[]>();
  #nextNonce: bigint;
  #tail: Promise<void> = Promise.resolve();
  /** Recent average time from leaving the collector to being sent. */
  #neededMs = NEEDED_MS;

  constructor(deps: SenderDeps) {
    this.#deps = deps;
    this.#nextNonce = deps.nextNonce;
    this.collector = new Collector({
      ctx: deps.ctx,
      lease: deps.lease,
      inFlight: () => this.inFlight,
      ahead: () => this.#ahead,
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
    const quietMs = Math.min(Math.max(ctx.heads.blockTimeMs / 40, 8), 25);
    let newestMs = 0;
    let oldestMs = 0;
    try {
      while (this.#deps.isActive() && ctx.heads.healthy && !this.isGasTooExpensive) {
        const hadBatchable = collector.hasBatchable;
        const claimed = await collector.claim();
        const now = performance.now();
        if (claimed > 0) newestMs = now;
        const sent = this.#sendReady();
        if (!hadBatchable || sent > 0) oldestMs = now;
        if (collector.isEmpty && claimed === 0) return;
        // No payment is expected, and none is in flight that it could have joined: a single payment is sent
        // immediately.
        const isLone = collector.isLone && this.inFlight === 0;
        const isQuiet = (isLone || now - newestMs >= quietMs) && this.#deps.expected.count === 0;
        // A withdrawal waits one quiet moment at most, however many payments arrive.
        const isUrgent = collector.hasWithdrawal && now - oldestMs >= quietMs;
        if (isQuiet || isUrgent || now >= leaveBy(ctx.heads, oldestMs, now, this.#neededMs)) {
          const batch = collector.takeBatch();
          if (batch) {
            this.#dispatch(batch);
            continue;
          }
        }
        // With a full lane, payments are collected at a slower pace; a single row waits one quiet moment.
        await pause(this.inFlight < MAX_IN_FLIGHT ? quietMs / 2 : quietMs);
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

  /** Sends everything that need not wait: full batches, and payments that are sent alone anyway. */
  #sendReady(): number {
    let sent = 0;
    for (;;) {
      const batch = this.collector.takeReady();
      if (!batch) return sent;
      this.#dispatch(batch);
      sent += 1;
    }
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
      ctx.lanes.persistTransaction(ctx.pool, lease, { ...tx, attempt, items, sentBlock }),
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
    const tookMs = Math.min(Date.now() - takenMs, MOST_NEEDED_MS);
    this.#neededMs = Math.max((this.#neededMs * 3 + tookMs) / 4, tookMs / 2);
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
      // Where blocks are neither announced nor regular (a local chain that mines each transaction), the block
      // may already exist: read it without waiting for the next poll.
      if (ctx.heads.isAnnounced || ctx.heads.nextDueMs(performance.now()) !== undefined) return;
      await ctx.heads.refresh();
      await tracker.reconcile();
    } catch (error) {
      ctx.log.warn({ err: error, nonce: slot.nonce }, "could not track a transaction immediately");
    }
  }

  async #fees(): Promise<Fees> {
    const { heads, feeCaps } = this.#deps.ctx;
    const known = heads.head;
    const isFresh = known && performance.now() - known.seenAtMs < heads.blockTimeMs * 2;
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
      await ctx.queue.unclaim(ctx.pool, lease, items, delayMs, solo);
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
  outcome.status === "failed" && record.given_up >= MAX_GIVEN_UP
    ? { ...outcome, message: "The network's nodes reject every transaction with this payment." }
    : outcome;
