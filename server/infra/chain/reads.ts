import fp from "fastify-plugin";
import type { Address } from "viem";
import { CoalescedReads, type Balances } from "./coalesced-reads.ts";
import { HeadWatcher, type Head } from "./heads.ts";
import { classifyChainError } from "./errors.ts";
import { ApiError } from "../../errors.ts";

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
      const heads = new HeadWatcher(rpc, network.blockTimeMs);
      chains.set(network.chainId, new CoalescedReads({ rpc, heads, asset: network.usdc.address }));
    }
    app.decorate("chainReads", new ChainReads(chains));
    app.addHook("onClose", async () => {
      for (const { heads } of chains.values()) heads.close();
    });
  },
  { name: "chain-reads" },
);
