/** The configured networks, with one client for each. */
import {
  createPublicClient,
  custom,
  defineChain,
  RpcRequestError,
  type Chain as ViemChain,
  type PublicClient,
  type Transport,
  type Hex,
} from "viem";
import type { NetworkConfig } from "../../config.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import { ChainRefusal, classifyChainError } from "./errors.ts";
import { ChainRpc } from "./rpc.ts";
import fp from "fastify-plugin";
import { Counter } from "prom-client";
import { checkTokenDomain } from "./contracts.ts";

/** One configured network and its client. viem uses the same transport as the settlement engine. */
export interface ChainClient {
  network: NetworkConfig;
  viemChain: ViemChain;
  rpc: ChainRpc;
  client: PublicClient<Transport, ViemChain>;
}

export function createChainClient(
  network: NetworkConfig,
  onCall?: (method: string, ok: boolean, endpoint: number) => void,
): ChainClient {
  const viemChain = defineChain({
    id: network.chainId,
    name: network.name,
    nativeCurrency: { name: network.nativeSymbol, symbol: network.nativeSymbol, decimals: 18 },
    // viem uses our transport below; it prints these URLs in its errors, so there are none.
    rpcUrls: { default: { http: [] } },
    contracts: { multicall3: { address: MULTICALL3_ADDRESS } },
  });
  const rpc = new ChainRpc({ urls: network.rpcUrls, ...(onCall && { onCall }) });
  const client = createPublicClient({
    chain: viemChain,
    transport: custom(
      { request: (request: RpcRequest) => callForViem(rpc, network, request) },
      { key: "rpc", name: "ChainRpc", retryCount: 0 },
    ),
    cacheTime: 0,
    pollingInterval: Math.max(100, Math.floor(network.blockTimeMs / 4)),
  });
  return { network, viemChain, rpc, client };
}

interface RpcRequest {
  method: string;
  params?: unknown[];
}

/**
 * Wraps a node's error in the class from which viem reads reverts. The network's id replaces the URL, which may contain
 * a key.
 */
async function callForViem(
  rpc: ChainRpc,
  network: NetworkConfig,
  { method, params = [] }: RpcRequest,
): Promise<unknown> {
  try {
    return await rpc.call(method, params);
  } catch (error) {
    if (!(error instanceof ChainRefusal)) throw error;
    const { message, code, data } = error;
    throw new RpcRequestError({
      body: { method, params },
      error: { message, code, data },
      url: network.id,
    });
  }
}

declare module "fastify" {
  interface FastifyInstance {
    /** The configured networks in order; the first is the agents' default. */
    chains: Chains;
  }
}

export class Chains {
  readonly all: readonly [ChainClient, ...ChainClient[]];
  /** Networks whose token domain has been compared with the expected one (an RPC may be down at boot). */
  readonly verified = new Set<number>();

  constructor(all: [ChainClient, ...ChainClient[]]) {
    this.all = all;
  }
  get default(): ChainClient {
    return this.all[0];
  }
  byChainId(chainId: number | bigint): ChainClient | undefined {
    return this.all.find((chain) => chain.network.chainId === Number(chainId));
  }
  /** By CAIP-2 id or x402 version 1 name. */
  byNetwork(id: string): ChainClient | undefined {
    return this.all.find(
      (chain) =>
        chain.network.id === id ||
        (chain.network.v1Name !== undefined && chain.network.v1Name === id),
    );
  }
}

export class ChainMismatch extends Error {
  override name = "ChainMismatch";
}

/** The chain of every endpoint that answers: the others are used as soon as the first one does not answer. */
async function chainIdsOf({ rpc }: ChainClient): Promise<{ position: number; serves: number }[]> {
  let endpoints = 0;
  const { answers } = await rpc.witnesses(async (endpoint) => {
    endpoints += 1;
    const position = endpoints;
    return { position, serves: Number(await endpoint.call<Hex>("eth_chainId", [])) };
  });
  return answers;
}

export default fp(
  async (app) => {
    const calls = new Counter({
      name: "purser_rpc_calls_total",
      help: "JSON-RPC calls, by method, endpoint (position in RPC_URL_<chainId>, from 1) and outcome",
      labelNames: ["network", "method", "endpoint", "answered"],
      registers: [app.metrics],
    });
    const [first, ...rest] = app.config.networks.map((network) =>
      createChainClient(network, (method, ok, endpoint) =>
        calls.inc({ network: network.id, method, endpoint, answered: ok ? "yes" : "no" }),
      ),
    );
    if (!first) throw new Error("no network is configured");
    const chains = new Chains([first, ...rest]);
    app.decorate("chains", chains);

    const check = async (chain: ChainClient): Promise<void> => {
      const { usdc, name, chainId } = chain.network;
      for (const { position, serves } of await chainIdsOf(chain))
        if (serves !== chainId)
          throw new ChainMismatch(
            `RPC endpoint ${position} in RPC_URL_${chainId} serves the chain ${serves}, and not ${name} (${chainId}). Remove or correct it.`,
          );
      const result = await checkTokenDomain(chain);
      if (!result.ok)
        throw new ChainMismatch(
          result.actual === undefined
            ? `There is no USDC token at ${usdc.address} on ${name}.`
            : `The token ${usdc.address} on ${name} has DOMAIN_SEPARATOR ${result.actual}, expected ${result.expected}. Check whether the RPC endpoint serves a different chain.`,
        );
      chains.verified.add(chainId);
    };

    // An RPC that is down at boot does not stop the service; the token is checked once it answers.
    const recheck = async (): Promise<void> => {
      for (const chain of chains.all) {
        if (chains.verified.has(chain.network.chainId)) continue;
        await check(chain).catch((error: unknown) => {
          if (error instanceof ChainMismatch)
            app.log.fatal(
              { err: error, network: chain.network.id },
              "an RPC endpoint or the token is of another chain; this network stays closed",
            );
        });
      }
      if (chains.verified.size === chains.all.length) clearInterval(timer);
    };
    const timer = setInterval(() => void recheck(), app.config.timings.chainRecheckMs).unref();
    app.addHook("onClose", async () => {
      clearInterval(timer);
      await Promise.all(chains.all.map(({ rpc }) => rpc.close()));
    });

    for (const chain of chains.all) {
      try {
        await check(chain);
      } catch (error) {
        if (error instanceof ChainMismatch) throw error;
        const { kind, message } = classifyChainError(error);
        app.log.warn(
          { network: chain.network.id, kind, reason: message },
          "the chain did not respond at start; its token is checked later",
        );
      }
    }
    if (chains.verified.size === chains.all.length) clearInterval(timer);
  },
  { name: "chain" },
);
