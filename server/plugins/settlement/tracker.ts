/**
 * Follows the transactions of one lane from signed to final: reads receipts, writes what they prove, and reopens
 * transactions whose block a reorganisation removed.
 * Transactions that are in no block yet are handled in mempool.ts.
 */
import type { Hex, LocalAccount } from "viem";
import {
  readHeader,
  readNonce,
  readReceipt,
  type RpcReceipt,
} from "../../infra/chain/contracts.ts";
import type { Head, PiggybackRead } from "../../infra/chain/heads.ts";
import type { RpcCall } from "../../infra/chain/rpc.ts";
import { alarmOf, type EngineContext } from "./context.ts";
import {
  finalizeTransaction,
  isOurTransaction,
  pendingTransactions,
  reopenTransaction,
  type FinalTransaction,
  type Lease,
  type StoredTransaction,
} from "./lane-store.ts";
import { Mempool, slotOf, type Slot } from "./mempool.ts";
import {
  attributeFailure,
  depthOf,
  gasCostOf,
  isFinalBlock,
  isInChain,
  isReceiptOf,
  measure,
  provenBy,
  takenByOther,
} from "./receipts.ts";
import { TransactionTrace } from "./transaction-trace.ts";

/** At most this many sends wait for their block at once; one of them is enough to announce the block. */
const MAX_WAITING = 4;
/** After this many late responses in a row, an endpoint is no longer used for waiting sends. */
const MAX_LATE = 3;

