import type { Address } from "viem";

/** A chain Purser knows: the token's EIP-712 domain comes from here, never from what a seller says. */
export interface NetworkFacts {
  /** CAIP-2 id, e.g. `eip155:5042002`. */
  readonly id: `eip155:${number}`;
  readonly chainId: number;
  readonly name: string;
  /** Short name used in paths such as `/api/arc-stats`. */
  readonly slug: string;
  /** Name in x402 version 1, where the protocol has one. */
  readonly v1Name?: string;
  readonly usdc: { readonly address: Address; readonly name: string; readonly version: string };
  readonly explorerUrl: string;
  /** What a browser wallet may use to add the chain; the server itself uses only RPC_URL_<chainId>. */
  readonly publicRpcUrl: string;
  readonly blockTimeMs: number;
  /**
   * Blocks that must include a transaction (its own counts) before its success is told: one where a
   * sequencer or a committee makes blocks that stay. Ethereum and Polygon lose single blocks now and then
   * in ordinary operation, so there a second one must stand on it.
   */
  readonly inclusionDepth: number;
  /** Blocks until we call it final and look no more. What a reorganisation takes back before is corrected. */
  readonly confirmations: number;
  /** The dearest gas we ever offer, per unit: whatever a node suggests, and however long something is stuck. */
  readonly maxFeeGwei: number;
  readonly maxTipGwei: number;
  /** The coin that pays for gas, with 18 decimals. On Arc that is USDC itself (its ERC-20 view has 6). */
  readonly nativeSymbol: "ETH" | "USDC" | "POL" | "AVAX";
  /**
   * USDC for one coin, where that is known without asking anybody: 1 on Arc. A test network's coin is worth nothing:
   * 1 stands for it, so that gas is rationed there too. Elsewhere the operator says (NATIVE_PRICE_<chainId>).
   */
  readonly nativePrice: "1" | undefined;
  readonly testnet: boolean;
}

/** The EIP-712 domain of a token's contract. */
export interface TokenDomain {
  readonly name: string;
  readonly version: string;
  readonly chainId: number;
  readonly verifyingContract: Address;
}

/** Always from our own table, never from what a seller says. */
export const tokenDomainOf = ({ chainId, usdc }: NetworkFacts): TokenDomain => ({
  name: usdc.name,
  version: usdc.version,
  chainId,
  verifyingContract: usdc.address,
});

/** Multicall3 has the same address everywhere. */
export const MULTICALL3_ADDRESS: Address = "0xcA11bde05977b3631167028862bE2a173976CA11";

const ARC_USDC: Address = "0x3600000000000000000000000000000000000000";

const network = (
  chainId: number,
  name: string,
  slug: string,
  usdc: { address: Address; name: "USDC" | "USD Coin" },
  rest: Omit<
    NetworkFacts,
    | "id"
    | "chainId"
    | "name"
    | "slug"
    | "usdc"
    | "nativeSymbol"
    | "nativePrice"
    | "testnet"
    | "inclusionDepth"
    | "maxFeeGwei"
    | "maxTipGwei"
  > &
    Partial<
      Pick<
        NetworkFacts,
        "nativeSymbol" | "testnet" | "inclusionDepth" | "maxFeeGwei" | "maxTipGwei"
      >
    >,
): NetworkFacts => ({
  id: `eip155:${chainId}`,
  chainId,
  name,
  slug,
  usdc: { ...usdc, version: "2" },
  nativeSymbol: "ETH",
  maxFeeGwei: 500,
  maxTipGwei: 50,
  testnet: false,
  inclusionDepth: 1,
  nativePrice: rest.testnet === true || rest.nativeSymbol === "USDC" ? "1" : undefined,
  ...rest,
});

