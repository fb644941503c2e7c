import type { Address } from "viem";
import type { PageRequest, Place } from "../../core/paging.ts";
import {
  AGENT_FIELDS,
  type AgentSettings,
  type Field,
} from "../../../packages/rules/src/fields.ts";
import type { Value } from "../../../packages/rules/src/kinds.ts";
import {
  atomicOf,
  decimalOf,
  escapeLike,
  jsonOrNull,
  placeOf,
  readKeyset,
  databaseNow,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";
import { ApiError } from "../../errors.ts";

interface Facts extends Place {
  ownerId: string;
  name: string;
  network: string;
  walletAddress: Address;
  status: "active" | "paused" | "archived";
  expired: boolean;
  /** "stop", or the rule that paused it; null if the owner paused it, or nobody. */
  pausedBy: string | null;
  pausedAt: Date | null;
  readAt: Date;
  createdAt: Date;
  updatedAt: Date;
  archivedAt: Date | null;
}
export type AgentRow = Facts & AgentSettings;

type Stored = Prisma.AgentGetPayload<object>;

/** Reads the settings from Prisma's columns, which have the names of the settings. */
export const readStoredSettings = (fields: readonly Field[], stored: object): object =>
  Object.fromEntries(
    fields.map(({ name, member, kind }) => {
      const value = (stored as Record<string, unknown>)[name];
      return [member, value == null ? kind.unset : valueOf(kind.column, value)];
    }),
  );

function valueOf(column: Field["kind"]["column"], stored: unknown): Value {
  switch (column) {
    case "numeric":
      return atomicOf(stored as Prisma.Decimal);
    case "integer":
      return BigInt(stored as number);
    case "timestamp":
      return BigInt(Math.floor((stored as Date).getTime() / 1000));
    default:
      return stored as string;
  }
}

/** Prisma's columns of the given settings. */
export const storedSettings = (fields: readonly Field[], settings: object) =>
  Object.fromEntries(
    fields.flatMap(({ name, member, kind }) => {
      const value = (settings as Record<string, Value | undefined>)[member];
      return value === undefined ? [] : [[name, storedValue(kind.column, value)]];
    }),
  );

function storedValue(column: Field["kind"]["column"], value: Value): unknown {
  if (value === null) return null;
  switch (column) {
    case "numeric":
      return decimalOf(value as bigint);
    case "integer":
      return Number(value);
    case "timestamp":
      return new Date(Number(value) * 1000);
    default:
      return value;
  }
}

function rowOf(stored: Stored, now: Date): AgentRow {
  const { ownerId, name, network, status, createdAt, updatedAt, archivedAt, expiresAt } = stored;
  return {
    ...placeOf(stored),
    ...(readStoredSettings(AGENT_FIELDS, stored) as AgentSettings),
    ownerId,
    name,
    network,
    walletAddress: stored.walletAddress as Address,
    status: status as AgentRow["status"],
    expired: expiresAt !== null && expiresAt <= now,
    pausedBy: stored.pausedBy,
    pausedAt: stored.pausedAt,
    readAt: now,
    createdAt,
    updatedAt,
    archivedAt,
  };
}

/** The members that an owner may set. */
type AgentRules = AgentSettings & { name: string };

/** A setting that is missing is not set. */
export interface NewAgent extends Partial<AgentRules> {
  id: string;
  ownerId: string;
  name: string;
  network: string;
  walletAddress: Address;
}

export async function insertAgent(db: Db, agent: NewAgent): Promise<AgentRow> {
  const now = await databaseNow(db);
  const { id, ownerId, name, network, walletAddress } = agent;
  const facts = { id, ownerId, name, network, walletAddress, createdAt: now, updatedAt: now };
  const stored = await db.agent.create({
    data: { dailyLimit: 0, ...storedSettings(AGENT_FIELDS, agent), ...facts },
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

/** Another owner's agent is reported like one that does not exist. */
export const agentNotFound = (): ApiError =>
  new ApiError("not_found", { detail: "You have no agent with this id." });

export async function ownAgent(db: Db, owner: { id: string }, agentId: string): Promise<AgentRow> {
  const agent = await findAgent(db, owner.id, agentId);
  if (!agent) throw agentNotFound();
  return agent;
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

interface AgentFilter {
  ownerId: string;
  archived: boolean;
  /** A part of the name, or the whole address. */
  search?: string | undefined;
  /** As owners see it: an expired agent is not active. */
  status?: string | undefined;
  page: PageRequest;
}

export async function listAgents(
  db: Db,
  { ownerId, archived, search, status, page }: AgentFilter,
): Promise<AgentRow[]> {
  const now = await databaseNow(db);
  const filters: Prisma.AgentWhereInput[] = [
    { ownerId, status: archived ? "archived" : (status ?? { not: "archived" }) },
  ];
  if (status === "active") filters.push({ OR: [{ expiresAt: null }, { expiresAt: { gt: now } }] });
  if (search !== undefined)
    filters.push({
      OR: [
        { name: { contains: escapeLike(search.trim()), mode: "insensitive" } },
        { walletAddress: search.trim().toLowerCase() },
      ],
    });
  const stored = await readKeyset(page, (where, order) =>
    db.agent.findMany({ where: { AND: [...filters, where] }, ...order }),
  );
  return stored.map((agent) => rowOf(agent, now));
}

const NOT_PAUSED_BY = { pausedBy: null, pausedAt: null, pausedFacts: jsonOrNull(null) };

export type AgentChange = Partial<AgentRules & Pick<AgentRow, "status">>;

/** Sets the given members; an empty change only updates updatedAt (allowlist and keys are stored elsewhere). */
export async function updateAgent(db: Db, agentId: string, change: AgentChange): Promise<AgentRow> {
  const now = await databaseNow(db);
  const stored = await db.agent.update({
    where: { id: agentId },
    data: {
      ...storedSettings(AGENT_FIELDS, change),
      ...(change.name === undefined ? {} : { name: change.name }),
      // From now on the owner's own decision.
      ...(change.status === undefined ? {} : { status: change.status, ...NOT_PAUSED_BY }),
      ...(change.status === "archived" ? { archivedAt: now, budgetIds: [] } : {}),
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
