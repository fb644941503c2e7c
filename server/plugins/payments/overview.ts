/** Totals and time series for an owner's charts. */
import type { BucketRow, OverviewAgent } from "./overview-store.ts";
import type { Overview } from "../../schemas/overview.ts";
import type { Limits } from "../guardrails/types.ts";
import { formatAtomic } from "../../core/money.ts";

export interface OverviewDependencies {
  agents(args: { ownerId: string; agentId: string | undefined }): Promise<OverviewAgent[]>;
  limits(agentIds: readonly string[]): Promise<Map<string, Limits>>;
  buckets(args: {
    agentIds: readonly string[];
    unit: "hour" | "day";
    buckets: number;
  }): Promise<BucketRow[]>;
  blocked(agentIds: readonly string[]): Promise<number>;
  /** Undefined while the chain does not answer. */
  balances(agents: readonly OverviewAgent[]): Promise<bigint | undefined>;
}

export async function readOverview(
  deps: OverviewDependencies,
  args: { ownerId: string; agentId: string | undefined },
): Promise<Overview> {
  const agents = await deps.agents(args);
  const agentIds = agents.map(({ id }) => id);
  const current = agents.filter(({ isArchived }) => !isArchived);
  const [limits, hourly, daily, blocked24h, balance] = await Promise.all([
    deps.limits(agentIds),
    deps.buckets({ agentIds, unit: "hour", buckets: 24 }),
    deps.buckets({ agentIds, unit: "day", buckets: 7 }),
    deps.blocked(agentIds),
    deps.balances(current),
  ]);
  const sum = (read: (limits: Limits) => bigint): string =>
    formatAtomic([...limits.values()].reduce((total, one) => total + read(one), 0n));
  return {
    totals: {
      balance: balance === undefined ? null : formatAtomic(balance),
      spent24h: sum(({ spentAtomic }) => spentAtomic),
      reserved: sum(({ reservedAtomic }) => reservedAtomic),
      blocked24h,
      agents: current.length,
      activeAgents: current.filter(({ isActive }) => isActive).length,
    },
    hourly: hourly.map(present),
    daily: daily.map(present),
  };
}

const present = (row: BucketRow): Overview["hourly"][number] => ({
  at: row.at.toISOString(),
  spent: formatAtomic(row.spentAtomic),
  count: row.count,
  blocked: row.blocked,
});
