/** The facilitator's screen, from rows and from the relayers' balances. */
import { formatEther, getAddress, type Address } from "viem";
import type { DayTotals, HourRow, RecentRow } from "./stats-store.ts";
import type { FacilitatorStats } from "../../schemas/facilitator.ts";
import { formatAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";

export interface StatsParts {
  verified: number;
  day: DayTotals;
  allTime: { settled: number; volume: bigint };
  hours: readonly HourRow[];
  batchSizes: { size: number; count: number }[];
  recent: readonly RecentRow[];
  relayers: readonly RelayerFacts[];
}

export interface RelayerFacts {
  network: NetworkFacts;
  address: Address;
  /** Undefined while the chain does not answer. */
  balanceWei: bigint | undefined;
  gasPriceWei: bigint | undefined;
}

/** Below the gas of this many settlements a relayer needs money soon. */
const LOW_SETTLEMENTS = 500n;
const GAS_PER_SETTLEMENT = 80_000n;

export function presentStats(parts: StatsParts): FacilitatorStats {
  const { verified, day, allTime } = parts;
  const finished = day.settled + day.failed;
  return {
    last24h: {
      verified,
      settled: day.settled,
      failed: day.failed,
      volume: formatAtomic(day.volume),
      successRate: finished === 0 ? null : day.settled / finished,
      medianSettleMs: rounded(day.medianMs),
      p95SettleMs: rounded(day.p95Ms),
    },
    allTime: { settled: allTime.settled, volume: formatAtomic(allTime.volume) },
    batchSizes: parts.batchSizes,
    hourly: parts.hours.map(({ at, settled, failed, volume }) => ({
      at: at.toISOString(),
      settled,
      failed,
      volume: formatAtomic(volume),
    })),
    recent: parts.recent.map(presentRecent),
    relayers: parts.relayers.map(presentRelayer),
  };
}

const presentRecent = (row: RecentRow): FacilitatorStats["recent"][number] => ({
  id: row.id,
  status: row.status,
  kind: row.kind,
  network: `eip155:${row.chainId}`,
  from: getAddress(row.fromAddress),
  to: getAddress(row.toAddress),
  amount: formatAtomic(row.value),
  txHash: row.txHash,
  createdAt: row.createdAt.toISOString(),
  settledAt: row.settledAt?.toISOString() ?? null,
});

const presentRelayer = (facts: RelayerFacts): FacilitatorStats["relayers"][number] => ({
  network: facts.network.id,
  address: facts.address,
  gasBalance: facts.balanceWei === undefined ? null : formatEther(facts.balanceWei),
  gasSymbol: facts.network.nativeSymbol,
  low:
    facts.balanceWei !== undefined &&
    facts.gasPriceWei !== undefined &&
    facts.balanceWei < facts.gasPriceWei * GAS_PER_SETTLEMENT * LOW_SETTLEMENTS,
});

const rounded = (value: number | null): number | null =>
  value === null ? null : Math.round(value);
