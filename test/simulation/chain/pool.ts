/** The transactions that a node knows and that are in no block. One for each sender and nonce. */
import type { Hex } from "viem";
import type { Transaction } from "./transactions.ts";

/** A replacement pays at least this much more, in percent, of both fees. */
const BUMP_PERCENT = 110n;

export class Pool {
  readonly #byHash = new Map<Hex, Transaction>();
  readonly #bySender = new Map<Hex, Map<number, Transaction>>();

  get size(): number {
    return this.#byHash.size;
  }

  get all(): IterableIterator<Transaction> {
    return this.#byHash.values();
  }

  get senders(): IterableIterator<Hex> {
    return this.#bySender.keys();
  }

  get(hash: Hex): Transaction | undefined {
    return this.#byHash.get(hash);
  }

  at(sender: Hex, nonce: number): Transaction | undefined {
    return this.#bySender.get(sender)?.get(nonce);
  }

  /** Whether it takes the place of what is there with its nonce, if anything. */
  outbids(transaction: Transaction): boolean {
    const there = this.at(transaction.from, transaction.nonce);
    if (!there) return true;
    const isBumped = (offered: bigint, before: bigint): boolean =>
      offered > before && offered * 100n >= before * BUMP_PERCENT;
    return (
      isBumped(transaction.maxFeeWei, there.maxFeeWei) &&
      isBumped(transaction.priorityFeeWei, there.priorityFeeWei)
    );
  }

  /** Returns whether it was new and was taken. */
  offer(transaction: Transaction): boolean {
    if (this.#byHash.has(transaction.hash) || !this.outbids(transaction)) return false;
    const there = this.at(transaction.from, transaction.nonce);
    if (there) this.#byHash.delete(there.hash);
    this.#byHash.set(transaction.hash, transaction);
    const own = this.#bySender.get(transaction.from) ?? new Map<number, Transaction>();
    own.set(transaction.nonce, transaction);
    this.#bySender.set(transaction.from, own);
    return true;
  }

  remove(hash: Hex): void {
    const transaction = this.#byHash.get(hash);
    if (!transaction) return;
    this.#byHash.delete(hash);
    const own = this.#bySender.get(transaction.from);
    own?.delete(transaction.nonce);
    if (own?.size === 0) this.#bySender.delete(transaction.from);
  }

  clear(): void {
    this.#byHash.clear();
    this.#bySender.clear();
  }

  /** Removes what can never be mined, because the chain has used its nonce. */
  dropUsed(nextNonceOf: (sender: Hex) => number): void {
    for (const transaction of this.#byHash.values())
      if (transaction.nonce < nextNonceOf(transaction.from)) this.remove(transaction.hash);
  }

  /** The next nonce of a sender whose transactions follow on `next` without a gap. */
  nonceAfter(sender: Hex, next: number): number {
    const own = this.#bySender.get(sender);
    let nonce = next;
    while (own?.has(nonce) === true) nonce += 1;
    return nonce;
  }
}
