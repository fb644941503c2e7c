/**
 * Chain reads of many callers at once. While one multicall is under way, new questions gather for the
 * next: the busier the service, the more questions share one request, and a lone one never waits.
 */
import type { Address } from "viem";
import { readAuthorizationStates, readBalances, type AuthorizationRef } from "./authorizations.ts";
import type { Head, HeadWatcher } from "./heads.ts";
import type { ChainRpc } from "./rpc.ts";

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
        const { blockNumber, balances } = await readBalances(this.rpc, this.#asset, list);
        return {
          blockNumber,
          balances: new Map(list.map((account, index) => [account, balances[index] ?? 0n])),
        };
      });
      this.#balancesBusy = answer.catch(() => undefined);
      this.#balancesNext = { accounts: wanted, answer };
    }
    for (const account of accounts) this.#balancesNext.accounts.add(account.toLowerCase());
    return this.#balancesNext.answer;
  }

  async authorizationStates(
    refs: readonly AuthorizationRef[],
  ): Promise<{ blockNumber: bigint; used: boolean[] }> {
    const states = await readAuthorizationStates(this.rpc, refs, "latest");
    return {
      blockNumber: states[0]?.blockNumber ?? 0n,
      used: states.map((state) => state.used),
    };
  }

  async head(): Promise<Head> {
    const { head } = this.heads;
    return head && performance.now() - head.seenAtMs < 1_000 ? head : this.heads.refresh();
  }
}
