/**
 * Follows the transactions of one lane from signed to final: reads receipts, and writes what they prove.
 * What has no place in a block yet is the mempool's affair (mempool.ts).
 */
import type { Hex, PrivateKeyAccount } from "viem";
import type { Lease, StoredTransaction } from "./lane-store.ts";
import type { ProvenOutcome } from "./store.ts";
import { finalTag, type EngineContext } from "./context.ts";
import type { RpcReceipt } from "../../infra/chain/authorizations.ts";
import { schemeOf } from "../../schemes/index.ts";
import { REASON_CANCELED } from "./types.ts";
import type { BatchItem } from "./batch.ts";
import { blame } from "./blame.ts";
import { Mempool, type Refusals } from "./mempool.ts";

export interface Slot extends StoredTransaction {
  lastSentMs: number;
  /** Head when the newest attempt was first sent: blocks since then passed it over. */
  sentAtBlock: bigint;
  underpriced: boolean;
  refusals: Refusals | undefined;
  /** Since when its nonce counts as used although no attempt has a receipt. */
  missingSinceMs: number | undefined;
  finishing: boolean;
  mined: boolean;
  /** As claimed; missing for transactions taken over from an earlier holder of the lease. */
  batch: BatchItem[] | undefined;
}

const MISSING_FOR_MS = 4_000;

export interface TrackerDeps {
  ctx: EngineContext;
  lease: Lease;
  signer: PrivateKeyAccount | undefined;
  priorityFeeWei: () => Promise<bigint>;
  /** A transaction left the lane: there is room, or rows to try again. */
  onProgress: () => void;
  onUnfunded: () => void;
  onLeaseLost: () => void;
  onRefused: (items: number) => void;
}

export class Tracker {
  readonly slots = new Map<bigint, Slot>();
  readonly #deps: TrackerDeps;
  readonly #mempool: Mempool;
  #progressBlock = 0n;
  /** Since when the chain's nonce is below all of ours that are in flight. */
  #gapSinceMs: number | undefined;
  #running: Promise<void> | undefined;
  #again = false;

  constructor(deps: TrackerDeps) {
    this.#deps = deps;
    this.#mempool = new Mempool(deps);
  }

  /** Transactions that may still need a place in a block. */
  get unmined(): number {
    let count = 0;
    for (const slot of this.slots.values()) if (!slot.mined) count += 1;
    return count;
  }

  add(tx: StoredTransaction): Slot {
    const slot: Slot = {
      ...tx,
      lastSentMs: 0,
      sentAtBlock: this.#deps.ctx.heads.head?.number ?? 0n,
      underpriced: false,
      refusals: undefined,
      missingSinceMs: undefined,
      finishing: false,
      mined: false,
      batch: undefined,
    };
    this.slots.set(tx.nonce, slot);
    return slot;
  }

  /** Sends the newest stored bytes. Whatever the node says, only a receipt will prove anything. */
  send(slot: Slot): Promise<void> {
    return this.#mempool.send(slot);
  }

  /** Looks at everything in flight once; calls during a look make one more look follow. */
  reconcile(): Promise<void> {
    this.#again = true;
    this.#running ??= this.#loop().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #loop(): Promise<void> {
    while (this.#again) {
      this.#again = false;
      if (this.slots.size > 0) await this.#look();
    }
  }

