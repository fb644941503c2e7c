/**
 * Follows the transactions of one lane from signed to final: sends and re-sends stored bytes, re-prices
 * what is stuck, reads receipts, and writes what they prove.
 */
import type { PrivateKeyAccount } from "viem";
import type { FinalTransaction, Lease, StoredAttempt, StoredTransaction } from "./lane-store.ts";
import { classifyChainError } from "../../infra/chain/errors.ts";
import { alarmOf, type EngineContext } from "./context.ts";
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import type { Head } from "../../infra/chain/reads.ts";
import { replacementFees } from "./batch.ts";
import { signAttempt } from "./batch.ts";
import type { BatchItem } from "./batch.ts";
import { depthOf, measure, provenBy, takenByOther, type NonceSearch } from "./receipts.ts";

export interface Slot extends StoredTransaction {
  lastSentMs: number;
  /** Head when the newest attempt was first sent: blocks since then passed it over. */
  sentAtBlock: bigint;
  underpriced: boolean;
  /** Since when its nonce counts as used although no attempt has a receipt. */
  missingSinceMs: number | undefined;
  /** How far the blocks have been searched for who took its nonce. */
  search: NonceSearch | undefined;
  finishing: boolean;
  mined: boolean;
  /** As claimed; missing for transactions taken over from an earlier holder of the lease. */
  batch: BatchItem[] | undefined;
}

/** More than the blocks until the first re-send: a dropped transaction is not a cheap one. */
const STUCK_BLOCKS = 7n;
const RESEND_AFTER_BLOCKS = 3;
const RESEND_AT_LEAST_MS = 1_500;
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
}

export class Tracker {
  readonly slots = new Map<bigint, Slot>();
  readonly #deps: TrackerDeps;
  #progressBlock = 0n;
  #running: Promise<void> | undefined;
  #again = false;

