/**
 * One nonce of a lane from signed to final (`Slot`), and what gets it into a block: sends and re-sends stored bytes,
 * re-prices transactions that blocks pass over, gives up those that nodes reject for good, and fills nonces that the
 * chain lost.
 * No node response here proves anything: only receipts do, and tracker.ts reads those.
 */
import type { LocalAccount } from "viem";
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import {
  ChainRefusal,
  ChainUnreachable,
  classifyChainError,
  isPermanentRefusal,
} from "../../infra/chain/errors.ts";
import { initialFees, replacementFees, signAttempt, type BatchItem, type Fees } from "./batch.ts";
import type { EngineContext } from "./context.ts";
import {
  finalRawFrom,
  noteAnswer,
  pendingTransactions,
  persistAttempt,
  persistFiller,
  type Lease,
  type StoredAttempt,
  type StoredTransaction,
} from "./lane-store.ts";
import { isReceiptOf, type NonceSearch } from "./receipts.ts";
import type { TransactionTrace } from "./transaction-trace.ts";

interface MempoolDeps {
  ctx: EngineContext;
  lease: Lease;
  signer: LocalAccount | undefined;
  priorityFeeWei: () => Promise<bigint>;
  onUnfunded: () => void;
  onLeaseLost: () => void;
  /** Nodes reject a transaction of this many items for good: smaller batches may be accepted. */
  onRefused: (items: number) => void;
}

/** One nonce of a lane, from signed to final, as this process follows it. */
export interface Slot extends StoredTransaction {
  lastSentMs: number;
  /**
   * The newest block number that was possible when the newest attempt was first sent: later blocks had the
   * chance to include it.
   */
  sentAtBlock: bigint;
  underpriced: boolean;
  /** Consecutive rejections of the newest attempt for good. */
  refusals: { count: number; sinceMs: number } | undefined;
  /** Since when the chain counts the nonce as used although no attempt has a receipt. */
  missingSinceMs: number | undefined;
  /** How far the blocks have been searched for the transaction that took the nonce. */
  search: NonceSearch | undefined;
  finishing: boolean;
  mined: boolean;
  /** Set while a send waits for the endpoint to return the receipt. */
  waiting: AbortController | undefined;
  /** The receipt that this endpoint returned. It counts once its block is known. */
  shown: RpcReceipt | undefined;
  /** The claimed items. Undefined for transactions taken over from an earlier lease holder. */
  batch: BatchItem[] | undefined;
  /** Set when the request was traced. */
  trace: TransactionTrace | undefined;
}

export function slotOf(tx: StoredTransaction, sentAtBlock: bigint): Slot {
  return {
    ...tx,
    lastSentMs: 0,
    sentAtBlock,
    underpriced: false,
    refusals: undefined,
    missingSinceMs: undefined,
    search: undefined,
    finishing: false,
    mined: tx.included !== undefined,
    waiting: undefined,
    shown: undefined,
    batch: undefined,
    trace: undefined,
  };
}

/** More blocks than until the first re-send: a transaction may have been dropped rather than underpriced. */
const STUCK_BLOCKS = 7n;
const RESEND_AFTER_BLOCKS = 3;
/** A nonce is given up after this many consecutive rejections. */
const REFUSALS = 3;
const TRANSFER_GAS = 21_000n;
const MAX_FILLERS = 64;
/** Thrown when the wait for a block was stopped: nothing is known about the send. */
const GIVEN_UP = Symbol("given up");

/**
 * If one endpoint rejects and another does not respond, the other may have accepted it. Giving up is safe even
 * then, and an endpoint that is down for days must not block the lane.
 */
const refusalIn = (error: unknown): unknown =>
  error instanceof ChainUnreachable && error.cause instanceof ChainRefusal ? error.cause : error;

export class Mempool {
  readonly #deps: MempoolDeps;

  constructor(deps: MempoolDeps) {
    this.#deps = deps;
  }

