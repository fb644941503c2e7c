import type { Address } from "viem";
import {
  findAmong,
  type KnownNetworkId,
  PAYMENT_NETWORKS,
  type PaymentNetwork,
} from "../../packages/paywall/src/networks.ts";

/** A chain that Purser supports: the paywall's facts, and parameters of the settlement engine. */
export interface NetworkFacts extends PaymentNetwork {
  readonly chainId: number;
  /** Short name used in paths such as `/api/arc-stats`. */
  readonly slug: string;
  readonly blockTimeMs: number;
  /**
   * How many blocks must include a transaction (its own counts) before its success is returned: one if a sequencer or a
   * committee makes permanent blocks. Ethereum and Polygon lose single blocks now and then in ordinary operation, so a
   * second block must follow there.
   */
  readonly inclusionDepth: number;
  /** How many blocks until we call it final and stop checking. A reorganisation before that leads to a correction. */
  readonly confirmations: number;
  /**
   * The highest price per unit of gas that we ever offer, whatever a node suggests and however long a transaction is
   * stuck.
   */
  readonly maxFeeGwei: number;
  readonly maxTipGwei: number;
  /**
   * The USDC price of one coin where it is a fact: 1 on Arc. A test network's coin is worthless; it counts as 1, so
   * that gas is limited there too. Elsewhere the operator sets it (NATIVE_PRICE_<chainId>).
   */
  readonly nativePrice: "1" | undefined;
  readonly testnet: boolean;
  /** Default for whether a payer's own Permit2 approval is relayed before its payment; the operator can change it. */
  readonly sendsApprovals: boolean;
}

/** The EIP-712 domain of a token contract. */
export interface TokenDomain {
  readonly name: string;
  readonly version: string;
  readonly chainId: number;
  readonly verifyingContract: Address;
}

/** Always from our own table, never from a seller. */
export const tokenDomainOf = ({ chainId, usdc }: NetworkFacts): TokenDomain => ({
  name: usdc.name,
  version: usdc.version,
  chainId,
  verifyingContract: usdc.address,
});

/** Multicall3 has the same address on every network. */
export const MULTICALL3_ADDRESS: Address = "0xcA11bde05977b3631167028862bE2a173976CA11";

/** The deterministic deployment proxy: input is `salt ++ creation code`, the address follows from CREATE2. */
export const CREATE2_DEPLOYER: Address = "0x4e59b44847b379578588920cA78FbF26c0B4956C";

type EngineFacts = Pick<NetworkFacts, "slug" | "blockTimeMs" | "confirmations"> &
  Partial<Pick<NetworkFacts, "inclusionDepth" | "maxFeeGwei" | "maxTipGwei" | "testnet">>;

/** One entry for each network of the paywall's table. */
const ENGINE_FACTS: Record<KnownNetworkId, EngineFacts> = {
  "eip155:5042": {
    slug: "arc",
    blockTimeMs: 500,
    confirmations: 1,
    // A unit of gas is thousands of times cheaper here.
    maxFeeGwei: 5_000,
    maxTipGwei: 500,
  },
  "eip155:5042002": {
    slug: "arc",
    blockTimeMs: 500,
    confirmations: 1,
    // A unit of gas is thousands of times cheaper here.
    maxFeeGwei: 5_000,
    maxTipGwei: 500,
    testnet: true,
  },
  "eip155:8453": {
    slug: "base",
    blockTimeMs: 2_000,
    confirmations: 3,
  },
  "eip155:84532": {
    slug: "base-sepolia",
    blockTimeMs: 2_000,
    confirmations: 3,
    testnet: true,
  },
  "eip155:1": {
    slug: "ethereum",
    blockTimeMs: 12_000,
    inclusionDepth: 2,
    confirmations: 3,
  },
  "eip155:11155111": {
    slug: "sepolia",
    blockTimeMs: 12_000,
    confirmations: 3,
    testnet: true,
  },
  "eip155:137": {
    slug: "polygon",
    blockTimeMs: 2_000,
    inclusionDepth: 2,
    confirmations: 5,
    maxFeeGwei: 10_000,
    maxTipGwei: 1_000,
  },
  "eip155:42161": {
    slug: "arbitrum",
    blockTimeMs: 250,
    confirmations: 1,
  },
  "eip155:10": {
    slug: "optimism",
    blockTimeMs: 2_000,
    confirmations: 3,
  },
  "eip155:43114": {
    slug: "avalanche",
    blockTimeMs: 1_700,
    confirmations: 1,
    maxFeeGwei: 1_000,
    maxTipGwei: 100,
  },
};

export const NETWORKS: readonly NetworkFacts[] = PAYMENT_NETWORKS.map((network) => {
  const facts = ENGINE_FACTS[network.id];
  return {
    chainId: Number(network.id.slice("eip155:".length)),
    maxFeeGwei: 500,
    maxTipGwei: 50,
    testnet: false,
    sendsApprovals: false,
    inclusionDepth: 1,
    nativePrice: facts.testnet === true || network.nativeSymbol === "USDC" ? "1" : undefined,
    ...network,
    ...facts,
  };
});

/** Finds a network by CAIP-2 id or by its x402 version 1 name. */
export const findNetwork = (
  idOrAlias: string,
  among: readonly NetworkFacts[] = NETWORKS,
): NetworkFacts | undefined => findAmong(idOrAlias, among);