export const NETWORKS: readonly NetworkFacts[] = [
  network(
    5042,
    "Arc",
    "arc",
    { address: ARC_USDC, name: "USDC" },
    {
      publicRpcUrl: "https://rpc.mainnet.arc.io",
      explorerUrl: "https://explorer.arc.io",
      blockTimeMs: 500,
      confirmations: 1,
      nativeSymbol: "USDC",
      // A unit of gas is cheaper here by a factor of thousands.
      maxFeeGwei: 5_000,
      maxTipGwei: 500,
    },
  ),
  network(
    5042002,
    "Arc Testnet",
    "arc",
    { address: ARC_USDC, name: "USDC" },
    {
      publicRpcUrl: "https://rpc.testnet.arc.network",
      explorerUrl: "https://testnet.arcscan.app",
      blockTimeMs: 500,
      confirmations: 1,
      nativeSymbol: "USDC",
      // A unit of gas is cheaper here by a factor of thousands.
      maxFeeGwei: 5_000,
      maxTipGwei: 500,
      testnet: true,
    },
  ),
  network(
    8453,
    "Base",
    "base",
    { address: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", name: "USD Coin" },
    {
      v1Name: "base",
      publicRpcUrl: "https://mainnet.base.org",
      explorerUrl: "https://basescan.org",
      blockTimeMs: 2_000,
      confirmations: 3,
    },
  ),
  network(
    84532,
    "Base Sepolia",
    "base-sepolia",
    { address: "0x036CbD53842c5426634e7929541eC2318f3dCF7e", name: "USDC" },
    {
      v1Name: "base-sepolia",
      publicRpcUrl: "https://sepolia.base.org",
      explorerUrl: "https://sepolia.basescan.org",
      blockTimeMs: 2_000,
      confirmations: 3,
      testnet: true,
    },
  ),
  network(
    1,
    "Ethereum",
    "ethereum",
    { address: "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48", name: "USD Coin" },
    {
      v1Name: "ethereum",
      publicRpcUrl: "https://ethereum-rpc.publicnode.com",
      explorerUrl: "https://etherscan.io",
      blockTimeMs: 12_000,
      inclusionDepth: 2,
      confirmations: 3,
    },
  ),
  network(
    11155111,
    "Sepolia",
    "sepolia",
    { address: "0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238", name: "USDC" },
    {
      v1Name: "sepolia",
      publicRpcUrl: "https://ethereum-sepolia-rpc.publicnode.com",
      explorerUrl: "https://sepolia.etherscan.io",
      blockTimeMs: 12_000,
      confirmations: 3,
      testnet: true,
    },
  ),
  network(
    137,
    "Polygon",
    "polygon",
    { address: "0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359", name: "USD Coin" },
    {
      v1Name: "polygon",
      publicRpcUrl: "https://polygon-rpc.com",
      explorerUrl: "https://polygonscan.com",
      nativeSymbol: "POL",
      maxFeeGwei: 10_000,
      maxTipGwei: 1_000,
      blockTimeMs: 2_000,
      inclusionDepth: 2,
      confirmations: 5,
    },
  ),
  network(
    42161,
    "Arbitrum One",
    "arbitrum",
    { address: "0xaf88d065e77c8cC2239327C5EDb3A432268e5831", name: "USD Coin" },
    {
      publicRpcUrl: "https://arb1.arbitrum.io/rpc",
      explorerUrl: "https://arbiscan.io",
      blockTimeMs: 250,
      confirmations: 1,
    },
  ),
  network(
    10,
    "Optimism",
    "optimism",
    { address: "0x0b2C639c533813f4Aa9D7837CAf62653d097Ff85", name: "USD Coin" },
    {
      publicRpcUrl: "https://mainnet.optimism.io",
      explorerUrl: "https://optimistic.etherscan.io",
      blockTimeMs: 2_000,
      confirmations: 3,
    },
  ),
  network(
    43114,
    "Avalanche",
    "avalanche",
    { address: "0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E", name: "USD Coin" },
    {
      v1Name: "avalanche",
      publicRpcUrl: "https://api.avax.network/ext/bc/C/rpc",
      explorerUrl: "https://snowtrace.io",
      nativeSymbol: "AVAX",
      maxFeeGwei: 1_000,
      maxTipGwei: 100,
      blockTimeMs: 1_700,
      confirmations: 1,
    },
  ),
];

/** Finds a network by CAIP-2 id or by its version 1 name. */
export function findNetwork(
  idOrAlias: string,
  among: readonly NetworkFacts[] = NETWORKS,
): NetworkFacts | undefined {
  return among.find(
    (network) =>
      network.id === idOrAlias || (network.v1Name !== undefined && network.v1Name === idOrAlias),
  );
}