  /** Sends the newest stored bytes. */
  send(slot: Slot): Promise<void> {
    return this.#send(slot, ({ raw }) => this.#deps.ctx.rpc.broadcast(raw));
  }

  /**
   * The same, but resolves only when they are in a block, where the endpoint supports that. The receipt is
   * stored in the slot. The wait ends when the block becomes known another way.
   */
  sendAndWait(slot: Slot): Promise<void> {
    const { ctx } = this.#deps;
    return this.#send(slot, async (latest) => {
      const waiting = new AbortController();
      slot.waiting = waiting;
      const stopAwaiting = ctx.heads.expectNotification();
      try {
        const shown = await ctx.rpc.broadcastAndWait(latest.raw, waiting.signal);
        if (waiting.signal.aborted) throw GIVEN_UP;
        if (isReceiptOf(shown, latest.hash)) slot.shown = shown;
      } finally {
        stopAwaiting();
        if (slot.waiting === waiting) slot.waiting = undefined;
      }
    });
  }

  async #send(slot: Slot, broadcast: (latest: StoredAttempt) => Promise<void>): Promise<void> {
    const { ctx, lease } = this.#deps;
    const latest = slot.attempts.at(-1);
    if (!latest) return;
    slot.lastSentMs = performance.now();
    try {
      await broadcast(latest);
      await this.#taken(slot, latest);
    } catch (error) {
      if (error === GIVEN_UP) return;
      const { kind, message } = classifyChainError(refusalIn(error));
      const about = { lane: lease.address, nonce: slot.nonce, hash: latest.hash, kind };
      if (kind === "already_known" || kind === "sent_not_mined") return this.#taken(slot, latest);
      // The result is unknown: nothing changes.
      if (kind === "unreachable")
        return ctx.log.warn(
          { ...about, err: error },
          "sent a transaction but got no response; it may have arrived",
        );
      if (isPermanentRefusal(kind)) {
        slot.refusals ??= { count: 0, sinceMs: slot.lastSentMs };
        slot.refusals.count += 1;
        ctx.log.error({ ...about, reason: message }, "the node rejects a stored transaction");
      } else slot.refusals = undefined;
      if (kind === "fee_too_low" || kind === "replacement_underpriced") slot.underpriced = true;
      if (kind === "insufficient_gas_money") this.#deps.onUnfunded();
      await this.#note(latest, kind);
    }
  }

  async #taken(slot: Slot, attempt: StoredAttempt): Promise<void> {
    slot.refusals = undefined;
    slot.underpriced = false;
    // If it is already in a block, the acceptance need not be stored.
    if (slot.shown || slot.mined) attempt.answer = "taken";
    else await this.#note(attempt, "taken");
  }

  async #note(attempt: StoredAttempt, answer: string): Promise<void> {
    if (attempt.answer === answer) return;
    attempt.answer = answer;
    const { ctx } = this.#deps;
    await noteAnswer(ctx.pool, attempt.hash, answer).catch((error: unknown) => {
      ctx.log.warn({ err: error, hash: attempt.hash }, "could not store a node's response");
    });
  }

  /**
   * For a transaction in no block: re-sends it after a while, because it may have been dropped. Re-prices it
   * when blocks pass over an accepted transaction, or when a node reports that it offers too little.
   * Paying more would not help a transaction that is rejected for good: its nonce is given up.
   */
  async nudge(slot: Slot, isNext: boolean, progressBlock: bigint): Promise<void> {
    const { ctx } = this.#deps;
    const head = ctx.heads.head;
    const last = slot.attempts.at(-1);
    if (!head || !last || slot.lastSentMs === 0) return;
    if (this.#isHopeless(slot, last) && (await this.#giveUp(slot))) return;
    const since = slot.sentAtBlock > progressBlock ? slot.sentAtBlock : progressBlock;
    const tooCheap = head.baseFeeWei > last.maxFeeWei;
    const isPassedOver =
      last.answer === "taken" && isNext && head.number - since >= (tooCheap ? 1n : STUCK_BLOCKS);
    // Once per block: a node that always responds like this must not drive up the price.
    const isTooLow = slot.underpriced && head.number > slot.sentAtBlock;
    if ((isPassedOver || isTooLow) && (await this.#reprice(slot, last))) return;
    const resendAfterMs = slot.refusals
      ? ctx.timings.resendAfterMs
      : Math.max(ctx.network.blockTimeMs * RESEND_AFTER_BLOCKS, ctx.timings.resendAfterMs);
    if (performance.now() - slot.lastSentMs < resendAfterMs) return;
    ctx.meter.resent();
    await this.send(slot);
  }

  #isHopeless({ refusals }: Slot, last: StoredAttempt): boolean {
    if (!refusals || refusals.count < REFUSALS) return false;
    const { refusedForMs, giveUpAgainMs } = this.#deps.ctx.timings;
    const patienceMs = last.purpose === "work" ? refusedForMs : giveUpAgainMs;
    return performance.now() - refusals.sinceMs >= patienceMs;
  }

  /** The same nonce and effect at a higher fee: whichever attempt is mined, the effect is the same. */
  async #reprice(slot: Slot, last: StoredAttempt): Promise<boolean> {
    const { ctx } = this.#deps;
    const first = slot.attempts.find(({ purpose }) => purpose === last.purpose) ?? last;
    const head = await ctx.heads.refresh();
    const fees = replacementFees({ first, last, ...(await this.#market(head.baseFeeWei)) });
    if (!fees) return false;
    const form = last.purpose === "work" ? slot : await this.#voidOf(slot.nonce);
    const attempt = await this.#another(slot, form, { ...fees, purpose: last.purpose });
    if (!attempt) return false;
    ctx.meter.repriced();
    ctx.log.info(
      { nonce: slot.nonce, hash: attempt.hash, attempt: attempt.attempt },
      "re-priced a stuck transaction",
    );
    await this.send(slot);
    return true;
  }

  /**
   * Uses up the nonce with a small transfer to the lane itself. Until an attempt is mined, any of them may be,
   * and the receipt decides; the rows return to the queue only if it was this one.
   */
  async #giveUp(slot: Slot): Promise<boolean> {
    const { ctx, lease } = this.#deps;
    const head = await ctx.heads.refresh();
    const attempt = await this.#another(
      slot,
      await this.#voidOf(slot.nonce),
      { ...(await this.#outbidding(slot, head.baseFeeWei)), purpose: "void" },
      async () => ctx.fault("void-signed"),
    );
    if (!attempt) return false;
    this.#deps.onRefused(slot.items.length);
    ctx.meter.givenUp();
    ctx.log.error(
      { lane: lease.address, nonce: slot.nonce, hash: attempt.hash, items: slot.items.length },
      "the nodes reject a transaction for good: its nonce is used for a transfer to the lane itself",
    );
    await ctx.fault("void-persisted");
    await this.send(slot);
    await ctx.fault("void-broadcast");
    return true;
  }

  /**
   * More than any attempt that a mempool may still hold for this nonce; the usual fees if that would exceed the
   * caps.
   */
  async #outbidding(slot: Slot, baseFeeWei: bigint): Promise<Fees> {
    const market = await this.#market(baseFeeWei);
    const usual = initialFees(baseFeeWei, market.priorityFeeWei, market.caps);
    const last = slot.attempts.findLast(({ answer }) => answer === "taken" || answer === undefined);
    return (last && replacementFees({ first: last, last, ...market })) ?? usual;
  }

  async #market(baseFeeWei: bigint) {
    const priorityFeeWei = await this.#deps.priorityFeeWei();
    return { baseFeeWei, priorityFeeWei, caps: this.#deps.ctx.feeCaps };
  }

  /** A transfer of nothing to the lane itself, which only uses up the nonce. */
  async #voidOf(nonce: bigint) {
    const to = this.#deps.lease.address;
    return { nonce, to, calldata: "0x", gasLimit: await this.#transferGas(to) } as const;
  }

  /** On rollups even a plain transfer may cost more than 21,000 gas, for its data on the parent chain. */
  async #transferGas(lane: string): Promise<bigint> {
    try {
      const call = { from: lane, to: lane, value: "0x0" };
      const gas = BigInt(await this.#deps.ctx.rpc.call<string>("eth_estimateGas", [call]));
      return gas > TRANSFER_GAS ? (gas * 5n) / 4n : TRANSFER_GAS;
    } catch {
      return TRANSFER_GAS;
    }
  }

  /** Signs and stores one more attempt. Undefined when there is no key or the lease is lost. */
  async #another(
    slot: Slot,
    form: Parameters<typeof signAttempt>[2],
    terms: Fees & Pick<StoredAttempt, "purpose">,
    signed: () => Promise<void> = async () => undefined,
  ): Promise<StoredAttempt | undefined> {
    const { ctx, lease, signer } = this.#deps;
    if (!signer) return undefined;
    const number = Math.max(...slot.attempts.map(({ attempt }) => attempt)) + 1;
    const attempt = await signAttempt(signer, ctx.network.chainId, form, {
      ...terms,
      attempt: number,
    });
    // At the same price these are the same bytes as before: there is nothing new to store.
    if (slot.attempts.some(({ hash }) => hash === attempt.hash)) return undefined;
    await signed();
    const stored = await persistAttempt(ctx.pool, lease, slot.nonce, attempt);
    if (stored === "taken") await this.#readAttempts(slot);
    if (stored === "lease lost") this.#deps.onLeaseLost();
    if (stored !== "stored") return undefined;
    slot.attempts.push(attempt);
    slot.underpriced = false;
    slot.refusals = undefined;
    slot.sentAtBlock = ctx.heads.newestPossible;
    return attempt;
  }

  /** The response to an earlier write was lost: the row has an attempt that this process does not know. */
  async #readAttempts(slot: Slot): Promise<void> {
    const { ctx, lease } = this.#deps;
    const stored = (await pendingTransactions(ctx.pool, lease)).find(
      ({ nonce }) => nonce === slot.nonce,
    );
    if (stored) slot.attempts.splice(0, slot.attempts.length, ...stored.attempts);
  }

  /**
   * The chain expects nonce `from`, and nothing of ours in flight has a nonce below `to`: the chain was reset
   * or lost blocks.
   * Sends the transactions again that were final there, and uses up nonces without one. Returns how many such
   * void transactions it stored, for the tracker to follow.
   */
  async fillGap(from: bigint, to: bigint): Promise<number> {
    const { ctx, lease, signer } = this.#deps;
    const lost = await finalRawFrom(ctx.pool, lease, from);
    ctx.log.error(
      { lane: lease.address, chainNonce: from, ourNonce: to, stored: lost.size },
      "the chain lost our transactions: sending final ones again",
    );
    let fillers = 0;
    for (let nonce = from; nonce < to && fillers < MAX_FILLERS; nonce += 1n) {
      const raw = lost.get(nonce);
      if (raw !== undefined && (await this.#offer(raw))) continue;
      if (!signer) break;
      const { baseFeeWei } = await ctx.heads.refresh();
      const { priorityFeeWei, caps } = await this.#market(baseFeeWei);
      const form = await this.#voidOf(nonce);
      const attempt = await signAttempt(signer, ctx.network.chainId, form, {
        ...initialFees(baseFeeWei, priorityFeeWei, caps),
        purpose: "void",
        attempt: 1,
      });
      if (!(await persistFiller(ctx.pool, lease, { ...form, attempt }))) continue;
      await this.#offer(attempt.raw);
      fillers += 1;
    }
    return fillers;
  }

  /** Sends bytes of an earlier time. False if the nodes will never accept them. */
  async #offer(raw: `0x${string}`): Promise<boolean> {
    try {
      await this.#deps.ctx.rpc.broadcast(raw);
      return true;
    } catch (error) {
      const { kind } = classifyChainError(error);
      return !isPermanentRefusal(kind) && kind !== "fee_too_low";
    }
  }
}
