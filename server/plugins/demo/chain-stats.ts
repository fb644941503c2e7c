/** What the demo endpoint sells: how the chain is doing right now. */
import type { NetworkFacts } from "../../core/networks.ts";

export interface StatsBlock {
  number: bigint;
  hash: string;
  /** Seconds. */
  timestamp: bigint;
  gasUsed: bigint;
  gasLimit: bigint;
  baseFeePerGas: bigint | null;
  transactions: readonly unknown[];
}

export interface BlockReader {
  latest(): Promise<StatsBlock>;
  at(height: bigint): Promise<StatsBlock>;
}

/** Enough that blocks sharing a second (Arc's do) still give a fair mean. */
const SAMPLED_BLOCKS = 60n;

export async function chainStats(network: NetworkFacts, blocks: BlockReader) {
  const latest = await blocks.latest();
  const span = latest.number < SAMPLED_BLOCKS ? latest.number : SAMPLED_BLOCKS;
  const oldest = span === 0n ? latest : await blocks.at(latest.number - span);
  return {
    network: network.id,
    chain: network.name,
    height: Number(latest.number),
    hash: latest.hash,
    time: new Date(Number(latest.timestamp) * 1000).toISOString(),
    gasUsed: latest.gasUsed.toString(),
    gasLimit: latest.gasLimit.toString(),
    baseFee: (latest.baseFeePerGas ?? 0n).toString(),
    transactions: latest.transactions.length,
    meanBlockTimeSeconds: span === 0n ? null : meanSeconds(oldest, latest, span),
    blocksSampled: Number(span),
  };
}

/** Whole seconds over whole blocks, to a thousandth; block times are no money. */
function meanSeconds(oldest: StatsBlock, latest: StatsBlock, span: bigint): number {
  return Math.round((Number(latest.timestamp - oldest.timestamp) / Number(span)) * 1000) / 1000;
}
