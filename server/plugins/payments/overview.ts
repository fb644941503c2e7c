/**
 * An owner's overview of all its agents, and an agent's view of itself: totals, time series, limits and
 * balances.
 */
import { getAddress, type Address } from "viem";
import {
  AGENT_FIELDS,
  SELF_FIELDS,
  settingsOnWire,
  type AgentSettings,
  type SelfWire,
} from "../../../packages/rules/src/fields.ts";
import { formatAtomic } from "../../core/money.ts";
import {
  balanceOn,
  balancesOnWire,
  type ReadAllBalances,
  type Wallets,
} from "../agents/balances.ts";
import { atomicOf, databaseNow, hoursBefore, type Db, type Prisma } from "../../infra/db/prisma.ts";
import type { Overview } from "../../schemas/overview.ts";
import type { Limits } from "../guardrails/rules.ts";
import type { AgentSelf } from "../../schemas/payments.ts";
import type { AllowlistRow } from "../agents/payees-store.ts";
import { readStoredSettings } from "../agents/store.ts";
import { viewLimits, viewPayees } from "../agents/view.ts";
import type { OpenTasks } from "../tasks/index.ts";

interface OverviewDeps {
  agents(args: { ownerId: string; agentId: string | undefined }): Promise<OverviewAgent[]>;
  limits(agentIds: readonly string[]): Promise<Map<string, Limits>>;
  buckets(args: {
    agentIds: readonly string[];
    unit: "hour" | "day";
    buckets: number;
  }): Promise<BucketRow[]>;
  blocked(agentIds: readonly string[]): Promise<number>;
  balances: ReadAllBalances;
  ledger(ownerId: string): Promise<Overview["ledger"]>;
  gas(ownerId: string): Promise<Overview["gas"]>;
  /** The configured networks, in their order. */
  networks: readonly string[];
}

export async function readOverview(
  deps: OverviewDeps,
  args: { ownerId: string; agentId: string | undefined },
): Promise<Overview> {
  const agents = await deps.agents(args);
  const agentIds = agents.map(({ id }) => id);
  const current = agents.filter(({ isArchived }) => !isArchived);
  const [limits, hourly, daily, blocked24h, balances, ledger, gas] = await Promise.all([
    deps.limits(agentIds),
    deps.buckets({ agentIds, unit: "hour", buckets: 24 }),
    deps.buckets({ agentIds, unit: "day", buckets: 7 }),
    deps.blocked(agentIds),
    deps.balances(current.map(({ walletAddress }) => walletAddress)),
    deps.ledger(args.ownerId),
    deps.gas(args.ownerId),
  ]);
  const sum = (read: (limits: Limits) => bigint): string =>
    formatAtomic([...limits.values()].reduce((total, one) => total + read(one), 0n));
  const totals = deps.networks.map((network) => ({
    network,
    atomic: sumOf(
      current.map((agent) => balanceOn(balances.get(agent.walletAddress), network)?.atomic),
    ),
  }));
  const onWire = (atomic: bigint | undefined) =>
    atomic === undefined ? null : formatAtomic(atomic);
  return {
    totals: {
      balance: onWire(sumOf(totals.map(({ atomic }) => atomic))),
      balances: totals.map(({ network, atomic }) => ({ network, balance: onWire(atomic) })),
      spent24h: sum(({ spentAtomic }) => spentAtomic),
      reserved: sum(({ reservedAtomic }) => reservedAtomic),
      blocked24h,
      agents: current.length,
      activeAgents: current.filter(({ isActive }) => isActive).length,
    },
    hourly: hourly.map(present),
    daily: daily.map(present),
    gas,
    ledger,
  };
}

/** Undefined if any part is unknown, because an incomplete sum would be wrong. */
const sumOf = (parts: readonly (bigint | undefined)[]): bigint | undefined =>
  parts.reduce<bigint | undefined>(
    (total, part) => (total === undefined || part === undefined ? undefined : total + part),
    0n,
  );

const present = (row: BucketRow): Overview["hourly"][number] => ({
  at: row.at.toISOString(),
  spent: formatAtomic(row.spentAtomic),
  count: row.count,
  blocked: row.blocked,
});

interface OverviewAgent {
  id: string;
  network: string;
  walletAddress: Address;
  isActive: boolean;
  isArchived: boolean;
}

/** Includes archived agents: what they spent today still counts. */
export async function overviewAgents(
  db: Db,
  args: { ownerId: string; agentId: string | undefined },
): Promise<OverviewAgent[]> {
  const { ownerId, agentId } = args;
  const agents = await db.agent.findMany({
    where: { ownerId, ...(agentId === undefined ? {} : { id: agentId }) },
    select: { id: true, network: true, walletAddress: true, status: true, expiresAt: true },
  });
  const now = await databaseNow(db);
  return agents.map(({ status, expiresAt, walletAddress, ...agent }) => ({
    ...agent,
    walletAddress: walletAddress as Address,
    isActive: status === "active" && (expiresAt === null || expiresAt > now),
    isArchived: status === "archived",
  }));
}

interface BucketRow {
  at: Date;
  spentAtomic: bigint;
  count: number;
  blocked: number;
}

