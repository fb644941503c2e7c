import type { Sql } from "../db/pool.ts";

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
