import {
  createPublicClient,
  custom,
  defineChain,
  RpcRequestError,
  type Chain as ViemChain,
  type PublicClient,
  type Transport,
} from "viem";
import type { NetworkConfig } from "../../config.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import { ChainRefusal } from "./errors.ts";
import { ChainRpc } from "./rpc.ts";

/** One configured network and the one way to it: viem's client speaks through the same transport as the engine. */
export interface ChainClient {
  network: NetworkConfig;
  viemChain: ViemChain;
  rpc: ChainRpc;
  client: PublicClient<Transport, ViemChain>;
}

export function createChainClient(
  network: NetworkConfig,
  onCall?: (method: string, ok: boolean) => void,
): ChainClient {
  const viemChain = defineChain({
    id: network.chainId,
    name: network.name,
    nativeCurrency: { name: network.nativeSymbol, symbol: network.nativeSymbol, decimals: 18 },
    rpcUrls: { default: { http: network.rpcUrls } },
    contracts: { multicall3: { address: MULTICALL3_ADDRESS } },
  });
  const rpc = new ChainRpc({ urls: network.rpcUrls, ...(onCall && { onCall }) });
  const client = createPublicClient({
    chain: viemChain,
    transport: custom(
      { request: (asked: Asked) => askAsViem(rpc, network, asked) },
      { key: "rpc", name: "ChainRpc", retryCount: 0 },
    ),
    cacheTime: 0,
    pollingInterval: Math.max(100, Math.floor(network.blockTimeMs / 4)),
  });
  return { network, viemChain, rpc, client };
}

interface Asked {
  method: string;
  params?: unknown[];
}

/** A node's refusal in the class viem reads reverts from. The URL may carry a key: the network's id stands for it. */
async function askAsViem(
  rpc: ChainRpc,
  network: NetworkConfig,
  { method, params = [] }: Asked,
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
