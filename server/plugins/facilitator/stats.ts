/**
 * The facilitator's public statistics: request counts, totals from the database, and the relayers' balances.
 */
import { Counts } from "../../core/counts.ts";
import fp from "fastify-plugin";
import * as store from "./store.ts";
import type { DayTotals, HourRow, RecentRow } from "./store.ts";
import { memoFor } from "../../core/shared-answers.ts";
import type { FacilitatorStats } from "../../schemas/facilitator.ts";
import { formatEther, getAddress, type Address } from "viem";
import { formatAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";

declare module "fastify" {
  interface FastifyInstance {
    facilitatorTally: Tally;
    facilitatorStats(): Promise<FacilitatorStats>;
  }
}

const HAND_OVER_MS = 2_000;
/** Anyone may read it, so it is computed at most this often. */
const STATS_KEPT_MS = 2_000;
const ALL_TIME_KEPT_MS = 30_000;
const RECENT = 20;

export default fp(
  async (app) => {
    const tally: Tally = new Counts();
    app.decorate("facilitatorTally", tally);
    const handOver = () =>
      tally
        .handOver((counts) => store.addFacilitatorCounts(app.prisma, counts))
        .catch((err: unknown) => app.log.warn({ err }, "facilitator counts not stored yet"));
    const timer = setInterval(() => void handOver(), HAND_OVER_MS).unref();
    app.addHook("onClose", async () => {
      clearInterval(timer);
      await handOver();
    });

    const allTime = memoFor(ALL_TIME_KEPT_MS, () => store.readAllTime(app.prisma));
    const relayers = app.relayers.map(({ address }) => address);
    const relayerFacts = (): Promise<RelayerFacts[]> =>
      Promise.all(
        app.chains.all.flatMap(({ network, client }) =>
          relayers.map(async (address) => {
            const [balanceWei, gasPriceWei] = await Promise.all([
              client.getBalance({ address }).catch(() => undefined),
              client.getGasPrice().catch(() => undefined),
            ]);
            return { network, address, balanceWei, gasPriceWei };
          }),
        ),
      );
    const stats = memoFor(STATS_KEPT_MS, async () => {
      await handOver();
      const { prisma } = app;
      const [verified, day, ever, hours, batchSizes, recent, facts] = await Promise.all([
        store.countVerified(prisma),
        store.readDayTotals(prisma),
        allTime(),
        store.readHours(prisma),
        store.readBatchSizes(prisma),
        store.readRecent(prisma, RECENT),
        relayerFacts(),
      ]);
      return presentStats({
        verified,
        day,
        allTime: ever,
        hours,
        batchSizes,
        recent,
        relayers: facts,
      });
    });
    app.decorate("facilitatorStats", stats);
  },
  { name: "facilitator-stats" },
);

interface StatsFacts {
  verified: number;
  day: DayTotals;
  allTime: { settled: number; volume: bigint };
  hours: readonly HourRow[];
  batchSizes: { size: number; count: number }[];
  recent: readonly RecentRow[];
  relayers: readonly RelayerFacts[];
}

interface RelayerFacts {
  network: NetworkFacts;
  address: Address;
  /** Undefined while the chain does not respond. */
  balanceWei: bigint | undefined;
  gasPriceWei: bigint | undefined;
}

/** A relayer whose balance is below the gas of this many settlements needs funding soon. */
const LOW_SETTLEMENTS = 500n;
const GAS_PER_SETTLEMENT = 80_000n;

/** The data of the facilitator's web page. */
export function presentStats(parts: StatsFacts): FacilitatorStats {
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

export type TallyOutcome = "ok" | "refused" | "pending" | "error";
export interface Tallied {
  operation: "verify" | "settle";
  outcome: TallyOutcome;
  count: number;
}

/** Counts requests by their result. */
export type Tally = Counts<Omit<Tallied, "count">>;

/** Maps the protocol's outcome to one of four values. */
export function tallyOutcome(outcome: string): TallyOutcome {
  if (outcome === "valid" || outcome === "settled") return "ok";
  if (outcome === "settlement_pending") return "pending";
  return outcome.startsWith("unexpected_") ? "error" : "refused";
}
