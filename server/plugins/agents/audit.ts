import { newId } from "../../core/ids.ts";
import type { PageRequest } from "../../core/paging.ts";
import { beforePlace, newestFirst, placeParams, selectPlace } from "../../infra/db/keyset.ts";
import type { Sql } from "../../infra/db/pool.ts";

/** One change of rules or keys: who, what, before and after, in wire form. */
export interface AuditEntry {
  agentId: string;
  /** The owner's address. */
  actor: string;
  action: AuditAction;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
  requestId: string;
}

export type AuditAction =
  | "agent.created"
  | "agent.updated"
  | "agent.paused"
  | "agent.resumed"
  | "agent.archived"
  | "allowlist.replaced"
  | "allowlist.added"
  | "allowlist.removed"
  | "key.created"
  | "key.rotated"
  | "key.revoked";

export interface AuditRow extends AuditEntry {
  id: string;
  createdAt: Date;
  createdAtMicros: bigint;
}

/** Inside the transaction of the change itself: neither happens without the other. */
export async function insertAudit(sql: Sql, entry: AuditEntry): Promise<void> {
  await sql.query(
    `INSERT INTO audit_log (agent_id, id, actor, action, before, after, request_id)
     VALUES ($1, $2, $3, $4, $5, $6, $7)`,
    [
      entry.agentId,
      newId("aud"),
      entry.actor,
      entry.action,
      entry.before === null ? null : JSON.stringify(entry.before),
      entry.after === null ? null : JSON.stringify(entry.after),
      entry.requestId,
    ],
  );
}

export async function listAudit(sql: Sql, agentId: string, page: PageRequest): Promise<AuditRow[]> {
  const { rows } = await sql.query<AuditRow>(
    `SELECT l.agent_id AS "agentId", l.actor, l.action, l.before, l.after,
            l.request_id AS "requestId", l.created_at AS "createdAt", ${selectPlace("l")}
       FROM audit_log l WHERE l.agent_id = $1 AND ${beforePlace("l", 2)}
      ${newestFirst("l")} LIMIT $4`,
    [agentId, ...placeParams(page), page.limit + 1],
  );
  return rows;
}