/** Buckets of equal length up to now, gaps filled with zeros, oldest first. */
export async function paymentBuckets(
  db: Db,
  args: { agentIds: readonly string[]; unit: "hour" | "day"; buckets: number },
): Promise<BucketRow[]> {
  const { agentIds, unit, buckets } = args;
  // SQL: sums per time bucket with gaps filled; Prisma only groups by columns.
  const rows = await db.$queryRaw<(Omit<BucketRow, "spentAtomic"> & { spent: Prisma.Decimal })[]>`
    WITH bounds AS (
      SELECT date_trunc(${unit}, now(), 'UTC') AS newest, ('1 ' || ${unit})::interval AS step),
    series AS (
      SELECT generate_series(newest - (${buckets}::int - 1) * step, newest, step) AS at FROM bounds),
    sums AS (
      SELECT date_trunc(${unit}, p.created_at, 'UTC') AS at,
             COALESCE(sum(p.amount) FILTER (WHERE p.counted), 0) AS spent,
             count(*) FILTER (WHERE p.counted)::int AS count,
             COALESCE(sum(1 + p.repeats) FILTER (WHERE p.status = 'blocked'), 0)::int AS blocked
        FROM payments p, bounds
       WHERE p.agent_id = ANY(${agentIds}::text[]) AND (p.counted OR p.status = 'blocked')
         AND p.created_at >= newest - (${buckets}::int - 1) * step
       GROUP BY 1)
    SELECT series.at, COALESCE(sums.spent, 0) AS spent, COALESCE(sums.count, 0) AS count,
           COALESCE(sums.blocked, 0) AS blocked
      FROM series LEFT JOIN sums ON sums.at = series.at ORDER BY series.at`;
  return rows.map(({ spent, ...row }) => ({ ...row, spentAtomic: atomicOf(spent) }));
}

export async function blockedLastDay(db: Db, agentIds: readonly string[]): Promise<number> {
  const since = hoursBefore(await databaseNow(db), 24);
  const { _count, _sum } = await db.payment.aggregate({
    where: { agentId: { in: [...agentIds] }, status: "blocked", createdAt: { gt: since } },
    _count: true,
    _sum: { repeats: true },
  });
  return _count + (_sum.repeats ?? 0);
}

/** `GET /api/agents/me`: an agent's view of its wallet, limits and key. */

export function presentSelf(
  row: SelfRow,
  around: {
    limits: Limits;
    allowlist: readonly AllowlistRow[];
    denied: ReadonlySet<string>;
    wallets: Wallets;
    tasks: OpenTasks | undefined;
    asset: Address;
  },
): AgentSelf {
  const address = getAddress(row.walletAddress);
  const balances = around.wallets.balances.get(row.walletAddress);
  const own = balanceOn(balances, row.network);
  return {
    id: row.id,
    name: row.name,
    status: row.expired && row.status === "active" ? "expired" : row.status,
    expired: row.expired,
    wallet: address,
    walletAddress: address,
    network: row.network,
    asset: getAddress(around.asset),
    balance: own === undefined ? null : formatAtomic(own.atomic),
    balances: balancesOnWire(balances),
    limits: viewLimits(row, { ...around, wallet: around.wallets.facts.get(row.id) }),
    ...(around.tasks && { tasks: around.tasks }),
    ...(settingsOnWire(SELF_FIELDS, row) as SelfWire),
    allowlist: viewPayees(around.allowlist, around.limits, around.denied),
    key: {
      id: row.keyId,
      label: row.keyLabel,
      prefix: row.keyPrefix,
      last4: row.keyLast4,
      createdAt: row.keyCreatedAt.toISOString(),
      expiresAt: row.keyExpiresAt?.toISOString() ?? null,
    },
  };
}

interface SelfRow extends AgentSettings {
  id: string;
  name: string;
  network: string;
  walletAddress: Address;
  status: string;
  expired: boolean;
  pausedBy: string | null;
  readAt: Date;
  keyId: string;
  keyLabel: string;
  keyPrefix: string;
  keyLast4: string;
  keyCreatedAt: Date;
  keyExpiresAt: Date | null;
}

/** The agent with the API key of the request. */
export async function findSelf(
  db: Db,
  args: { agentId: string; apiKeyId: string },
): Promise<SelfRow | undefined> {
  const key = await db.apiKey.findUnique({
    where: { id: args.apiKeyId, agentId: args.agentId },
    include: { agent: true },
  });
  if (key === null) return undefined;
  const now = await databaseNow(db);
  const { agent } = key;
  return {
    id: agent.id,
    name: agent.name,
    network: agent.network,
    walletAddress: agent.walletAddress as Address,
    status: agent.status,
    expired: agent.expiresAt !== null && agent.expiresAt <= now,
    pausedBy: agent.pausedBy,
    readAt: now,
    ...(readStoredSettings(AGENT_FIELDS, agent) as AgentSettings),
    keyId: key.id,
    keyLabel: key.label,
    keyPrefix: key.prefix,
    keyLast4: key.last4,
    keyCreatedAt: key.createdAt,
    keyExpiresAt: key.expiresAt,
  };
}