  async #look(): Promise<void> {
    const { ctx, lease } = this.#deps;
    const head = ctx.heads.head ?? (await ctx.heads.refresh());
    const next = await ctx.reads.readNonce(ctx.rpc, lease.address, "latest");
    const slots = [...this.slots.values()].sort((one, other) => Number(one.nonce - other.nonce));
    const passed = slots.filter((slot) => slot.nonce < next);
    // A reorganisation can take a transaction out of the chain again.
    for (const slot of slots) if (slot.nonce >= next) slot.mined = false;
    await Promise.all(passed.map((slot) => this.#check(slot, head.number)));
    const waiting = slots.filter((slot) => slot.nonce >= next);
    await this.#noticeGap(next, waiting[0]);
    for (const [index, slot] of waiting.entries())
      await this.#mempool.nudge(slot, index === 0, this.#progressBlock);
  }

  /** A lagging node shows one for a moment; filling what is no gap would be refused as used. */
  async #noticeGap(next: bigint, lowest: Slot | undefined): Promise<void> {
    if (!lowest || lowest.nonce <= next) return void (this.#gapSinceMs = undefined);
    const now = performance.now();
    this.#gapSinceMs ??= now;
    if (now - this.#gapSinceMs < MISSING_FOR_MS) return;
    this.#gapSinceMs = undefined;
    await this.closeGap(next, lowest.nonce);
  }

  /** Fills the nonces from `from` up to `to` and follows what that takes. */
  async closeGap(from: bigint, to: bigint): Promise<void> {
    const { ctx, lease } = this.#deps;
    if ((await this.#mempool.fillGap(from, to)) === 0) return;
    for (const tx of await ctx.transactions.pendingTransactions(ctx.pool, lease))
      if (!this.slots.has(tx.nonce)) await this.send(this.add(tx));
  }

  async #check(slot: Slot, headNumber: bigint): Promise<void> {
    if (slot.finishing) return;
    slot.finishing = true;
    try {
      const receipt = await this.#receiptOf(slot);
      if (!receipt) return await this.#missing(slot);
      slot.missingSinceMs = undefined;
      if (!slot.mined) {
        slot.mined = true;
        this.#progressBlock = headNumber;
        for (const { record } of slot.batch ?? [])
          this.#deps.ctx.meter.landed(record.kind, Date.now() - record.created_at.getTime());
        await this.#deps.ctx.fault("mined");
        this.#deps.onProgress();
      }
      const depth = headNumber - BigInt(receipt.blockNumber) + 1n;
      // With one confirmation the receipt itself is the proof, whichever head we saw last.
      if (
        this.#deps.ctx.network.confirmations > 1 &&
        depth < BigInt(this.#deps.ctx.network.confirmations)
      )
        return;
      await this.#finish(slot, receipt);
    } finally {
      slot.finishing = false;
    }
  }

  async #receiptOf(slot: Slot): Promise<RpcReceipt | undefined> {
    const { ctx } = this.#deps;
    for (const attempt of slot.attempts.toReversed()) {
      const receipt = await ctx.reads.readReceipt(ctx.rpc, attempt.hash);
      if (receipt) return receipt;
    }
    return undefined;
  }

  async #finish(slot: Slot, receipt: RpcReceipt): Promise<void> {
    const { ctx, lease } = this.#deps;
    const outcomes = provenBy(receipt, slot);
    const isVoid = slot.attempts.some(
      ({ hash, purpose }) => hash === receipt.transactionHash && purpose === "void",
    );
    await ctx.fault("before-final-write");
    await ctx.lanes.finalizeTransaction(
      ctx.pool,
      lease,
      {
        nonce: slot.nonce,
        status: isVoid ? "given_up" : "mined",
        hash: receipt.transactionHash,
        blockNumber: BigInt(receipt.blockNumber),
        blockHash: receipt.blockHash,
        gasUsed: BigInt(receipt.gasUsed),
        ...(!isVoid && (await blame(ctx, slot, receipt, outcomes))),
      },
      outcomes,
    );
    this.slots.delete(slot.nonce);
    ctx.meter.settled(outcomes.length, BigInt(receipt.gasUsed));
    for (const item of slot.batch ?? [])
      ctx.meter.took(Date.now() - item.record.created_at.getTime());
    for (const status of ["settled", "failed"] as const)
      ctx.meter.finished(status, outcomes.filter((outcome) => outcome.status === status).length);
    if (outcomes.length < slot.items.length)
      ctx.log.warn(
        { hash: receipt.transactionHash, carried: slot.items.length, proven: outcomes.length },
        "some authorizations had no effect in a mined transaction; they are tried again",
      );
    this.#deps.onProgress();
  }

  /**
   * The nonce is used and no attempt of ours has a receipt: a lagging node, or a transaction that is not
   * ours took the nonce. It counts as replaced only when the nonce is used in a final block and stays so;
   * what it carried then goes back to the queue, where a used authorization would be noticed before sending.
   */
  async #missing(slot: Slot): Promise<void> {
    const { ctx, lease } = this.#deps;
    const now = performance.now();
    slot.missingSinceMs ??= now;
    if (now - slot.missingSinceMs < MISSING_FOR_MS) return;
    const final = await ctx.reads.readNonce(ctx.rpc, lease.address, finalTag(ctx));
    if (final <= slot.nonce || (await this.#receiptOf(slot))) return;
    ctx.log.error(
      { lane: lease.address, nonce: slot.nonce },
      "a foreign transaction took a nonce of ours",
    );
    await ctx.lanes.finalizeTransaction(
      ctx.pool,
      lease,
      { nonce: slot.nonce, status: "replaced" },
      [],
    );
    this.slots.delete(slot.nonce);
    this.#deps.onProgress();
  }
}

/** What one receipt proves of everything its transaction carried. */
export function provenBy(receipt: RpcReceipt, slot: StoredTransaction): ProvenOutcome[] {
  const outcomes: ProvenOutcome[] = [];
  const hash: Hex = receipt.transactionHash;
  const block = BigInt(receipt.blockNumber).toString();
  for (const item of slot.items) {
    const { from, asset, nonce } = item;
    const fate = schemeOf(item).fateIn(receipt.logs, item);
    if (fate === "paid") outcomes.push({ from, asset, nonce, status: "settled", hash, block });
    else if (fate === "canceled")
      outcomes.push({
        from,
        asset,
        nonce,
        status: "failed",
        hash,
        block,
        reason: REASON_CANCELED,
        message: "The authorization was canceled on chain.",
      });
  }
  return outcomes;
}
