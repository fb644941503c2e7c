/**
 * Follows the transactions of one lane from signed to final: reads receipts, writes what they prove, and reopens
 * transactions whose block a reorganisation removed.
 * Transactions that are in no block yet are handled in mempool.ts.
 */
import type { LocalAccount } from "viem";
import type { FinalTransaction, Lease, StoredTransaction } from "./lane-store.ts";
import { alarmOf, UnseenBlocks, type EngineContext } from "./context.ts";
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import type { Head, PiggybackRead } from "../../infra/chain/heads.ts";
import { ReceiptReader } from "./receipt-reader.ts";
import { slotOf, type Slot } from "./slot.ts";
import { attributeFailure } from "./attribute-failure.ts";
import { Mempool } from "./mempool.ts";
import type { FinalizeResult } from "./store.ts";
import { TransactionTrace } from "./transaction-trace.ts";
import { depthOf, gasCostOf, measure, provenBy, takenByOther } from "./receipts.ts";

/** At most this many sends wait for their block at once; one of them is enough to announce the block. */
const MAX_WAITING = 4;
/** After this many late responses in a row, an endpoint is no longer used for waiting sends. */
const MAX_LATE = 3;

export interface TrackerDeps {
  ctx: EngineContext;
  lease: Lease;
  signer: LocalAccount | undefined;
  priorityFeeWei: () => Promise<bigint>;
  /** A transaction left the lane: there is room for more, or there are rows to retry. */
  onProgress: () => void;
  onUnfunded: () => void;
  onLeaseLost: () => void;
  onRefused: (items: number) => void;
}

export class Tracker {
  readonly slots = new Map<bigint, Slot>();
  readonly #deps: TrackerDeps;
  readonly #mempool: Mempool;
  readonly #unseen: UnseenBlocks;
  #progressBlock = 0n;
  /** Since when the chain's nonce is below all of ours in flight. */
  #gapSinceMs: number | undefined;
  #running: Promise<void> | undefined;
  #again = false;
  #lookedMs = performance.now();
  #late = 0;
  readonly #receiptReader: ReceiptReader;

