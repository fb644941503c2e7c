/**
 * A lane: one relayer key on one chain in this process, and its next nonce. It takes the lease when that is free,
 * resumes the transactions of earlier holders before anything new, and stops as soon as the lease is lost.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { LocalAccount } from "viem";
import { readNativeBalance, readNonce } from "../../infra/chain/contracts.ts";
import { type EngineContext, Signal } from "./context.ts";
import {
  acquireLease,
  lowerNextNonce,
  pendingTransactions,
  releaseLease,
  renewLease,
  type Lease,
} from "./lane-store.ts";
import { Sender } from "./sender.ts";
import { voidLapsedClaims } from "./store.ts";
import { Tracker } from "./tracker.ts";

const DRAIN_MS = 3_000;
const LOOK_EVERY_MS = 300;
const LOOK_AFTER_BLOCKS = 1.25;
/** Payments are refused for this long after the signer did not respond; then it is tried again. */
const SIGNER_RETRY_MS = 3_000;

/** An account that pays gas. */
export interface LaneSigner {
  account: LocalAccount;
  /** It sends nothing but what is bound to it: a channel's withdrawal, which the contract accepts from nobody else. */
  sendsOnlyBound?: true;
}

interface LaneDeps {
  ctx: EngineContext;
  address: string;
  /** Undefined for a key that left the configuration: the lane only finishes what was signed before. */
  signer: LaneSigner | undefined;
  priorityFeeWei: () => Promise<bigint>;
}

export class Lane {
  readonly address: string;
  readonly wake = new Signal();
  /** The lane cannot pay for its next transaction. */
  unfunded = false;
  balanceWei: bigint | undefined;
  readonly #deps: LaneDeps;
  #stopping = false;
  #lost = false;
  #leaseGoodUntilMs = 0;
  /** The cost of the payment that could not be made. */
  #neededWei = 1n;
  #signerUnavailableUntilMs = Number.NEGATIVE_INFINITY;
  #balanceReadMs = Number.NEGATIVE_INFINITY;
  #tracker: Tracker | undefined;
  #sender: Sender | undefined;
  #done: Promise<void> | undefined;

  constructor(deps: LaneDeps) {
    this.#deps = deps;
    this.address = deps.address.toLowerCase();
  }

  get sendsOnlyBound(): boolean {
    return this.#deps.signer?.sendsOnlyBound === true;
  }

  get held(): boolean {
    return this.#tracker !== undefined;
  }

  /** The lane's signer recently failed to respond. */
  get isSignerUnavailable(): boolean {
    return performance.now() < this.#signerUnavailableUntilMs;
  }

  get inFlight(): number {
    return this.#sender?.inFlight ?? this.#tracker?.slots.size ?? 0;
  }

  /** Resolves when the lane has ended. */
  start(): Promise<void> {
    this.#done ??= this.#run();
    return this.#done;
  }

