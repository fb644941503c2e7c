/**
 * What the chain says of one lane's transactions, asked for in as few requests as there can be: with the block itself
 * where it is looked for, all together where not, and not at all where an endpoint answers a send with its receipt.
 */
import type { Hex } from "viem";
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import type { Head, PiggybackRead } from "../../infra/chain/heads.ts";
import type { Question } from "../../infra/chain/rpc.ts";
import type { EngineContext } from "./context.ts";
import { isReceiptOf } from "./receipts.ts";
import type { Slot } from "./slot.ts";

/** The block is there, and the endpoint that waits for it gets so long to say so. */
const GRACE_MS = 40;
/** An answer that came with the newest block is good for this long. */
const FRESH_MS = 50;
/** Without a receipt for so many blocks, a transaction's nonce is asked for as well. */
const OVERDUE_BLOCKS = 1.5;

const receiptQuestion = (hash: Hex): Question => ({
  method: "eth_getTransactionReceipt",
  params: [hash],
});

export interface ReceiptReaderDeps {
  ctx: EngineContext;
  lane: string;
  slots: ReadonlyMap<bigint, Slot>;
  /** There is a nonce below all of ours that nothing uses. */
  isGapped: () => boolean;
  /** A receipt came with a block, or it is time to ask for one. */
  lookAgain: () => void;
  /** Its block passed, and the endpoint that was to answer its send did not. */
  onPassedOver: (slot: Slot) => void;
}

export interface Reading {
  receipts: ReadonlyMap<Slot, RpcReceipt>;
  undecided: ReadonlySet<Slot>;
  /** The newest block, in which or below which the receipts are. */
  head: Head;
  /** The lane's next nonce, where it was asked for and told. */
  next: bigint | undefined;
}

const isOfHead = ({ blockHash, blockNumber }: RpcReceipt, head: Head): boolean =>
  blockHash === head.hash && BigInt(blockNumber) === head.number;

/** Null where there is none yet; undefined where nothing was said, or nothing that is a receipt of this. */
function answered(
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
  /** What was answered together with the newest block, by hash: a receipt, or null where there is none yet. */
  #early: { atMs: number; receipts: ReadonlyMap<Hex, RpcReceipt | null> } | undefined;

  constructor(deps: ReceiptReaderDeps) {
    this.#deps = deps;
  }

  /** Asked with each block that is looked for, so that a block and what it holds of ours come in one answer. */
  readonly piggybackRead: PiggybackRead = () => {
    const hashes = this.#unread().flatMap(({ attempts }) => attempts.at(-1)?.hash ?? []);
    return {
      questions: hashes.map(receiptQuestion),
      receive: (answers) => {
        const read = hashes.flatMap((hash, index) => {
          const receipt = answered(answers[index], hash);
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

  /** The newest block we know of; what an endpoint showed may be in a newer one. */
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

  /** What is in no block yet, and of which no endpoint is about to tell. */
  #unread(): Slot[] {
    return [...this.#deps.slots.values()].filter(
      (slot) => !slot.mined && !slot.waiting && !slot.shown && slot.lastSentMs > 0,
    );
  }

  /**
   * All receipts in one request, and the next nonce beside them where something is overdue. What came with the block
   * is not asked again. A receipt counts where its block is one that our endpoints have: the newest by number and hash,
   * or an older one. What cannot be said of yet, or was answered with an error, is `undecided` and nothing else.
   */
  async read(open: readonly Slot[], head: Head): Promise<Reading> {
    const { ctx, lane } = this.#deps;
    const now = performance.now();
    const known = this.#fresh();
    const found = new Map<Slot, RpcReceipt>();
    const undecided = new Set<Slot>();
    const asked: { slot: Slot; hash: Hex }[] = [];
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
        // Sent after this block was made: it cannot be in it, and its endpoint has nothing to tell yet.
        if (slot.waiting && !isLate && head.number <= slot.sentAtBlock) continue;
        if (slot.waiting && now - head.seenAtMs < GRACE_MS) this.#lookAfterGrace();
        else if (!hashes.every((hash) => known?.has(hash)))
          asked.push(...hashes.map((hash) => ({ slot, hash })));
      }
    }
    const nonce = { method: "eth_getTransactionCount", params: [lane, "latest"] };
    const questions = [
      ...(isOverdue ? [nonce] : []),
      ...asked.map(({ hash }) => receiptQuestion(hash)),
    ];
    const answers = questions.length === 0 ? [] : await ctx.rpc.callMany(questions);
    const first = isOverdue ? answers.shift() : undefined;
    for (const [index, { slot, hash }] of asked.entries()) {
      const receipt = answered(answers[index], hash);
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

  /** It should have been in a block by now, or there is something about it that only its nonce tells. */
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
