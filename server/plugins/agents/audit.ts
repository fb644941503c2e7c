import { newId } from "../../core/ids.ts";
import type { PageRequest, Place } from "../../core/paging.ts";
import { placeOf, readKeyset, jsonOrNull, type Db } from "../../infra/db/prisma.ts";

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

export interface AuditRow extends AuditEntry, Place {
  createdAt: Date;
}

/** Inside the transaction of the change itself: neither happens without the other. */
export async function insertAudit(tx: Db, entry: AuditEntry): Promise<void> {
  await tx.auditEntry.create({
    data: {
      ...entry,
      id: newId("aud"),
      before: jsonOrNull(entry.before),
      after: jsonOrNull(entry.after),
    },
  });
}

export async function listAudit(db: Db, agentId: string, page: PageRequest): Promise<AuditRow[]> {
  const rows = await readKeyset(page, (where, order) =>
    db.auditEntry.findMany({
      where: { agentId, ...where },
      ...order,
    }),
  );
  return rows.map((row) => ({ ...(row as unknown as AuditEntry & typeof row), ...placeOf(row) }));
}
