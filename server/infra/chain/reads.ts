/** Chain reads shared by concurrent callers: balances, authorization states, heads. */
import type { Address } from "viem";
import { classifyChainError } from "./errors.ts";
import type { AuthorizationRef } from "../../core/authorization.ts";
import type { ChainRpc } from "./rpc.ts";
import { readAuthorizationStates, readBalances } from "./contracts.ts";
import { HeadWatcher, type Head } from "./heads.ts";
import fp from "fastify-plugin";
import { ApiError } from "../../errors.ts";

interface Balances {
  /** The block of all these balances. */
  blockNumber: bigint;
  timestampSeconds: bigint;
  /** By lower-case address. */
  balances: Map<string, bigint>;
}

const MAX_BALANCES = 400;

/**
 * Coalesces the chain reads of many callers. While one multicall is in flight, new reads are collected for the next:
 * the busier the service, the more reads share one request, and a single read never waits.
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
        // Reads a new head, so that money that has just arrived can be spent.
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

  /** The newest known block, while the chain answers. */
  async knownHead(): Promise<Head> {
    const { head, healthy } = this.heads;
    return head && healthy ? head : this.heads.refresh();
  }

  async head(): Promise<Head> {
    const { head } = this.heads;
    return head && performance.now() - head.seenAtMs < 1_000 ? head : this.heads.refresh();
  }
}

declare module "fastify" {
  interface FastifyInstance {
    /** USDC balances and heads, shared by all concurrent callers. */
    chainReads: ChainReads;
  }
}

class ChainReads {
  readonly #chains: ReadonlyMap<number, CoalescedReads>;

  constructor(chains: ReadonlyMap<number, CoalescedReads>) {
    this.#chains = chains;
  }

  /** Throws `chain_unavailable` when the chain does not answer. */
  balances(chainId: number, addresses: readonly Address[]): Promise<Balances> {
    return this.#withChain(chainId, (chain) => chain.balances(addresses));
  }

  /**
   * Whether an authorization was used or canceled, as of the newest known block. A token that returns no state is not
   * one of ours and is not trusted.
   */
  isEnded(chainId: number, ref: AuthorizationRef): Promise<boolean> {
    return this.#withChain(chainId, async (chain) => {
      const { number } = await chain.head();
      const [isEnded] = await readAuthorizationStates(chain.rpc, [ref], number);
      return isEnded ?? true;
    });
  }

  headOf(chainId: number): Promise<Head> {
    return this.#withChain(chainId, (chain) => chain.head());
  }

  /** As it is known now; read only if the chain did not answer in the last seconds. */
  knownHeadOf(chainId: number): Promise<Head> {
    return this.#withChain(chainId, (chain) => chain.knownHead());
  }

  of(chainId: number): CoalescedReads {
    const chain = this.#chains.get(chainId);
    if (!chain) throw new Error(`network eip155:${chainId} is not configured`);
    return chain;
  }

  async #withChain<T>(chainId: number, read: (chain: CoalescedReads) => Promise<T>): Promise<T> {
    try {
      return await read(this.of(chainId));
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