interface TrackerDeps {
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
    const slot = slotOf(tx, this.#deps.ctx.heads.newestPossible);
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

  async #noticeGap(next: bigint, lowest: Slot | undefined): Promise<void> {
    // A transaction of ours with this nonce is followed, and sent again when its block was removed.
    const isGap = lowest && lowest.nonce > next && !this.slots.has(next);
    if (!isGap) return void (this.#gapSinceMs = undefined);
    const now = performance.now();
    this.#gapSinceMs ??= now;
    if (now - this.#gapSinceMs < this.#deps.ctx.timings.missingForMs) return;
    this.#gapSinceMs = undefined;
    await this.closeGap(next, lowest.nonce);
  }

  /**
   * Fills the nonces from `from` up to `to`, and follows the transactions that this creates. A lagging endpoint shows
   * a gap, too, so all that respond must show it.
   */
  async closeGap(from: bigint, to: bigint): Promise<void> {
    const { ctx, lease } = this.#deps;
    const { answers, needed } = await ctx.rpc.witnesses((endpoint) =>
      readNonce(endpoint, lease.address, "latest"),
    );
    if (answers.length < needed) return;
    const first = answers.reduce((one, other) => (one > other ? one : other), from);
    if (first >= to) return ctx.rpc.suspectEndpoint();
    if ((await this.#mempool.fillGap(first, to)) === 0) return;
    for (const tx of await pendingTransactions(ctx.pool, lease))
      if (!this.slots.has(tx.nonce)) await this.send(this.add(tx));
  }

  async #check(slot: Slot, head: Head, receipt: RpcReceipt | undefined): Promise<void> {
    if (slot.finishing) return;
    slot.finishing = true;
    try {
      if (!receipt || (await this.#isRemoved(receipt, head)))
        return await this.#missing(slot, head);
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
          this.#deps.ctx.meter.landed(record.kind, Date.now() - record.createdAt.getTime());
        await this.#deps.ctx.fault("mined");
        this.#deps.onProgress();
      }
      const { inclusionDepth, confirmations } = this.#deps.ctx.network;
      const depth = depthOf(head.number, BigInt(receipt.blockNumber));
      // Where blocks can be removed, the block is compared once more before it counts as final (#followIncluded).
      if (depth >= inclusionDepth) await this.#report(slot, receipt, confirmations === 1);
    } finally {
      slot.finishing = false;
    }
  }

  /** Receipts are mostly of the newest block, with which they were compared when they were read; only an older one costs a look. */
  async #isRemoved(receipt: RpcReceipt, head: Head): Promise<boolean> {
    return !isOfHead(receipt, head) && !(await isInChain(this.#deps.ctx, receipt, head.number));
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
      const receipt = await readReceipt(ctx.rpc, attempt.hash);
      if (receipt) return receipt;
    }
    return undefined;
  }

  /**
   * Reports the result to callers when it is deep enough, and writes it once more when it is final. Both happen at
   * once where the first block is final.
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
    const write = () => finalizeTransaction(ctx.pool, lease, tx, outcomes);
    const { trace } = slot;
    const result = await (trace ? trace.within("settlement.outcome", write) : write());
    alarmOf(ctx, result);
    // Its recorded block is checked first (#followIncluded).
    if (result.included) return void (slot.included = result.included);
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
      const header = await readHeader(ctx.rpc, number).catch(() => undefined);
      const isDeep = depthOf(head.number, number) >= ctx.network.confirmations;
      if (header) this.#unseen.seen(`block ${number}`);
      else if (isDeep)
        this.#unseen.missed(`block ${number}`, { lane, nonces: slots.map(({ nonce }) => nonce) });
      const isFinal = isDeep && header && (await isFinalBlock(ctx, number, header.hash));
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
        readHeader(endpoint, number),
      );
      const others = answers.filter((header) => header && header.hash !== blockHash);
      if (others.length < needed) return;
    }
    ctx.log.error(
      { lane: lease.address, nonce: slot.nonce, block: number, blockHash },
      "a reorganisation removed a block with returned payments; sending them again",
    );
    alarmOf(ctx, await reopenTransaction(ctx.pool, lease, slot.nonce, blockHash));
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
    if (await isOurTransaction(ctx.pool, taken.txHash)) return this.#deps.onLeaseLost();
    ctx.log.error(
      { lane: lease.address, nonce: slot.nonce, by: taken.txHash, block: taken.blockNumber },
      "a foreign transaction used one of our nonces",
    );
    const { txHash: hash, blockNumber, blockHash } = taken;
    const result = await finalizeTransaction(
      ctx.pool,
      lease,
      { nonce: slot.nonce, status: "replaced", hash, blockNumber, blockHash },
      [],
    );
    alarmOf(ctx, result);
    if (result.included) return void (slot.included = result.included);
    slot.trace?.end(undefined);
    this.slots.delete(slot.nonce);
    this.#deps.onProgress();
  }
}

/** When the block is already known, the endpoint that waits for it has this long to respond. */
const GRACE_MS = 40;
/** A response that came with the newest block is used for this long. */
const FRESH_MS = 50;
/** After this many blocks without a receipt, the lane's nonce is read as well. */
const OVERDUE_BLOCKS = 1.5;

const receiptCall = (hash: Hex): RpcCall => ({
  method: "eth_getTransactionReceipt",
  params: [hash],
});

interface ReceiptReaderDeps {
  ctx: EngineContext;
  lane: string;
  slots: ReadonlyMap<bigint, Slot>;
  /** The chain expects a nonce below all of ours that are in flight. */
  isGapped: () => boolean;
  /** A receipt came with a block, or it is time to request one. */
  lookAgain: () => void;
  /** The block has passed, and the endpoint that should have returned the receipt did not. */
  onPassedOver: (slot: Slot) => void;
}

interface Reading {
  receipts: ReadonlyMap<Slot, RpcReceipt>;
  undecided: ReadonlySet<Slot>;
  /** The newest block. The receipts are in it or below it. */
  head: Head;
  /** The lane's next nonce on chain, if it was requested and returned. */
  next: bigint | undefined;
}

const isOfHead = ({ blockHash, blockNumber }: RpcReceipt, head: Head): boolean =>
  blockHash === head.hash && BigInt(blockNumber) === head.number;

/** Null: there is no receipt yet. Undefined: no response, or not a receipt of this transaction. */
function receiptFrom(
  answer: PromiseSettledResult<unknown> | undefined,
  hash: Hex,
): RpcReceipt | null | undefined {
  if (answer?.status !== "fulfilled") return undefined;
  if (answer.value === null) return null;
  return isReceiptOf(answer.value, hash) ? answer.value : undefined;
}

/**
 * Reads the receipts of the lane's transactions in as few requests as possible: together with the block when the
 * block is polled, all in one batch otherwise, and not at all where an endpoint returns the receipt as the result of
 * a send.
 */
class ReceiptReader {
  readonly #deps: ReceiptReaderDeps;
  #graceTimer: NodeJS.Timeout | undefined;
  /** Results that came with the newest block, by hash: a receipt, or null if there is none yet. */
  #early: { atMs: number; receipts: ReadonlyMap<Hex, RpcReceipt | null> } | undefined;

  constructor(deps: ReceiptReaderDeps) {
    this.#deps = deps;
  }

  /** Added to each poll for a block, so that a block and our receipts in it arrive in one response. */
  readonly piggybackRead: PiggybackRead = () => {
    const hashes = this.#unread().flatMap(({ attempts }) => attempts.at(-1)?.hash ?? []);
    return {
      calls: hashes.map(receiptCall),
      receive: (answers) => {
        const read = hashes.flatMap((hash, index) => {
          const receipt = receiptFrom(answers[index], hash);
          return receipt === undefined ? [] : [[hash, receipt] as const];
        });
        this.#early = { atMs: performance.now(), receipts: new Map(read) };
        if (read.some(([, receipt]) => receipt)) this.#deps.lookAgain();
      },
    };
  };

  close(): void {
    clearTimeout(this.#graceTimer);
  }

  /** The newest known block, refreshed when an endpoint returned a receipt of a newer one. */
  async headOfShown(): Promise<Head> {
    const shown = [...this.#deps.slots.values()].flatMap((slot) =>
      slot.shown && !slot.mined ? [slot.shown] : [],
    );
    const early = [...(this.#fresh()?.values() ?? [])].filter((receipt) => receipt !== null);
    return this.#headOver([...shown, ...early]);
  }

  #headOver(receipts: readonly RpcReceipt[]): Promise<Head> | Head {
    const { heads } = this.#deps.ctx;
    const { head } = heads;
    return head && receipts.every(({ blockNumber }) => BigInt(blockNumber) <= head.number)
      ? head
      : heads.refresh();
  }

  #fresh(): ReadonlyMap<Hex, RpcReceipt | null> | undefined {
    return this.#early && performance.now() - this.#early.atMs < FRESH_MS
      ? this.#early.receipts
      : undefined;
  }

  /** Transactions that are in no block yet and for which no send waits for a receipt. */
  #unread(): Slot[] {
    return [...this.#deps.slots.values()].filter(
      (slot) => !slot.mined && !slot.waiting && !slot.shown && slot.lastSentMs > 0,
    );
  }

  /**
   * Reads all receipts in one request, with the lane's next nonce when a transaction is overdue. What came with
   * the block is not requested again.
   * A receipt counts when its block is one that our endpoints have: the newest by number and hash, or an older
   * one. Everything else is `undecided`: no response yet, or an error.
   */
  async read(open: readonly Slot[], head: Head): Promise<Reading> {
    const { ctx, lane } = this.#deps;
    const now = performance.now();
    const known = this.#fresh();
    const found = new Map<Slot, RpcReceipt>();
    const undecided = new Set<Slot>();
    const requests: { slot: Slot; hash: Hex }[] = [];
    let isOverdue = false;
    for (const slot of open) {
      const { shown, attempts } = slot;
      slot.shown = undefined;
      const hashes = attempts.map(({ hash }) => hash);
      const early = hashes.flatMap((hash) => known?.get(hash) ?? [])[0];
      const receipt = shown && isOfHead(shown, head) ? shown : early;
      if (receipt) found.set(slot, receipt);
      else {
        const isLate = this.#isOverdue(slot);
        isOverdue ||= isLate;
        // Sent after this block was made: it cannot contain it, and the endpoint has no result yet.
        if (slot.waiting && !isLate && head.number <= slot.sentAtBlock) continue;
        if (slot.waiting && now - head.seenAtMs < GRACE_MS) this.#lookAfterGrace();
        else if (!hashes.every((hash) => known?.has(hash)))
          requests.push(...hashes.map((hash) => ({ slot, hash })));
      }
    }
    const nonce = { method: "eth_getTransactionCount", params: [lane, "latest"] };
    const calls = [...(isOverdue ? [nonce] : []), ...requests.map(({ hash }) => receiptCall(hash))];
    const answers = calls.length === 0 ? [] : await ctx.rpc.callMany(calls);
    const first = isOverdue ? answers.shift() : undefined;
    for (const [index, { slot, hash }] of requests.entries()) {
      const receipt = receiptFrom(answers[index], hash);
      if (receipt) found.set(slot, receipt);
      else if (receipt === undefined) undecided.add(slot);
      else if (slot.waiting && head.number > slot.sentAtBlock) this.#deps.onPassedOver(slot);
    }
    const newest = await this.#headOver([...found.values()]);
    const receipts = new Map<Slot, RpcReceipt>();
    for (const [slot, receipt] of found)
      if (BigInt(receipt.blockNumber) < newest.number || isOfHead(receipt, newest))
        receipts.set(slot, receipt);
      else undecided.add(slot);
    const isCounted = first?.status === "fulfilled";
    return {
      receipts,
      undecided,
      head: newest,
      next: isCounted ? BigInt(first.value as Hex) : undefined,
    };
  }

  /** It should be in a block by now, or only the lane's nonce can show what happened to it. */
  #isOverdue(slot: Slot): boolean {
    return (
      slot.mined ||
      slot.underpriced ||
      slot.refusals !== undefined ||
      slot.missingSinceMs !== undefined ||
      this.#deps.isGapped() ||
      slot.attempts.length > 1 ||
      performance.now() - slot.lastSentMs > this.#deps.ctx.network.blockTimeMs * OVERDUE_BLOCKS
    );
  }

  #lookAfterGrace(): void {
    clearTimeout(this.#graceTimer);
    this.#graceTimer = setTimeout(() => this.#deps.lookAgain(), GRACE_MS).unref();
  }
}

const ALARM_AGAIN_MS = 600_000;

/**
 * Raises an alarm when payments wait too long for chain data that no node returns. The payments keep waiting,
 * because missing data proves nothing.
 */
class UnseenBlocks {
  readonly #ctx: Pick<EngineContext, "log" | "rpc" | "meter" | "timings">;
  readonly #alarmAtMs = new Map<string, number>();

  constructor(ctx: Pick<EngineContext, "log" | "rpc" | "meter" | "timings">) {
    this.#ctx = ctx;
  }

  seen(what: string): void {
    this.#alarmAtMs.delete(what);
  }

  missed(what: string, fields: object): void {
    const now = performance.now();
    const alarmAtMs = this.#alarmAtMs.get(what) ?? now + this.#ctx.timings.unseenForMs;
    this.#alarmAtMs.set(what, now < alarmAtMs ? alarmAtMs : now + ALARM_AGAIN_MS);
    if (now < alarmAtMs) return;
    this.#ctx.meter.unseen();
    this.#ctx.log.error(
      { alarm: "chain_unseen", what, ...fields },
      "payments wait for chain data that no node returns",
    );
    this.#ctx.rpc.suspectEndpoint();
  }
}
