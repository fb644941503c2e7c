/**
 * The networks that payments in USDC can be requested on. The token's EIP-712 domain comes from this list,
 * never from a third party.
 */

/** What a seller must know about a network. */
export interface PaymentNetwork {
  /** CAIP-2 id, e.g. `eip155:5042002`. */
  readonly id: `eip155:${number}`;
  readonly name: string;
  /** Name in x402 version 1, where the protocol has one. */
  readonly v1Name?: string;
  readonly usdc: {
    readonly address: `0x${string}`;
    readonly name: string;
    readonly version: string;
  };
  readonly explorerUrl: string;
  /** An RPC URL that a browser wallet may use to add the chain. */
  readonly publicRpcUrl: string;
  /**
   * The coin that pays for gas, with 18 decimals. On Arc that is USDC itself (its ERC-20 interface has 6).
   */
  readonly nativeSymbol: "ETH" | "USDC" | "POL" | "AVAX";
}

const ARC_USDC = "0x3600000000000000000000000000000000000000";

const FACTS = {
  "eip155:5042": {
    name: "Arc",
    usdc: { address: ARC_USDC, name: "USDC", version: "2" },
    explorerUrl: "https://explorer.arc.io",
    publicRpcUrl: "https://rpc.mainnet.arc.io",
    nativeSymbol: "USDC",
  },
  "eip155:5042002": {
    name: "Arc Testnet",
    usdc: { address: ARC_USDC, name: "USDC", version: "2" },
    explorerUrl: "https://testnet.arcscan.app",
    publicRpcUrl: "https://rpc.testnet.arc.network",
    nativeSymbol: "USDC",
  },
  "eip155:8453": {
    name: "Base",
    v1Name: "base",
    usdc: { address: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", name: "USD Coin", version: "2" },
    explorerUrl: "https://basescan.org",
    publicRpcUrl: "https://mainnet.base.org",
    nativeSymbol: "ETH",
  },
  "eip155:84532": {
    name: "Base Sepolia",
    v1Name: "base-sepolia",
    usdc: { address: "0x036CbD53842c5426634e7929541eC2318f3dCF7e", name: "USDC", version: "2" },
    explorerUrl: "https://sepolia.basescan.org",
    publicRpcUrl: "https://sepolia.base.org",
    nativeSymbol: "ETH",
  },
  "eip155:1": {
    name: "Ethereum",
    v1Name: "ethereum",
    usdc: { address: "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48", name: "USD Coin", version: "2" },
    explorerUrl: "https://etherscan.io",
    publicRpcUrl: "https://ethereum-rpc.publicnode.com",
    nativeSymbol: "ETH",
  },
  "eip155:11155111": {
    name: "Sepolia",
    v1Name: "sepolia",
    usdc: { address: "0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238", name: "USDC", version: "2" },
    explorerUrl: "https://sepolia.etherscan.io",
    publicRpcUrl: "https://ethereum-sepolia-rpc.publicnode.com",
    nativeSymbol: "ETH",
  },
  "eip155:137": {
    name: "Polygon",
    v1Name: "polygon",
    usdc: { address: "0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359", name: "USD Coin", version: "2" },
    explorerUrl: "https://polygonscan.com",
    publicRpcUrl: "https://polygon-rpc.com",
    nativeSymbol: "POL",
  },
  "eip155:42161": {
    name: "Arbitrum One",
    usdc: { address: "0xaf88d065e77c8cC2239327C5EDb3A432268e5831", name: "USD Coin", version: "2" },
    explorerUrl: "https://arbiscan.io",
    publicRpcUrl: "https://arb1.arbitrum.io/rpc",
    nativeSymbol: "ETH",
  },
  "eip155:10": {
    name: "Optimism",
    usdc: { address: "0x0b2C639c533813f4Aa9D7837CAf62653d097Ff85", name: "USD Coin", version: "2" },
    explorerUrl: "https://optimistic.etherscan.io",
    publicRpcUrl: "https://mainnet.optimism.io",
    nativeSymbol: "ETH",
  },
  "eip155:43114": {
    name: "Avalanche",
    v1Name: "avalanche",
    usdc: { address: "0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E", name: "USD Coin", version: "2" },
    explorerUrl: "https://snowtrace.io",
    publicRpcUrl: "https://api.avax.network/ext/bc/C/rpc",
    nativeSymbol: "AVAX",
  },
} as const satisfies Record<PaymentNetwork["id"], Omit<PaymentNetwork, "id">>;

export type KnownNetworkId = keyof typeof FACTS;

export const PAYMENT_NETWORKS: readonly (PaymentNetwork & { readonly id: KnownNetworkId })[] =
  Object.entries(FACTS).map(([id, facts]) => ({ id: id as KnownNetworkId, ...facts }));

/** Finds a network by CAIP-2 id or by its version 1 name. */
export function findAmong<Known extends Pick<PaymentNetwork, "id" | "v1Name">>(
  idOrAlias: string,
  among: readonly Known[],
): Known | undefined {
  return among.find(
    (network) =>
      network.id === idOrAlias || (network.v1Name !== undefined && network.v1Name === idOrAlias),
  );
}
