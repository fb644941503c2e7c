import { getAddress } from "viem";
import type { Sql } from "../../infra/db/pool.ts";
import { payeeOnWire, rulesOnWire } from "./rules.ts";
import type { Db } from "../../infra/db/prisma.ts";
import { readActivity, type AgentActivity } from "./store.ts";
import type { AgentRow } from "./store.ts";
import { listAllowlists, type AllowlistRow } from "./payees-store.ts";
import { readLimits } from "../guardrails/store.ts";
import type { Agent } from "../../schemas/agents.ts";
import type { Limits } from "../guardrails/types.ts";
import { formatAtomic } from "../../core/money.ts";
import {
  balanceOn,
  balancesOnWire,
  type ReadAllBalances,
  type WalletBalances,
} from "./balances.ts";

/** Agents as their owner sees them: rules, meters, allowlist and balances; few queries for any number. */
export async function viewAgents(
  { pool, prisma }: { pool: Sql; prisma: Db },
  agents: readonly AgentRow[],
  readBalances: ReadAllBalances,
): Promise<Agent[]> {
  if (agents.length === 0) return [];
  const ids = agents.map(({ id }) => id);
  const [limits, activity, allowlists, balances] = await Promise.all([
    readLimits(pool, ids),
    readActivity(prisma, ids),
    listAllowlists(prisma, ids),
    readBalances(agents.map(({ walletAddress }) => walletAddress)),
  ]);
  return agents.map((agent) =>
    viewAgent(agent, {
      limits: limits.get(agent.id),
      activity: activity.get(agent.id),
      allowlist: allowlists.get(agent.id) ?? [],
      balances: balances.get(agent.walletAddress),
    }),
  );
}

interface Surroundings {
  limits: Limits | undefined;
  activity: AgentActivity | undefined;
  allowlist: readonly AllowlistRow[];
  balances: WalletBalances | undefined;
}

function viewAgent(agent: AgentRow, around: Surroundings): Agent {
  const { limits, activity, allowlist, balances } = around;
  const own = balanceOn(balances, agent.network);
  return {
    ...rulesOnWire(agent),
    id: agent.id,
    status: shownStatus(agent),
    expired: agent.expired,
    network: agent.network,
    walletAddress: getAddress(agent.walletAddress),
    wallet: getAddress(agent.walletAddress),
    balance: own === undefined ? null : formatAtomic(own.atomic),
    balances: balancesOnWire(balances),
    limits: viewLimits(agent.dailyLimitAtomic, limits),
    allowlist: allowlist.map(viewEntry),
    createdAt: agent.createdAt.toISOString(),
    updatedAt: agent.updatedAt.toISOString(),
    archivedAt: agent.archivedAt?.toISOString() ?? null,
    lastActivityAt: activity?.lastActivityAt?.toISOString() ?? null,
    blocked24h: activity?.blocked24h ?? 0,
  };
}

/** What the owner did comes before what time did. */
function shownStatus(agent: AgentRow): "active" | "paused" | "expired" | "archived" {
  if (agent.status !== "active") return agent.status;
  return agent.expired ? "expired" : "active";
}

export const viewEntry = (row: AllowlistRow) => ({
  ...payeeOnWire(row),
  createdAt: row.createdAt.toISOString(),
});

function viewLimits(limitAtomic: bigint, limits: Limits | undefined): Agent["limits"] {
  return {
    limit: formatAtomic(limitAtomic),
    spent: formatAtomic(limits?.spentAtomic ?? 0n),
    reserved: formatAtomic(limits?.reservedAtomic ?? 0n),
    remaining: formatAtomic(limits?.remainingAtomic ?? limitAtomic),
    nextReleaseAt: limits?.nextReleaseAt?.toISOString() ?? null,
  };
}
