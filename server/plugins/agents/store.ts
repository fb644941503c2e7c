import type { Address } from "viem";
import type { PageRequest, Place } from "../../core/paging.ts";
import {
  atomicOf,
  atomicOrNull,
  decimalOf,
  decimalOrNull,
  placeOf,
  readKeyset,
  databaseNow,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";

export interface AgentRow extends Place {
  ownerId: string;
  name: string;
  network: string;
  walletAddress: Address;
  status: "active" | "paused" | "archived";
  dailyLimitAtomic: bigint;
  weeklyLimitAtomic: bigint | null;
  monthlyLimitAtomic: bigint | null;
  perPaymentLimitAtomic: bigint | null;
  paymentsPerHour: number | null;
  fetch: "any" | "sites";
  expiresAt: Date | null;
  expired: boolean;
  createdAt: Date;
  updatedAt: Date;
  archivedAt: Date | null;
}

type Stored = Prisma.AgentGetPayload<object>;

function rowOf(stored: Stored, now: Date): AgentRow {
  const { dailyLimit, weeklyLimit, monthlyLimit, perPaymentLimit, ...rest } = stored;
  const { windowSum: _sum, windowTailAt: _tail, ...agent } = rest;
  return {
    ...agent,
    ...placeOf(stored),
    walletAddress: stored.walletAddress as Address,
    status: stored.status as AgentRow["status"],
    dailyLimitAtomic: atomicOf(dailyLimit),
    weeklyLimitAtomic: atomicOrNull(weeklyLimit),
    monthlyLimitAtomic: atomicOrNull(monthlyLimit),
    perPaymentLimitAtomic: atomicOrNull(perPaymentLimit),
    fetch: stored.fetch as AgentRow["fetch"],
    expired: stored.expiresAt !== null && stored.expiresAt <= now,
  };
}

/** The members that an owner may set. */
type AgentRules = Pick<
  AgentRow,
  | "name"
  | "dailyLimitAtomic"
  | "weeklyLimitAtomic"
  | "monthlyLimitAtomic"
  | "perPaymentLimitAtomic"
  | "paymentsPerHour"
  | "fetch"
  | "expiresAt"
>;

export interface NewAgent extends AgentRules {
  id: string;
  ownerId: string;
  network: string;
  walletAddress: Address;
}

export async function insertAgent(db: Db, agent: NewAgent): Promise<AgentRow> {
  const now = await databaseNow(db);
  const { id, ownerId, network, walletAddress, ...rules } = agent;
  const stored = await db.agent.create({
    data: {
      ...columnsOf(rules),
      id,
      ownerId,
      network,
      walletAddress,
      name: agent.name,
      dailyLimit: decimalOf(agent.dailyLimitAtomic),
      createdAt: now,
      updatedAt: now,
    },
  });
  return rowOf(stored, now);
}

export async function findAgent(
  db: Db,
  ownerId: string,
  agentId: string,
): Promise<AgentRow | undefined> {
  const stored = await db.agent.findUnique({ where: { id: agentId, ownerId } });
  return stored === null ? undefined : rowOf(stored, await databaseNow(db));
}

/** Locks the agent's row until the transaction ends, so that edits and reservations run one after another. */
export async function lockAgent(
  tx: Db,
  ownerId: string,
  agentId: string,
): Promise<AgentRow | undefined> {
  // SQL: a row lock, which Prisma does not have.
  await tx.$queryRaw`SELECT 1 FROM agents WHERE id = ${agentId} AND owner_id = ${ownerId} FOR UPDATE`;
  return findAgent(tx, ownerId, agentId);
}

export async function listAgents(
  db: Db,
  args: { ownerId: string; archived: boolean; page: PageRequest },
): Promise<AgentRow[]> {
  const { ownerId, archived, page } = args;
  const stored = await readKeyset(page, (where, order) =>
    db.agent.findMany({
      where: { ownerId, status: archived ? "archived" : { not: "archived" }, ...where },
      ...order,
    }),
  );
  if (stored.length === 0) return [];
  const now = await databaseNow(db);
  return stored.map((agent) => rowOf(agent, now));
}

export type AgentChange = Partial<AgentRules & Pick<AgentRow, "status">>;

const columnsOf = (change: AgentChange) => {
  const {
    dailyLimitAtomic,
    weeklyLimitAtomic,
    monthlyLimitAtomic,
    perPaymentLimitAtomic,
    ...rest
  } = change;
  return {
    ...rest,
    ...(dailyLimitAtomic === undefined ? {} : { dailyLimit: decimalOf(dailyLimitAtomic) }),
    ...(weeklyLimitAtomic === undefined ? {} : { weeklyLimit: decimalOrNull(weeklyLimitAtomic) }),
    ...(monthlyLimitAtomic === undefined
      ? {}
      : { monthlyLimit: decimalOrNull(monthlyLimitAtomic) }),
    ...(perPaymentLimitAtomic === undefined
      ? {}
      : { perPaymentLimit: decimalOrNull(perPaymentLimitAtomic) }),
  };
};

/** Sets the given members; an empty change only updates updatedAt (allowlist and keys are stored elsewhere). */
export async function updateAgent(db: Db, agentId: string, change: AgentChange): Promise<AgentRow> {
  const now = await databaseNow(db);
  const stored = await db.agent.update({
    where: { id: agentId },
    data: {
      ...columnsOf(change),
      ...(change.status === "archived" ? { archivedAt: now } : {}),
      updatedAt: now,
    },
  });
  return rowOf(stored, now);
}

export interface AgentActivity {
  agentId: string;
  lastActivityAt: Date | null;
  blocked24h: number;
}

/** When each agent last tried to pay, and how many payments were refused within a day. */
export async function readActivity(
  db: Db,
  agentIds: readonly string[],
): Promise<Map<string, AgentActivity>> {
  // SQL: LATERAL for the newest payment of each of many agents; Prisma would read all their payments.
  const rows = await db.$queryRaw<AgentActivity[]>`
    SELECT a.id AS "agentId", latest.at AS "lastActivityAt", blocked.count::int AS "blocked24h"
      FROM agents a
      LEFT JOIN LATERAL (
        SELECT p.created_at AS at FROM payments p
         WHERE p.agent_id = a.id ORDER BY p.created_at DESC, p.id DESC LIMIT 1) latest ON true
     CROSS JOIN LATERAL (
        SELECT COALESCE(sum(1 + p.repeats), 0) AS count FROM payments p
         WHERE p.agent_id = a.id AND p.status = 'blocked'
           AND p.created_at > now() - interval '24 hours') blocked
     WHERE a.id = ANY(${agentIds}::text[])`;
  return new Map(rows.map((row) => [row.agentId, row]));
}

/** The outstanding amount of the wallet, as seen by the transaction that has locked the agent. */
export async function outstandingOf(
  tx: Db,
  args: { agentId: string; chainId: number; balanceBlock: bigint },
): Promise<bigint> {
  // SQL: the amount is computed by a SQL function, and this transaction has locked the agent's row.
  const rows = await tx.$queryRaw<{ total: Prisma.Decimal }[]>`
    SELECT purser_outstanding(${args.agentId}, ${BigInt(args.chainId)}, ${args.balanceBlock}) AS total`;
  return rows[0] ? atomicOf(rows[0].total) : 0n;
}