  /** Stops claiming, gives transactions in flight a moment to be mined, and releases the lease. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.wake.raise();
    await this.#done;
  }

  async #run(): Promise<void> {
    const { ctx } = this.#deps;
    while (!this.#stopping) {
      try {
        const key = { chainId: ctx.network.chainId, address: this.address };
        const won = await acquireLease(ctx.pool, key, ctx.owner, ctx.timings.laneLeaseMs);
        if (won) {
          await this.#hold({ ...key, owner: ctx.owner, epoch: won.epoch }, won.nextNonce);
          // Without a key there were only old transactions to finish.
          if (!this.#deps.signer) return;
        }
      } catch (error) {
        ctx.log.warn({ err: error, lane: this.address }, "lane interrupted; retrying");
      }
      if (!this.#stopping) await this.wake.wait(ctx.timings.laneRetryMs);
      // New work also wakes the process that holds the lease, so pause before trying to acquire it again.
      if (!this.#stopping) await sleep(ctx.timings.laneRetryMs / 4);
    }
  }

  async #hold(lease: Lease, storedNonce: bigint): Promise<void> {
    const { ctx } = this.#deps;
    const signer = this.#deps.signer?.account;
    this.#lost = false;
    this.#leaseGoodUntilMs = performance.now() + ctx.timings.laneLeaseMs;
    const renewal = setInterval(() => void this.#renew(lease), ctx.timings.laneRenewMs);
    const tracker = new Tracker({
      ctx,
      lease,
      signer,
      priorityFeeWei: this.#deps.priorityFeeWei,
      onProgress: () => {
        this.#sender?.collector.grow();
        this.wake.raise();
      },
      onRefused: (items) => this.#sender?.collector.shrink(items),
      onUnfunded: () => this.#noteUnfunded(true),
      onLeaseLost: () => this.#doubt("the lease was lost"),
    });
    const look = (): void => {
      tracker.reconcile().catch((error: unknown) => {
        ctx.log.warn(
          { err: error, lane: this.address },
          "could not follow transactions; trying again",
        );
      });
    };
    // With each block, and also when no block arrives.
    const looking = setInterval(() => {
      const patienceMs = Math.max(ctx.network.blockTimeMs * LOOK_AFTER_BLOCKS, LOOK_EVERY_MS);
      if (tracker.slots.size > 0 && tracker.idleMs >= patienceMs) look();
    }, LOOK_EVERY_MS);
    const stopHeads = ctx.heads.onHead(look);
    const stopPiggybackRead = ctx.heads.addPiggybackRead(tracker.piggybackRead);
    try {
      const nextNonce = await this.#resume(lease, tracker, storedNonce);
      this.#tracker = tracker;
      if (signer) await this.#work(lease, signer, tracker, nextNonce);
      else
        while (this.#active && tracker.slots.size > 0) await this.wake.wait(ctx.timings.laneLookMs);
      await this.#quiesce(tracker);
    } finally {
      clearInterval(renewal);
      clearInterval(looking);
      stopHeads();
      stopPiggybackRead();
      tracker.close();
      await this.#sender?.settle();
      this.#tracker = undefined;
      this.#sender = undefined;
      await releaseLease(ctx.pool, lease).catch(() => undefined);
    }
  }

  get #active(): boolean {
    return !this.#stopping && !this.#lost && performance.now() < this.#leaseGoodUntilMs;
  }

  async #work(
    lease: Lease,
    signer: LocalAccount,
    tracker: Tracker,
    nextNonce: bigint,
  ): Promise<void> {
    const { ctx } = this.#deps;
    const sender = new Sender({
      ctx,
      lease,
      signer,
      onlyBound: this.sendsOnlyBound,
      tracker,
      nextNonce,
      priorityFeeWei: this.#deps.priorityFeeWei,
      canPay: (wei) => this.#canPay(wei, tracker),
      isActive: () => this.#active,
      onDoubt: (reason) => this.#doubt(reason),
      onDispatch: () => (release ??= ctx.heads.want()),
      onUnfunded: () => this.#noteUnfunded(true),
      onSigner: (answers) => this.#noteSigner(answers),
      wake: this.wake,
    });
    this.#sender = sender;
    let release: (() => void) | undefined;
    try {
      while (this.#active) {
        // New blocks are needed as long as anything is followed, also to see it become final.
        if (sender.inFlight > 0 || tracker.slots.size > 0) release ??= ctx.heads.want();
        else {
          release?.();
          release = undefined;
        }
        if (sender.isGasTooExpensive) await ctx.heads.refresh().catch(() => undefined);
        if (!ctx.heads.healthy) await ctx.heads.refresh().catch(() => undefined);
        if (
          ctx.heads.healthy &&
          !(this.unfunded && !(await this.#canPay(this.#neededWei, tracker)))
        )
          await sender.drain();
        if (this.#active) await this.wake.wait(ctx.heads.healthy ? ctx.timings.laneLookMs : 300);
      }
    } finally {
      release?.();
    }
  }

  /** Resumes everything that is not final first: sends stored bytes again and reads receipts. */
  async #resume(lease: Lease, tracker: Tracker, storedNonce: bigint): Promise<bigint> {
    const { ctx } = this.#deps;
    await voidLapsedClaims(ctx.pool, ctx.network.chainId);
    const pending = await pendingTransactions(ctx.pool, lease);
    await ctx.heads.refresh();
    const chainNonce = await readNonce(ctx.rpc, lease.address, "latest");
    for (const tx of pending) tracker.add(tx);
    if (pending.length > 0) {
      ctx.log.info({ lane: this.address, transactions: pending.length }, "resuming transactions");
      for (const slot of tracker.slots.values()) if (!slot.included) await tracker.send(slot);
      await tracker.reconcile();
    }
    return this.#closeGap(lease, tracker, chainNonce, storedNonce);
  }

  /**
   * A chain that was reset or lost blocks (a local node killed before it saved) expects a nonce that we have
   * already used.
   * Final transactions are sent to it again. If nothing is stored from its nonce on, the lane continues with
   * that nonce.
   */
  async #closeGap(lease: Lease, tracker: Tracker, chain: bigint, stored: bigint): Promise<bigint> {
    const { ctx } = this.#deps;
    if (chain >= stored) return chain;
    const pending = [...tracker.slots.keys()].filter((nonce) => nonce >= chain);
    let from = chain;
    while (pending.includes(from)) from += 1n;
    if (from === stored) return stored;
    if (await lowerNextNonce(ctx.pool, lease, chain)) {
      ctx.log.error(
        { lane: this.address, chainNonce: chain, ourNonce: stored },
        "the chain was reset: using its nonce",
      );
      return chain;
    }
    await tracker.closeGap(from, pending.find((nonce) => nonce > from) ?? stored);
    return stored;
  }

  async #renew(lease: Lease): Promise<void> {
    const { ctx } = this.#deps;
    const requestedMs = performance.now();
    try {
      if (await renewLease(ctx.pool, lease, ctx.timings.laneLeaseMs))
        this.#leaseGoodUntilMs = requestedMs + ctx.timings.laneLeaseMs;
      else this.#doubt("the lease was lost");
    } catch (error) {
      // The lease may still be valid; it expires on its own, and every write checks it.
      ctx.log.warn({ err: error, lane: this.address }, "could not renew the lease");
    }
  }

  #doubt(reason: string): void {
    if (this.#lost) return;
    this.#lost = true;
    this.#deps.ctx.log.warn({ lane: this.address, reason }, "reading the lane's state again");
    this.wake.raise();
  }

  async #canPay(wei: bigint, tracker: Tracker): Promise<boolean> {
    const balance = await this.readBalance();
    let committed = 0n;
    for (const slot of tracker.slots.values()) {
      const last = slot.attempts.at(-1);
      if (!slot.mined && last) committed += slot.gasLimit * last.maxFeeWei;
    }
    const can = balance >= committed + wei;
    this.#neededWei = can ? 1n : wei;
    this.#noteUnfunded(!can);
    return can;
  }

  async readBalance(): Promise<bigint> {
    const { ctx } = this.#deps;
    const { balanceFreshMs } = ctx.timings;
    const freshFor = this.unfunded ? balanceFreshMs / 4 : balanceFreshMs;
    const requestedMs = performance.now();
    if (this.balanceWei === undefined || requestedMs - this.#balanceReadMs > freshFor)
      this.noteBalance(await readNativeBalance(ctx.rpc, this.address), requestedMs);
    return this.balanceWei ?? 0n;
  }

  /** Responses can arrive out of order: one to an older request does not replace a newer balance. */
  noteBalance(wei: bigint, requestedMs: number): void {
    if (requestedMs < this.#balanceReadMs) return;
    this.balanceWei = wei;
    this.#balanceReadMs = requestedMs;
  }

  #noteSigner(answers: boolean): void {
    if (!answers && !this.isSignerUnavailable)
      this.#deps.ctx.log.error({ lane: this.address }, "the relayer's signer does not respond");
    this.#signerUnavailableUntilMs = answers
      ? Number.NEGATIVE_INFINITY
      : performance.now() + SIGNER_RETRY_MS;
  }

  #noteUnfunded(unfunded: boolean): void {
    if (unfunded && !this.unfunded)
      this.#deps.ctx.log.error(
        { lane: this.address },
        `the relayer ${this.address} cannot pay its gas: fund it`,
      );
    this.unfunded = unfunded;
  }

  /** On a clean stop, transactions in flight get a moment to be mined; the next holder resumes the rest. */
  async #quiesce(tracker: Tracker): Promise<void> {
    await this.#sender?.settle();
    const untilMs = performance.now() + DRAIN_MS;
    while (!this.#lost && tracker.unmined > 0 && performance.now() < untilMs) {
      await this.#deps.ctx.heads.refresh().catch(() => undefined);
      await tracker.reconcile().catch(() => undefined);
      if (tracker.unmined > 0) await sleep(50);
    }
  }
}
