import type { NetworkInfo } from "../wire.ts";
import { type Connection } from "./connection.ts";
import { isUnknownChain } from "./provider.ts";

const hex = (value: number): string => `0x${value.toString(16)}`;

/** The parameters of `wallet_addEthereumChain` (EIP-3085), which the user can also enter by hand. */
export function chainParameters(network: NetworkInfo): {
  chainId: string;
  chainName: string;
  nativeCurrency: { name: string; symbol: string; decimals: 18 };
  rpcUrls: string[];
  blockExplorerUrls: string[];
} {
  return {
    chainId: hex(network.chainId),
    chainName: network.name,
    nativeCurrency: { name: network.nativeSymbol, symbol: network.nativeSymbol, decimals: 18 },
    rpcUrls: [network.walletRpcUrl],
    blockExplorerUrls: [network.explorerUrl],
  };
}

/** Switches the wallet to the chain, and adds it where it is unknown. The wallet asks the user. */
export async function switchChain({ provider }: Connection, network: NetworkInfo): Promise<void> {
  try {
    await provider.request({
      method: "wallet_switchEthereumChain",
      params: [{ chainId: hex(network.chainId) }],
    });
  } catch (error) {
    if (!isUnknownChain(error)) throw error;
    await provider.request({
      method: "wallet_addEthereumChain",
      params: [chainParameters(network)],
    });
    await provider.request({
      method: "wallet_switchEthereumChain",
      params: [{ chainId: hex(network.chainId) }],
    });
  }
}
