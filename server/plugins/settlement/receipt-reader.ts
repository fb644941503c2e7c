/**
 * Reads the receipts of one lane's transactions in as few requests as possible: together with the block when
 * the block is polled, all in one batch otherwise, and not at all where an endpoint returns the receipt as the
 * result of a send.
 */
import type { Hex } from "viem";
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import type { Head, PiggybackRead } from "../../infra/chain/heads.ts";
import type { RpcCall } from "../../infra/chain/rpc.ts";
import type { EngineContext } from "./context.ts";
import { isReceiptOf } from "./receipts.ts";
import type { Slot } from "./slot.ts";

/** When the block is already known, the endpoint that waits for it has this long to respond. */
const GRACE_MS = 40;
/** A response that came with the newest block is used for this long. */
const FRESH_MS = 50;
/** After this many blocks without a receipt, the lane's nonce is read as well. */
const OVERDUE_BLOCKS = 1.5;

const receiptQuestion = (hash: Hex): RpcCall => ({
  method: "eth_getTransactionReceipt",
  params: [hash],
});

export interface ReceiptReaderDeps {
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

export interface Reading {
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

export class ReceiptReader {
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
      questions: hashes.map(receiptQuestion),
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
    const questions = [
      ...(isOverdue ? [nonce] : []),
      ...requests.map(({ hash }) => receiptQuestion(hash)),
    ];
    const answers = questions.length === 0 ? [] : await ctx.rpc.callMany(questions);
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
      performance.now() - slot.lastSentMs > this.#deps.ctx.heads.blockTimeMs * OVERDUE_BLOCKS
    );
  }

  #lookAfterGrace(): void {
    clearTimeout(this.#graceTimer);
    this.#graceTimer = setTimeout(() => this.#deps.lookAgain(), GRACE_MS).unref();
  }
}
