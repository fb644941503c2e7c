import {
  createPublicClient,
  defineChain,
  fallback,
  http,
  type Chain as ViemChain,
  type PublicClient,
  type Transport,
} from "viem";
import type { NetworkConfig } from "../../config.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";

/** One configured network with its read client. `client` fails over between the RPC URLs, in order. */
export interface ChainClient {
  network: NetworkConfig;
  viemChain: ViemChain;
  client: PublicClient<Transport, ViemChain>;
}

const RPC_TIMEOUT_MS = 10_000;

export function createChainClient(network: NetworkConfig): ChainClient {
  const viemChain = defineChain({
    id: network.chainId,
    name: network.name,
    nativeCurrency: { name: network.nativeSymbol, symbol: network.nativeSymbol, decimals: 18 },
    rpcUrls: { default: { http: network.rpcUrls } },
    contracts: { multicall3: { address: MULTICALL3_ADDRESS } },
  });
  const transports = network.rpcUrls.map((url) =>
    http(url, { timeout: RPC_TIMEOUT_MS, retryCount: 0 }),
  );
  const client = createPublicClient({
    chain: viemChain,
    transport:
      transports.length === 1 && transports[0]
        ? transports[0]
        : fallback(transports, { rank: false, retryCount: 0 }),
    cacheTime: 0,
    pollingInterval: Math.max(100, Math.floor(network.blockTimeMs / 4)),
  });
  return { network, viemChain, client };
}