  constructor(deps: TrackerDeps) {
    this.#deps = deps;
    this.#mempool = new Mempool(deps);
    this.#unseen = new UnseenBlocks(deps.ctx);
    this.#receiptReader = new ReceiptReader({
      ctx: deps.ctx,
      lane: deps.lease.address,
      slots: this.slots,
      isGapped: () => this.#gapSinceMs !== undefined,
      lookAgain: () => void this.reconcile().catch(() => undefined),
      onPassedOver: (slot) => {
        // The endpoint may not have forwarded it: it is sent again, without waiting, and then followed like any
        // other.
        this.#endWaiting(slot);
        void this.send(slot);
      },
    });
  }

  /** Receipts to read together with each block. */
  get piggybackRead(): PiggybackRead {
    return this.#receiptReader.piggybackRead;
  }

  /** The number of transactions that are in no block yet. */
  get unmined(): number {
    let count = 0;
    for (const slot of this.slots.values()) if (!slot.mined) count += 1;
    return count;
  }

  add(tx: StoredTransaction): Slot {
    // The idle time starts now: before, there was nothing to check.
    if (this.slots.size === 0) this.#lookedMs = performance.now();
    const slot = slotOf(tx, this.#deps.ctx.heads.expectedNumber);
    this.slots.set(tx.nonce, slot);
    return slot;
  }

  /** Sends the newest stored bytes. Only a receipt proves anything; the node's response does not. */
  send(slot: Slot): Promise<void> {
    return this.#mempool.send(slot);
  }

  /**
   * The same, but where the endpoint supports it, the response arrives with the receipt and announces the
   * block.
   */
  async sendAndWait(slot: Slot): Promise<void> {
    const waiting = [...this.slots.values()].filter((each) => each.waiting).length;
    if (waiting < MAX_WAITING && this.#deps.ctx.rpc.supportsWaitingSend)
      await this.#mempool.sendAndWait(slot);
    else await this.send(slot);
  }

  /** A send returned a receipt: it is checked against the block that it names. */
  async receiveShown({ shown }: Slot): Promise<void> {
    if (!shown) return;
    this.#late = 0;
    this.#deps.ctx.heads.receive(BigInt(shown.blockNumber));
    await this.reconcile();
  }

  /** Stops following: sends that still wait for a receipt are aborted. */
  close(): void {
    this.#receiptReader.close();
    for (const { waiting } of this.slots.values()) waiting?.abort();
  }

  /** Time since the last check. */
  get idleMs(): number {
    return performance.now() - this.#lookedMs;
  }

  /** Checks everything in flight once. Calls during a check cause one more check. */
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
    this.#lookedMs = performance.now();
    const shownHead = await this.#receiptReader.headOfShown();
    const slots = [...this.slots.values()].sort((one, other) => Number(one.nonce - other.nonce));
    const open = slots.filter((slot) => !slot.included);
    const { receipts, undecided, head, next } = await this.#receiptReader.read(open, shownHead);
    const decided = open.filter((slot) => !undecided.has(slot));
    const passed = decided.filter(
      (slot) => receipts.has(slot) || (next !== undefined && slot.nonce < next),
    );
    const waiting = next === undefined ? [] : decided.filter((slot) => !passed.includes(slot));
    // A reorganisation can remove a transaction from the chain again.
    for (const slot of waiting) slot.mined = false;
    // An unreadable block (one that the node has lost, for example) must not delay transactions that still need
    // a block.
    const looks = await Promise.allSettled([
      ...passed.map((slot) => this.#check(slot, head, receipts.get(slot))),
      this.#followIncluded(head),
    ]);
    if (next !== undefined)
      await this.#noticeGap(
        next,
        open.find((slot) => slot.nonce >= next && !receipts.has(slot)),
      );
    for (const [index, slot] of waiting.entries())
      await this.#mempool.nudge(slot, index === 0, this.#progressBlock);
    const failed = looks.find((look) => look.status === "rejected");
    if (failed) throw failed.reason;
  }

  /** A lagging node can show a gap for a moment; a transaction for a nonce that is used would be rejected. */
  async #noticeGap(next: bigint, lowest: Slot | undefined): Promise<void> {
    if (!lowest || lowest.nonce <= next) return void (this.#gapSinceMs = undefined);
    const now = performance.now();
    this.#gapSinceMs ??= now;
    if (now - this.#gapSinceMs < this.#deps.ctx.timings.missingForMs) return;
    this.#gapSinceMs = undefined;
    await this.closeGap(next, lowest.nonce);
  }

  /** Fills the nonces from `from` up to `to`, and follows the transactions that this creates. */
  async closeGap(from: bigint, to: bigint): Promise<void> {
    const { ctx, lease } = this.#deps;
    if ((await this.#mempool.fillGap(from, to)) === 0) return;
    for (const tx of await ctx.transactions.pendingTransactions(ctx.pool, lease))
      if (!this.slots.has(tx.nonce)) await this.send(this.add(tx));
  }

  async #check(slot: Slot, head: Head, receipt: RpcReceipt | undefined): Promise<void> {
    if (slot.finishing) return;
    slot.finishing = true;
    try {
      if (!receipt) return await this.#missing(slot, head);
      slot.missingSinceMs = undefined;
      this.#endWaiting(slot);
      if (!slot.mined) {
        slot.mined = true;
        // For a transaction signed by an earlier lease holder, the traces come from its items.
        slot.trace ??= TransactionTrace.begin(this.#deps.ctx, this.#deps.lease.address, slot.items);
        slot.trace?.mined(receipt);
        this.#unseen.seen(`nonce ${slot.nonce}`);
        this.#progressBlock = head.number;
        for (const { record } of slot.batch ?? [])
          this.#deps.ctx.meter.landed(record.kind, Date.now() - record.created_at.getTime());
        await this.#deps.ctx.fault("mined");
        this.#deps.onProgress();
      }
      const { inclusionDepth, confirmations } = this.#deps.ctx.network;
      const depth = depthOf(head.number, BigInt(receipt.blockNumber));
      if (depth >= inclusionDepth) await this.#report(slot, receipt, depth >= confirmations);
    } finally {
      slot.finishing = false;
    }
  }

  /** The receipt was found another way before the endpoint returned it: stop waiting. */
  #endWaiting(slot: Slot): void {
    if (!slot.waiting) return;
    slot.waiting.abort();
    slot.waiting = undefined;
    this.#late += 1;
    if (this.#late >= MAX_LATE) this.#deps.ctx.rpc.suspendWaitingSends();
  }

  async #receiptOf(slot: Slot): Promise<RpcReceipt | undefined> {
    const { ctx } = this.#deps;
    for (const attempt of slot.attempts.toReversed()) {
      const receipt = await ctx.reads.readReceipt(ctx.rpc, attempt.hash);
      if (receipt) return receipt;
    }
    return undefined;
  }

  /**
   * Reports the result to callers when it is deep enough, and writes it once more when it is final. Often both
   * happen at once.
   */
  async #report(slot: Slot, receipt: RpcReceipt, isFinal: boolean): Promise<void> {
    const { ctx, lease } = this.#deps;
    const isFirst = slot.included === undefined;
    const outcomes = provenBy(receipt, slot, isFinal);
    const isVoid = slot.attempts.some(
      ({ hash, purpose }) => hash === receipt.transactionHash && purpose === "void",
    );
    const place = {
      hash: receipt.transactionHash,
      blockNumber: BigInt(receipt.blockNumber),
      blockHash: receipt.blockHash,
    };
    await ctx.fault(isFirst ? "before-final-write" : "before-final");
    const tx: FinalTransaction = {
      nonce: slot.nonce,
      status: isFinal ? (isVoid ? "given_up" : "mined") : "included",
      gasUsed: BigInt(receipt.gasUsed),
      gasCost: gasCostOf(ctx, slot, receipt),
      ...place,
      ...(isFirst && !isVoid && (await attributeFailure(ctx, slot, receipt, outcomes))),
    };
    const write = (): Promise<FinalizeResult> =>
      ctx.lanes.finalizeTransaction(ctx.pool, lease, tx, outcomes);
    const { trace } = slot;
    alarmOf(ctx, await (trace ? trace.within("settlement.told", write) : write()));
    trace?.end(receipt, outcomes);
    slot.trace = undefined;
    if (isFirst) measure(ctx, slot, receipt, outcomes);
    if (isFinal) this.slots.delete(slot.nonce);
    else {
      slot.included = place;
      slot.batch = undefined;
      await ctx.fault("reported");
    }
    this.#deps.onProgress();
  }

  /**
   * For reported transactions that are not final: checks that the chain still has their block, with one header
   * read per block.
   * A missing block is a lagging node or a chain that shrank, which is decided when the chain has grown again.
   * A different block at the same height is a reorganisation.
   */
  async #followIncluded(head: Head): Promise<void> {
    const { ctx } = this.#deps;
    const lane = this.#deps.lease.address;
    const byBlock = new Map<bigint, Slot[]>();
    for (const slot of this.slots.values())
      if (slot.included && !slot.finishing) {
        const { blockNumber } = slot.included;
        byBlock.set(blockNumber, [...(byBlock.get(blockNumber) ?? []), slot]);
      }
    for (const [number, slots] of byBlock) {
      // A node that has lost the block may return an error.
      const header = await ctx.reads.readHeader(ctx.rpc, number).catch(() => undefined);
      const isFinal = depthOf(head.number, number) >= ctx.network.confirmations;
      if (header) this.#unseen.seen(`block ${number}`);
      else if (isFinal)
        this.#unseen.missed(`block ${number}`, { lane, nonces: slots.map(({ nonce }) => nonce) });
      for (const slot of slots) {
        const blockHash = slot.included?.blockHash;
        if (!header || slot.finishing || blockHash === undefined) continue;
        slot.finishing = true;
        try {
          if (header.hash !== blockHash) await this.#reopen(slot, number, blockHash);
          else if (isFinal) {
            const receipt = await this.#receiptOf(slot);
            if (receipt?.blockHash === blockHash) await this.#report(slot, receipt, true);
          }
        } finally {
          slot.finishing = false;
        }
      }
    }
  }

  /** A reorganisation removed it: the reported result is corrected, and the stored bytes are sent again. */
  async #reopen(slot: Slot, number: bigint, blockHash: string): Promise<void> {
    const { ctx, lease } = this.#deps;
    if (ctx.rpc.endpoints > 1) {
      const { answers, needed } = await ctx.rpc.witnesses((endpoint) =>
        ctx.reads.readHeader(endpoint, number),
      );
      const others = answers.filter((header) => header && header.hash !== blockHash);
      if (others.length < needed) return;
    }
    ctx.log.error(
      { lane: lease.address, nonce: slot.nonce, block: number, blockHash },
      "a reorganisation removed a block with returned payments; sending them again",
    );
    alarmOf(ctx, await ctx.lanes.reopenTransaction(ctx.pool, lease, slot.nonce, blockHash));
    slot.included = undefined;
    slot.mined = false;
    await this.send(slot);
    this.#deps.onProgress();
  }

  /**
   * The nonce is used and none of our attempts has a receipt: a node lags, or a foreign transaction took the
   * nonce.
   * It counts as replaced only when a final block with the other transaction is found. Its items then return to
   * the queue, where an authorization that is used is noticed before sending.
   */
  async #missing(slot: Slot, head: Head): Promise<void> {
    const { ctx, lease } = this.#deps;
    const now = performance.now();
    slot.missingSinceMs ??= now;
    if (now - slot.missingSinceMs < ctx.timings.missingForMs) return;
    const taken = await takenByOther(ctx, lease.address, slot, head.number);
    if (!taken) return;
    if (taken === "nowhere") {
      // Another endpoint may have the receipt.
      slot.missingSinceMs = undefined;
      this.#unseen.missed(`nonce ${slot.nonce}`, { lane: lease.address });
      return ctx.rpc.suspectEndpoint();
    }
    if (await ctx.transactions.isOurTransaction(ctx.pool, taken.txHash))
      return this.#deps.onLeaseLost();
    ctx.log.error(
      { lane: lease.address, nonce: slot.nonce, by: taken.txHash, block: taken.blockNumber },
      "a foreign transaction used one of our nonces",
    );
    const { txHash: hash, blockNumber, blockHash } = taken;
    alarmOf(
      ctx,
      await ctx.lanes.finalizeTransaction(
        ctx.pool,
        lease,
        { nonce: slot.nonce, status: "replaced", hash, blockNumber, blockHash },
        [],
      ),
    );
    slot.trace?.end(undefined);
    this.slots.delete(slot.nonce);
    this.#deps.onProgress();
  }
}
