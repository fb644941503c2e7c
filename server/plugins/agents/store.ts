import type { Address } from "viem";
import type { PageRequest } from "../../core/paging.ts";
import { beforePlace, newestFirst, placeParams, selectPlace } from "../../infra/db/keyset.ts";
import type { Sql } from "../../infra/db/pool.ts";

export interface AgentRow {
  id: string;
  ownerId: string;
  name: string;
  network: string;
  walletAddress: Address;
  status: "active" | "paused" | "archived";
  dailyLimitAtomic: bigint;
  perPaymentLimitAtomic: bigint | null;
  expiresAt: Date | null;
  expired: boolean;
  createdAt: Date;
  createdAtMicros: bigint;
  updatedAt: Date;
  archivedAt: Date | null;
}

const COLUMNS = `a.owner_id AS "ownerId", a.name, a.network, a.wallet_address AS "walletAddress", a.status,
  a.daily_limit AS "dailyLimitAtomic", a.per_payment_limit AS "perPaymentLimitAtomic",
  a.expires_at AS "expiresAt", coalesce(a.expires_at <= now(), false) AS expired,
  a.created_at AS "createdAt", a.updated_at AS "updatedAt", a.archived_at AS "archivedAt",
  ${selectPlace("a")}`;

export interface NewAgent {
  id: string;
  ownerId: string;
  name: string;
  network: string;
  walletAddress: Address;
  dailyLimitAtomic: bigint;
  perPaymentLimitAtomic: bigint | null;
  expiresAt: Date | null;
}

export async function insertAgent(sql: Sql, agent: NewAgent): Promise<AgentRow> {
  const { rows } = await sql.query<AgentRow>(
    `INSERT INTO agents AS a (id, owner_id, name, network, wallet_address, daily_limit, per_payment_limit, expires_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING ${COLUMNS}`,
    [
      agent.id,
      agent.ownerId,
      agent.name,
      agent.network,
      agent.walletAddress,
      agent.dailyLimitAtomic.toString(),
      agent.perPaymentLimitAtomic?.toString() ?? null,
      agent.expiresAt,
    ],
  );
  return rows[0] as AgentRow;
}

export async function findAgent(
  sql: Sql,
  ownerId: string,
  agentId: string,
): Promise<AgentRow | undefined> {
  const { rows } = await sql.query<AgentRow>(
    `SELECT ${COLUMNS} FROM agents a WHERE a.id = $1 AND a.owner_id = $2`,
    [agentId, ownerId],
  );
  return rows[0];
}

/** Holds the agent's row until the transaction ends: edits and reservations come one after another. */
export async function lockAgent(
  sql: Sql,
  ownerId: string,
  agentId: string,
): Promise<AgentRow | undefined> {
  const { rows } = await sql.query<AgentRow>(
    `SELECT ${COLUMNS} FROM agents a WHERE a.id = $1 AND a.owner_id = $2 FOR UPDATE`,
    [agentId, ownerId],
  );
  return rows[0];
}

export async function listAgents(
  sql: Sql,
  args: { ownerId: string; archived: boolean; page: PageRequest },
): Promise<AgentRow[]> {
  const { rows } = await sql.query<AgentRow>(
    `SELECT ${COLUMNS} FROM agents a
      WHERE a.owner_id = $1 AND (a.status = 'archived') = $2 AND ${beforePlace("a", 3)}
      ${newestFirst("a")} LIMIT $5`,
    [args.ownerId, args.archived, ...placeParams(args.page), args.page.limit + 1],
  );
  return rows;
}

export type AgentChange = Partial<
  Pick<AgentRow, "name" | "dailyLimitAtomic" | "perPaymentLimitAtomic" | "expiresAt" | "status">
>;

const COLUMN_OF: Record<keyof AgentChange, string> = {
  name: "name",
  dailyLimitAtomic: "daily_limit",
  perPaymentLimitAtomic: "per_payment_limit",
  expiresAt: "expires_at",
  status: "status",
};

/** Sets what is given; an empty change only moves updated_at (allowlist and keys are elsewhere). */
export async function updateAgent(
  sql: Sql,
  agentId: string,
  change: AgentChange,
): Promise<AgentRow> {
  const entries = Object.entries(change) as [keyof AgentChange, unknown][];
  const sets = entries.map(([key], index) => `${COLUMN_OF[key]} = $${index + 2}`);
  if (change.status === "archived") sets.push("archived_at = now()");
  const { rows } = await sql.query<AgentRow>(
    `UPDATE agents a SET ${[...sets, "updated_at = now()"].join(", ")} WHERE a.id = $1 RETURNING ${COLUMNS}`,
    [
      agentId,
      ...entries.map(([, value]) => (typeof value === "bigint" ? value.toString() : value)),
    ],
  );
  return rows[0] as AgentRow;
}

export interface AgentActivity {
  agentId: string;
  lastActivityAt: Date | null;
  blocked24h: number;
}

/** When each agent last tried to pay, and how often it was refused within a day. */
export async function readActivity(
  sql: Sql,
  agentIds: readonly string[],
): Promise<Map<string, AgentActivity>> {
  const { rows } = await sql.query<AgentActivity>(
    `SELECT a.id AS "agentId", latest.at AS "lastActivityAt", blocked.count::int AS "blocked24h"
       FROM agents a
       LEFT JOIN LATERAL (
         SELECT p.created_at AS at FROM payments p
          WHERE p.agent_id = a.id ORDER BY p.created_at DESC, p.id DESC LIMIT 1) latest ON true
       CROSS JOIN LATERAL (
         SELECT count(*) AS count FROM payments p
          WHERE p.agent_id = a.id AND p.status = 'blocked'
            AND p.created_at > now() - interval '24 hours') blocked
      WHERE a.id = ANY($1)`,
    [agentIds],
  );
  return new Map(rows.map((row) => [row.agentId, row]));
}
