/** What the chain is asked by many at once: balances, authorization states, heads. */
import type { Address } from "viem";
import { classifyChainError } from "./errors.ts";
import type { AuthorizationRef } from "../../core/authorization.ts";
import type { ChainRpc } from "./rpc.ts";
import { readAuthorizationStates, readBalances } from "./contracts.ts";
import { HeadWatcher, type Head } from "./heads.ts";
import fp from "fastify-plugin";
import { ApiError } from "../../errors.ts";

interface Balances {
  /** The block all these balances belong to. */
  blockNumber: bigint;
  timestampSeconds: bigint;
  /** By address in lower case. */
  balances: Map<string, bigint>;
}

const MAX_BALANCES = 400;

/**
 * Chain reads of many callers at once. While one multicall is under way, new questions gather for the
 * next: the busier the service, the more questions share one request, and a lone one never waits.
 */
class CoalescedReads {
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
        const { number, timestampSeconds } = await this.heads.refresh();
        const balances = await readBalances(this.rpc, this.#asset, list, number);
        return {
          blockNumber: number,
          timestampSeconds,
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

declare module "fastify" {
  interface FastifyInstance {
    /** USDC balances and heads, shared by everybody who asks at the same moment. */
    chainReads: ChainReads;
  }
}

export class ChainReads {
  readonly #chains: ReadonlyMap<number, CoalescedReads>;

  constructor(chains: ReadonlyMap<number, CoalescedReads>) {
    this.#chains = chains;
  }

  /** Throws `chain_unavailable` when the chain does not answer. */
  balances(chainId: number, addresses: readonly Address[]): Promise<Balances> {
    return this.#asking(chainId, (chain) => chain.balances(addresses));
  }

  /** As of the newest block we know of. A token that does not say is not one of ours: it has no word to trust. */
  isEnded(chainId: number, ref: AuthorizationRef): Promise<boolean> {
    return this.#asking(chainId, async (chain) => {
      const { number } = await chain.head();
      const [isEnded] = await readAuthorizationStates(chain.rpc, [ref], number);
      return isEnded ?? true;
    });
  }

  headOf(chainId: number): Promise<Head> {
    return this.#asking(chainId, (chain) => chain.head());
  }

  of(chainId: number): CoalescedReads {
    const chain = this.#chains.get(chainId);
    if (!chain) throw new Error(`network eip155:${chainId} is not configured`);
    return chain;
  }

  async #asking<T>(chainId: number, ask: (chain: CoalescedReads) => Promise<T>): Promise<T> {
    try {
      return await ask(this.of(chainId));
    } catch (error) {
      if (classifyChainError(error).kind === "unreachable")
        throw new ApiError("chain_unavailable", { cause: error });
      throw error;
    }
  }
}

export default fp(
  async (app) => {
    const chains = new Map<number, CoalescedReads>();
    for (const { network, rpc } of app.chains.all) {
      const heads = new HeadWatcher(rpc, network.blockTimeMs, network.wsUrls, app.config.timings);
      chains.set(network.chainId, new CoalescedReads({ rpc, heads, asset: network.usdc.address }));
    }
    app.decorate("chainReads", new ChainReads(chains));
    app.addHook("onClose", async () => {
      for (const { heads } of chains.values()) heads.close();
    });
  },
  { name: "chain-reads" },
);
