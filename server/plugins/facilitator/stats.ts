/**
 * The outcomes of verify and settle requests: metrics, and the public statistics (request counts, totals
 * from the database, and the relayers' balances).
 */
import fp from "fastify-plugin";
import { Counter, Histogram, type Registry } from "prom-client";
import { formatEther, getAddress, type Address } from "viem";
import { Counts } from "../../core/counts.ts";
import { formatAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { memoFor } from "../../core/shared-answers.ts";
import type { FacilitatorStats } from "../../schemas/facilitator.ts";
import * as store from "./store.ts";
import type { DayTotals, HourRow, RecentRow, Tallied } from "./store.ts";

type Operation = Tallied["operation"];

/** Receives each payment that was refused before it became a settlement. */
export type RefusalListener = (operation: Operation, body: unknown, reason: string) => void;

/** Receives the outcome of each request. */
export class Outcomes {
  /** Counts of requests that are not stored yet. */
  readonly tally = new Counts<Omit<Tallied, "count">>();
  readonly refusalListeners: RefusalListener[] = [];
  readonly #total: Counter;
  readonly #seconds: Histogram;

  constructor(registry: Registry) {
    this.#total = new Counter({
      name: "purser_x402_requests_total",
      help: "Verify and settle requests by outcome (the protocol's reason code on refusal)",
      labelNames: ["operation", "outcome"],
      registers: [registry],
    });
    this.#seconds = new Histogram({
      name: "purser_x402_seconds",
      help: "Time to decide a verify or finish a settle",
      labelNames: ["operation"],
      buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30],
      registers: [registry],
    });
  }

  /** `outcome`: "valid", "settled", or the protocol's reason code. */
  record(operation: Operation, outcome: string, startedMs: number): void {
    this.#total.inc({ operation, outcome });
    this.#seconds.observe({ operation }, (performance.now() - startedMs) / 1000);
    this.tally.add({ operation, outcome: resultOf(outcome) });
  }

  reportRefusal(operation: Operation, body: unknown, reason: string): void {
    for (const listen of this.refusalListeners) listen(operation, body, reason);
  }
}

function resultOf(outcome: string): Tallied["outcome"] {
  if (outcome === "valid" || outcome === "settled") return "ok";
  if (outcome === "settlement_pending") return "pending";
  return outcome.startsWith("unexpected_") ? "error" : "refused";
}

declare module "fastify" {
  interface FastifyInstance {
    facilitatorOutcomes: Outcomes;
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
    const outcomes = new Outcomes(app.metrics);
    app.decorate("facilitatorOutcomes", outcomes);
    const handOver = () =>
      outcomes.tally
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
