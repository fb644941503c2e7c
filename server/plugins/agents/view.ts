import { getAddress } from "viem";
import type { Sql } from "../../infra/db/pool.ts";
import { payeeKey } from "../../core/rules.ts";
import { payeeOnWire, rulesOnWire } from "./rules.ts";
import type { Db } from "../../infra/db/prisma.ts";
import { readActivity, type AgentActivity, type AgentRow } from "./store.ts";
import { deniedOnList } from "./denied-store.ts";
import { listAllowlists, type AllowlistRow } from "./payees-store.ts";
import {
  availableOf,
  limitsOnWire,
  windowOnWire,
  type WalletFacts,
} from "../guardrails/available.ts";
import { readLimits } from "../guardrails/store.ts";
import type { Agent } from "../../schemas/agents.ts";
import type { AgentState, Limits } from "../guardrails/rules.ts";
import { formatAtomic } from "../../core/money.ts";
import { balanceOn, balancesOnWire, type ReadWallets, type WalletBalances } from "./balances.ts";

/**
 * Agents as their owner sees them: rules, meters, allowlist and balances, with few queries for any number of agents.
 */
export async function viewAgents(
  { pool, prisma }: { pool: Sql; prisma: Db },
  agents: readonly AgentRow[],
  readWallets: ReadWallets,
): Promise<Agent[]> {
  if (agents.length === 0) return [];
  const ids = agents.map(({ id }) => id);
  const [single] = agents.length === 1 ? ids : [];
  const [limits, activity, allowlists, wallets, denied] = await Promise.all([
    // Limits of payees, and which of them are denied, only for a single agent: a list does not show them.
    readLimits(pool, ids, { payees: single !== undefined }),
    readActivity(prisma, ids),
    listAllowlists(prisma, ids),
    readWallets(agents),
    single === undefined ? NONE : deniedOnList(prisma, single),
  ]);
  return agents.map((agent) =>
    viewAgent(agent, {
      limits: limits.get(agent.id),
      activity: activity.get(agent.id),
      allowlist: allowlists.get(agent.id) ?? [],
      balances: wallets.balances.get(agent.walletAddress),
      wallet: wallets.facts.get(agent.id),
      denied,
    }),
  );
}

const NONE: ReadonlySet<string> = new Set();

interface Surroundings {
  limits: Limits | undefined;
  activity: AgentActivity | undefined;
  allowlist: readonly AllowlistRow[];
  balances: WalletBalances | undefined;
  wallet: WalletFacts | undefined;
  /** The payees that the owner denies, by payeeKey. */
  denied: ReadonlySet<string>;
}

function viewAgent(agent: AgentRow, around: Surroundings): Agent {
  const { limits, activity, allowlist, balances, denied } = around;
  const own = balanceOn(balances, agent.network);
  return {
    ...rulesOnWire(agent),
    id: agent.id,
    status: shownStatus(agent),
    expired: agent.expired,
    pausedBy: agent.pausedBy,
    pausedAt: agent.pausedAt?.toISOString() ?? null,
    network: agent.network,
    walletAddress: getAddress(agent.walletAddress),
    wallet: getAddress(agent.walletAddress),
    balance: own === undefined ? null : formatAtomic(own.atomic),
    balances: balancesOnWire(balances),
    limits: viewLimits(agent, { ...around, limits: limits ?? unused(agent) }),
    allowlist: viewPayees(allowlist, limits, denied),
    createdAt: agent.createdAt.toISOString(),
    updatedAt: agent.updatedAt.toISOString(),
    archivedAt: agent.archivedAt?.toISOString() ?? null,
    lastActivityAt: activity?.lastActivityAt?.toISOString() ?? null,
    blocked24h: activity?.blocked24h ?? 0,
  };
}

/** The owner's status comes before expiry. */
function shownStatus(agent: AgentRow): "active" | "paused" | "expired" | "archived" {
  if (agent.status !== "active") return agent.status;
  return agent.expired ? "expired" : "active";
}

export const viewEntry = (row: AllowlistRow) => ({
  ...payeeOnWire(row),
  createdAt: row.createdAt.toISOString(),
});

/** Payees with their own limit show what is left of it; those that the owner denies show that. */
export const viewPayees = (
  entries: readonly AllowlistRow[],
  limits: Limits | undefined,
  denied: ReadonlySet<string>,
): Agent["allowlist"] =>
  entries.map((entry) => {
    const window = limits?.payees.get(payeeKey(entry));
    return {
      ...viewEntry(entry),
      ...(window && { limits: windowOnWire(window) }),
      ...(denied.has(payeeKey(entry)) && { denied: true as const }),
    };
  });

/** The limits, and how much they and all other rules for every payee allow right now. */
export const viewLimits = (
  agent: Omit<AgentState, "hasPayees" | "limits">,
  around: {
    limits: Limits;
    allowlist: readonly AllowlistRow[];
    wallet: WalletFacts | undefined;
    denied: ReadonlySet<string>;
  },
): Agent["limits"] => {
  const { limits, allowlist, wallet, denied } = around;
  const hasPayees = allowlist.some((entry) => !denied.has(payeeKey(entry)));
  return limitsOnWire(limits, availableOf({ ...agent, hasPayees, limits }, wallet));
};

const unused = ({ dailyLimitAtomic }: AgentRow): Limits => ({
  limitAtomic: dailyLimitAtomic,
  spentAtomic: 0n,
  reservedAtomic: 0n,
  remainingAtomic: dailyLimitAtomic,
  nextReleaseAt: null,
  weekly: null,
  monthly: null,
  hourly: null,
  payees: new Map(),
});