  constructor(deps: TrackerDeps) {
    this.#deps = deps;
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
      missingSinceMs: undefined,
      search: undefined,
      finishing: false,
      mined: tx.included !== undefined,
      batch: undefined,
    };
    this.slots.set(tx.nonce, slot);
    return slot;
  }

  /** Sends the newest stored bytes. Whatever the node says, only a receipt will prove anything. */
  async send(slot: Slot): Promise<void> {
    const { ctx } = this.#deps;
    const latest = slot.attempts.at(-1);
    if (!latest) return;
    slot.lastSentMs = performance.now();
    try {
      await ctx.rpc.broadcast(latest.raw);
    } catch (error) {
      const { kind, message } = classifyChainError(error);
      const about = {
        lane: this.#deps.lease.address,
        nonce: slot.nonce,
        hash: latest.hash,
        kind,
      };
      if (kind === "fee_too_low") slot.underpriced = true;
      else if (kind === "insufficient_gas_money") this.#deps.onUnfunded();
      else if (kind === "rejected" || kind === "gas_limit" || kind === "reverted")
        ctx.log.error({ ...about, reason: message }, "the node refuses a stored transaction");
      else if (kind === "unreachable")
        ctx.log.warn(about, "sent a transaction without an answer; it may have arrived");
    }
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
    const passed = slots.filter((slot) => slot.nonce < next && !slot.included);
    // A reorganisation can take a transaction out of the chain again.
    for (const slot of slots) if (slot.nonce >= next && !slot.included) slot.mined = false;
    await Promise.all([
      ...passed.map((slot) => this.#check(slot, head)),
      this.#followIncluded(head),
    ]);
    const waiting = slots.filter((slot) => slot.nonce >= next && !slot.included);
    for (const [index, slot] of waiting.entries()) await this.#nudge(slot, index === 0);
  }

  async #check(slot: Slot, head: Head): Promise<void> {
    if (slot.finishing) return;
    slot.finishing = true;
    try {
      const receipt = await this.#receiptOf(slot);
      if (!receipt) return await this.#missing(slot, head);
      slot.missingSinceMs = undefined;
      if (!slot.mined) {
        slot.mined = true;
        this.#progressBlock = head.number;
        await this.#deps.ctx.fault("mined");
        this.#deps.onProgress();
      }
      const { inclusionDepth, confirmations } = this.#deps.ctx.network;
      const depth = depthOf(head.number, BigInt(receipt.blockNumber));
      if (depth >= inclusionDepth) await this.#tell(slot, receipt, depth >= confirmations);
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

  /** Callers hear of it when it is deep enough for that; the ledger once more when it is final. Often both are one. */
  async #tell(slot: Slot, receipt: RpcReceipt, isFinal: boolean): Promise<void> {
    const { ctx, lease } = this.#deps;
    const isFirst = slot.included === undefined;
    const outcomes = provenBy(receipt, slot, isFinal);
    const place = {
      hash: receipt.transactionHash,
      blockNumber: BigInt(receipt.blockNumber),
      blockHash: receipt.blockHash,
    };
    await ctx.fault(isFirst ? "before-final-write" : "before-final");
    const tx: FinalTransaction = {
      nonce: slot.nonce,
      status: isFinal ? "mined" : "included",
      gasUsed: BigInt(receipt.gasUsed),
      ...place,
    };
    alarmOf(ctx, await ctx.lanes.finalizeTransaction(ctx.pool, lease, tx, outcomes));
    if (isFirst) measure(ctx, slot, receipt, outcomes);
    if (isFinal) this.slots.delete(slot.nonce);
    else {
      slot.included = place;
      slot.batch = undefined;
      await ctx.fault("told");
    }
    this.#deps.onProgress();
  }

  /**
   * Told, and not final yet: does the chain still have its block? One header for all that are in it. A block
   * that is missing is a node that lags, or a chain that shrank: known when it has grown again. Another
   * block in its place is a reorganisation.
   */
  async #followIncluded(head: Head): Promise<void> {
    const { ctx } = this.#deps;
    const byBlock = new Map<bigint, Slot[]>();
    for (const slot of this.slots.values())
      if (slot.included && !slot.finishing) {
        const { blockNumber } = slot.included;
        byBlock.set(blockNumber, [...(byBlock.get(blockNumber) ?? []), slot]);
      }
    for (const [number, slots] of byBlock) {
      const header = await ctx.reads.readHeader(ctx.rpc, number);
      const isFinal = depthOf(head.number, number) >= ctx.network.confirmations;
      for (const slot of slots) {
        const blockHash = slot.included?.blockHash;
        if (!header || slot.finishing || blockHash === undefined) continue;
        slot.finishing = true;
        try {
          if (header.hash !== blockHash) await this.#reopen(slot, number, blockHash);
          else if (isFinal) {
            const receipt = await this.#receiptOf(slot);
            if (receipt?.blockHash === blockHash) await this.#tell(slot, receipt, true);
          }
        } finally {
          slot.finishing = false;
        }
      }
    }
  }

  /** Taken back: it may be mined again, and is sent again from its stored bytes. What was told is corrected. */
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
      "a reorganisation took back a block with payments that were told; sending them again",
    );
    alarmOf(ctx, await ctx.lanes.reopenTransaction(ctx.pool, lease, slot.nonce, blockHash));
    slot.included = undefined;
    slot.mined = false;
    await this.send(slot);
    this.#deps.onProgress();
  }

  /**
   * The nonce is used and no attempt of ours has a receipt: a lagging node, or a transaction that is not
   * ours took the nonce. It counts as replaced only when a final block is found that holds the other one;
   * what ours carried then goes back to the queue, where a used authorization would be noticed before sending.
   */
  async #missing(slot: Slot, head: Head): Promise<void> {
    const { ctx, lease } = this.#deps;
    const now = performance.now();
    slot.missingSinceMs ??= now;
    if (now - slot.missingSinceMs < MISSING_FOR_MS) return;
    const taken = await takenByOther(ctx, lease.address, slot, head.number);
    if (!taken) return;
    if (taken === "nowhere") {
      // Another endpoint may have the receipt.
      slot.missingSinceMs = undefined;
      return ctx.rpc.doubt();
    }
    if (await ctx.transactions.isOurTransaction(ctx.pool, taken.txHash))
      return this.#deps.onLeaseLost();
    ctx.log.error(
      { lane: lease.address, nonce: slot.nonce, by: taken.txHash, block: taken.blockNumber },
      "a foreign transaction took a nonce of ours",
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
    this.slots.delete(slot.nonce);
    this.#deps.onProgress();
  }

  /** Unmined: re-send after a while (it may have been dropped), re-price when blocks pass it over. */
  async #nudge(slot: Slot, isNext: boolean): Promise<void> {
    const { ctx } = this.#deps;
    const head = ctx.heads.head;
    const last = slot.attempts.at(-1);
    if (!head || !last || slot.lastSentMs === 0) return;
    const since = slot.sentAtBlock > this.#progressBlock ? slot.sentAtBlock : this.#progressBlock;
    const passedOver = head.number - since;
    const tooCheap = slot.underpriced || head.baseFeeWei > last.maxFeeWei;
    if (slot.underpriced || (isNext && passedOver >= (tooCheap ? 1n : STUCK_BLOCKS)))
      if (await this.#reprice(slot)) return;
    const resendAfterMs = Math.max(
      ctx.network.blockTimeMs * RESEND_AFTER_BLOCKS,
      RESEND_AT_LEAST_MS,
    );
    if (performance.now() - slot.lastSentMs < resendAfterMs) return;
    ctx.meter.resent();
    await this.send(slot);
  }

  /** The same nonce and calldata at a higher fee: whichever attempt is mined, the effect is the same. */
  async #reprice(slot: Slot): Promise<boolean> {
    const { ctx, lease, signer } = this.#deps;
    const [first] = slot.attempts;
    const last = slot.attempts.at(-1);
    if (!signer || !first || !last) return false;
    const head = await ctx.heads.refresh();
    const fees = replacementFees({
      first,
      last,
      baseFeeWei: head.baseFeeWei,
      priorityFeeWei: await this.#deps.priorityFeeWei(),
    });
    if (!fees) return false;
    const attempt: StoredAttempt = await signAttempt(signer, ctx.network.chainId, slot, {
      ...fees,
      attempt: last.attempt + 1,
    });
    if (!(await ctx.lanes.persistAttempt(ctx.pool, lease, slot.nonce, attempt))) {
      this.#deps.onLeaseLost();
      return false;
    }
    slot.attempts.push(attempt);
    slot.underpriced = false;
    slot.sentAtBlock = head.number;
    ctx.meter.repriced();
    ctx.log.info(
      { nonce: slot.nonce, hash: attempt.hash, attempt: attempt.attempt },
      "re-priced a stuck transaction",
    );
    await this.send(slot);
    return true;
  }
}
