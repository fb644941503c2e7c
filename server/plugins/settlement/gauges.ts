/**
 * Metrics of waiting work and of the relayers' gas money. Each gauge reads its value when it is scraped. A
 * scrape never fails or waits because a node is unavailable: the last value stays.
 */
import { Gauge, type Registry } from "prom-client";
import type { Sql } from "../../infra/db/pool.ts";
import { PLAIN_GAS } from "../../core/gas.ts";
import type { ChainEngine } from "./chain-engine.ts";
import type { RunningEngine } from "./engine.ts";
import type { SettlementKind } from "./types.ts";

export const CLASS_NAMES: Record<SettlementKind, string> = {
  withdrawal: "withdrawal",
  spend: "agent",
  x402: "agent",
  facilitated: "facilitated",
  refund: "facilitated",
  allowance: "agent",
};
const CLASSES = [...new Set(Object.values(CLASS_NAMES))];
/** Reserved by a wallet and not known to have ended: the column payments.outstanding. */
const OUTSTANDING = ["reserved", "submitted", "unknown"] as const;

interface Waiting {
  count: number;
  oldestSeconds: number;
}

/**
 * Settlements for us to relay that are not in a counted block yet. Those that others relay are not included.
 */
async function readWork(sql: Sql, chainId: number): Promise<Map<string, Waiting>> {
  const { rows } = await sql.query<{ kind: SettlementKind; count: number; oldest: number }>(
    `SELECT kind, count(*)::int AS count,
            greatest(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS oldest
       FROM settlements
      WHERE chain_id = $1 AND status IN ('queued', 'submitted') AND (relay OR cancel_signature IS NOT NULL)
      GROUP BY kind`,
    [chainId],
  );
  const work = new Map(CLASSES.map((name) => [name, { count: 0, oldestSeconds: 0 }]));
  for (const { kind, count, oldest } of rows) {
    const of = work.get(CLASS_NAMES[kind]);
    if (!of) continue;
    of.count += count;
    of.oldestSeconds = Math.max(of.oldestSeconds, oldest);
  }
  return work;
}

async function readOutstanding(sql: Sql, chainId: number): Promise<Map<string, Waiting>> {
  const { rows } = await sql.query<{ status: string; count: number; oldest: number }>(
    `SELECT status, count(*)::int AS count,
            greatest(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS oldest
       FROM payments WHERE outstanding AND chain_id = $1 GROUP BY status`,
    [chainId],
  );
  const found = new Map(
    rows.map(({ status, count, oldest }) => [status, { count, oldestSeconds: oldest }]),
  );
  return new Map(
    OUTSTANDING.map((status) => [status, found.get(status) ?? { count: 0, oldestSeconds: 0 }]),
  );
}

export function watchWork(registry: Registry, engine: RunningEngine): void {
  const pairs = [
    {
      label: "class",
      read: readWork,
      count: "purser_settlement_open",
      countHelp: "Accepted authorizations that are not in a counted block yet, by class",
      oldest: "purser_settlement_oldest_seconds",
      oldestHelp: "Time from which the oldest one waits; 0 when none waits",
    },
    {
      label: "status",
      read: readOutstanding,
      count: "purser_payments_outstanding",
      countHelp: "Agents' reserved payments without a known outcome",
      oldest: "purser_payments_oldest_seconds",
      oldestHelp: "Age of the oldest of them; 0 when there is none",
    },
  ];
  for (const { label, read, count, countHelp, oldest, oldestHelp } of pairs) {
    const labelNames = ["network", label];
    const ages = new Gauge({ name: oldest, help: oldestHelp, labelNames, registers: [] });
    registry.registerMetric(
      new Gauge({
        name: count,
        help: countHelp,
        labelNames,
        registers: [],
        // Sets both gauges from one read; the registry collects in the order of registration.
        async collect() {
          for (const [chainId, { ctx }] of engine.chains) {
            const work = await read(ctx.pool, chainId).catch(() => new Map<string, Waiting>());
            for (const [name, { count: waiting, oldestSeconds }] of work) {
              this.set({ network: ctx.network.id, [label]: name }, waiting);
              ages.set({ network: ctx.network.id, [label]: name }, oldestSeconds);
            }
          }
        },
      }),
    );
    registry.registerMetric(ages);
  }
  watchFunds(registry, engine);
}

/** Measured in payments, because coins differ in value between networks and gas prices change every day. */
function watchFunds(registry: Registry, engine: RunningEngine): void {
  const left = new Map<string, number>();
  const look = async (chain: ChainEngine): Promise<void> => {
    const baseFeeWei = chain.ctx.heads.head?.baseFeeWei ?? 0n;
    const unitWei = PLAIN_GAS * (2n * baseFeeWei + (await chain.priorityFeeWei()));
    for (const lane of chain.lanes) {
      const balance = await lane.readBalance();
      left.set(`${chain.ctx.network.id} ${lane.address}`, Number(balance / (unitWei || 1n)));
    }
  };
  registry.registerMetric(
    new Gauge({
      name: "purser_lane_payments_left",
      help: "Number of single payments whose gas the relayer can pay at twice the current price",
      labelNames: ["network", "lane"],
      registers: [],
      collect() {
        for (const chain of engine.chains.values()) {
          // Shown by the next scrape, because nodes may be slow.
          look(chain).catch(() => undefined);
          for (const lane of chain.lanes) {
            const labels = { network: chain.ctx.network.id, lane: lane.address };
            const payments = left.get(`${labels.network} ${labels.lane}`);
            if (payments !== undefined) this.set(labels, payments);
          }
        }
      },
    }),
  );
}
