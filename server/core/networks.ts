import type { Address } from "viem";
import { BATCHER_ADDRESS } from "./batcher.ts";
import {
  findAmong,
  type KnownNetworkId,
  PAYMENT_NETWORKS,
  type PaymentNetwork,
} from "../../packages/paywall/src/networks.ts";

/** A chain that Purser knows: the paywall's facts, and how the engine treats it. */
export interface NetworkFacts extends PaymentNetwork {
  readonly chainId: number;
  /** Short name used in paths such as `/api/arc-stats`. */
  readonly slug: string;
  readonly blockTimeMs: number;
  /**
   * Blocks that must include a transaction (its own counts) before its success is returned: one where a
   * sequencer or a committee makes blocks that stay. Ethereum and Polygon lose single blocks now and then
   * in ordinary operation, so there a second one must stand on it.
   */
  readonly inclusionDepth: number;
  /** Blocks until we call it final and look no more. What a reorganisation takes back before is corrected. */
  readonly confirmations: number;
  /** The dearest gas we ever offer, per unit: whatever a node suggests, and however long something is stuck. */
  readonly maxFeeGwei: number;
  readonly maxTipGwei: number;
  /**
   * USDC for one coin, where that is known without asking anybody: 1 on Arc. A test network's coin is worth nothing:
   * 1 stands for it, so that gas is rationed there too. Elsewhere the operator sets it (NATIVE_PRICE_<chainId>).
   */
  readonly nativePrice: "1" | undefined;
  readonly testnet: boolean;
  /** Where our batcher may be deployed; the chain is read to see whether it is. */
  readonly batcher: Address | undefined;
  /** Whether a payer's own approval of Permit2 is sent before its payment: the operator decides. */
  readonly sendsApprovals: boolean;
}

/** The EIP-712 domain of a token's contract. */
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

/** Multicall3 has the same address everywhere. */
export const MULTICALL3_ADDRESS: Address = "0xcA11bde05977b3631167028862bE2a173976CA11";

/** The deterministic deployment proxy: `salt ++ creation code` in, CREATE2 address out. */
export const CREATE2_DEPLOYER: Address = "0x4e59b44847b379578588920cA78FbF26c0B4956C";

type EngineFacts = Pick<NetworkFacts, "slug" | "blockTimeMs" | "confirmations"> &
  Partial<Pick<NetworkFacts, "inclusionDepth" | "maxFeeGwei" | "maxTipGwei" | "testnet">>;

/** One for each network of the paywall's table. */
const ENGINE_FACTS: Record<KnownNetworkId, EngineFacts> = {
  "eip155:5042": {
    slug: "arc",
    blockTimeMs: 500,
    confirmations: 1,
    // A unit of gas is cheaper here by a factor of thousands.
    maxFeeGwei: 5_000,
    maxTipGwei: 500,
  },
  "eip155:5042002": {
    slug: "arc",
    blockTimeMs: 500,
    confirmations: 1,
    // A unit of gas is cheaper here by a factor of thousands.
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
    batcher: BATCHER_ADDRESS,
    inclusionDepth: 1,
    nativePrice: facts.testnet === true || network.nativeSymbol === "USDC" ? "1" : undefined,
    ...network,
    ...facts,
  };
});

/** Finds a network by CAIP-2 id or by its version 1 name. */
export const findNetwork = (
  idOrAlias: string,
  among: readonly NetworkFacts[] = NETWORKS,
): NetworkFacts | undefined => findAmong(idOrAlias, among);
