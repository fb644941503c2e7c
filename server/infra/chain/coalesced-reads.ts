/**
 * Gathers what is asked at the same time into one call. Idle, an item leaves at once: nothing waits for
 * company. Under load, what arrives while calls are under way leaves together with the next one.
 */
import type { Address } from "viem";
import { readBalances } from "./authorizations.ts";
import type { Head, HeadWatcher } from "./heads.ts";
import type { ChainRpc } from "./rpc.ts";

export interface CoalescerOptions {
  maxBatch: number;
  /** Calls under way before newcomers gather. */
  maxInFlight: number;
}

interface Waiting<Item, Result> {
  item: Item;
  resolve: (result: Result) => void;
  reject: (error: unknown) => void;
}

export class Coalescer<Item, Result> {
  readonly #send: (items: Item[]) => Promise<Result[]>;
  readonly #options: CoalescerOptions;
  #waiting: Waiting<Item, Result>[] = [];
  #inFlight = 0;
  #isScheduled = false;

  /** `send` answers one result per item, in order. */
  constructor(send: (items: Item[]) => Promise<Result[]>, options: CoalescerOptions) {
    this.#send = send;
    this.#options = options;
  }

  ask(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#schedule();
    });
  }

  /** After the events of this turn, so that requests read from sockets together travel together. */
  #schedule(): void {
    if (this.#isScheduled || this.#inFlight >= this.#options.maxInFlight) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      void this.#flush();
    });
  }

  async #flush(): Promise<void> {
    const batch = this.#waiting.splice(0, this.#options.maxBatch);
    if (batch.length === 0) return;
    this.#inFlight += 1;
    if (this.#waiting.length > 0) this.#schedule();
    try {
      const results = await this.#send(batch.map(({ item }) => item));
      for (const [index, { resolve }] of batch.entries()) resolve(results[index] as Result);
    } catch (error) {
      for (const { reject } of batch) reject(error);
    } finally {
      this.#inFlight -= 1;
      if (this.#waiting.length > 0) this.#schedule();
    }
  }
}

/**
 * Chain reads of many callers at once. While one multicall is under way, new questions gather for the
 * next: the busier the service, the more questions share one request, and a lone one never waits.
 */

export interface Balances {
  /** The block all these balances belong to. */
  blockNumber: bigint;
  /** By address in lower case. */
  balances: Map<string, bigint>;
}

const MAX_BALANCES = 400;

export class CoalescedReads {
  readonly rpc: ChainRpc;
  readonly heads: HeadWatcher;
  readonly #asset: string;
  #balancesNext: { accounts: Set<string>; answer: Promise<Balances> } | undefined;
  #balancesBusy: Promise<unknown> = Promise.resolve();

  constructor(options: { rpc: ChainRpc; heads: HeadWatcher; asset: Address }) {
    this.rpc = options.rpc;
    this.heads = options.heads;
    this.#asset = options.asset;
  }

  balances(accounts: readonly Address[]): Promise<Balances> {
    if (this.#balancesNext && this.#balancesNext.accounts.size + accounts.length > MAX_BALANCES)
      this.#balancesNext = undefined;
    if (!this.#balancesNext) {
      const wanted = new Set<string>();
      const answer = this.#balancesBusy.then(async () => {
        if (this.#balancesNext?.accounts === wanted) this.#balancesNext = undefined;
        const list = [...wanted];
        // Of this moment: money that has just arrived is there to be spent.
        const { number } = await this.heads.refresh();
        const balances = await readBalances(this.rpc, this.#asset, list, number);
        return {
          blockNumber: number,
          balances: new Map(list.map((account, index) => [account, balances[index] ?? 0n])),
        };
      });
      this.#balancesBusy = answer.catch(() => undefined);
      this.#balancesNext = { accounts: wanted, answer };
    }
    for (const account of accounts) this.#balancesNext.accounts.add(account.toLowerCase());
    return this.#balancesNext.answer;
  }

  async head(): Promise<Head> {
    const { head } = this.heads;
    return head && performance.now() - head.seenAtMs < 1_000 ? head : this.heads.refresh();
  }
}
