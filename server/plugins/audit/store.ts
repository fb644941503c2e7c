/** Stored audit entries: those of a transaction, and one unbroken hash chain per owner. */
import type { Hex } from "viem";
import { domainOf, formOf, typedDataOf, type OrderKind } from "../../core/orders.ts";
import { newId } from "../../core/ids.ts";
import type { PageRequest, Place } from "../../core/paging.ts";
import { jsonOrNull, placeOf, readKeyset, type Db } from "../../infra/db/prisma.ts";
import type { EntryBody, Proof } from "./authority.ts";
import type { ChainHead, ChainRow } from "./verify.ts";

/** The actor of entries without a known person: the chain itself, or a refused signature. */
export const NOBODY = "0x0000000000000000000000000000000000000000";

interface AuditNote {
  ownerId: string;
  agentId: string | null;
  /** An address. */
  actor: string;
  action: AuditAction;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
  requestId: string;
  /** The signed content, so that anybody can verify it again. */
  proof?: Proof;
}

/** `.refused` entries are written only a few times an hour, because third parties can cause them. */
export type AuditAction =
  /** With its first passkey, which signs nothing when it is made. */
  | "owner.created"
  | "session.created"
  | "session.ended"
  | "session.revoked"
  | "session.refused"
  | "agent.created"
  | "agent.updated"
  | "agent.paused"
  | "agent.resumed"
  /** Written by purser_pause_by_rule. */
  | "agent.paused_by_rule"
  | "agent.archived"
  | "agent.refused"
  | "allowlist.replaced"
  | "allowlist.added"
  | "allowlist.removed"
  | "key.created"
  | "key.rotated"
  | "key.revoked"
  | "merchant_key.created"
  | "merchant_key.revoked"
  | "connection.granted"
  | "connection.revoked"
  | "approval.granted"
  | "approval.declined"
  | "webhook.created"
  | "webhook.changed"
  | "webhook.deleted"
  | "webhook.secret_rotated"
  /** Written by plugins/notifications/deliveries-store.ts. */
  | "webhook.disabled"
  | "signature.refused"
  | "screening.refused"
  /** Written by purser_order_audit. */
  | "policy.signed"
  | "key.signed"
  | "payment.approved"
  | "second.named"
  | "passkeys.signed"
  | "payout.named"
  | "members.signed"
  /** A member opened a session for a team. */
  | "team.entered"
  | "owner.moved"
  | "owner.received"
  /** Written where it arrives, when an operator moved it from another cell. */
  | "owner.changed_cell"
  | "resume.signed"
  | "owner.stopped"
  | "owner.resumed"
  | "allow_again.signed"
  | "owner.payee_denied"
  | "owner.payee_allowed"
  | "budget.signed"
  | "budget.created"
  | "budget.changed"
  | "budget.archived"
  | "email.named"
  | "email.confirmed"
  | "email.removed"
  | "email.stopped"
  | "push.added"
  | "push.changed"
  /** Also written by purser_push_stop. */
  | "push.removed"
  | "withdrawal.ordered"
  /** Written by purser_withdrawal_audit. */
  | "withdrawal.settled"
  | "withdrawal.voided"
  /** Written by purser_payment_corrected. */
  | "payment.corrected";

/**
 * Called in the transaction of the change, so that neither exists without the other. The entry gets its place in the
 * chain when the transaction commits (purser_audit_chain), so the chain's head is always locked last.
 */
export async function noteAudit(tx: Db, note: AuditNote): Promise<void> {
  await tx.auditNote.create({
    data: {
      ...note,
      id: newId("aud"),
      before: jsonOrNull(note.before),
      after: jsonOrNull(note.after),
      proof: jsonOrNull(note.proof ?? null),
    },
  });
}

export interface AuditRow extends Place {
  seq: bigint;
  hash: Uint8Array;
  entry: EntryBody;
  createdAt: Date;
}

/** Newest first: all entries of an owner, or those about one agent under all its owners. */
export async function listAudit(
  db: Db,
  of: { ownerId: string } | { agentId: string },
  page: PageRequest,
): Promise<AuditRow[]> {
  const rows = await readKeyset(page, (where, order) =>
    db.auditEntry.findMany({ where: { ...of, ...where }, ...order }),
  );
  return rows.map((row) => ({
    ...placeOf(row),
    seq: row.seq,
    hash: row.hash,
    entry: JSON.parse(row.body) as EntryBody,
    createdAt: row.createdAt,
  }));
}

const BATCH = 200;

/** An owner's chain in order, in batches. */
export async function* readChain(
  db: Db,
  ownerId: string,
  afterSeq: bigint,
): AsyncGenerator<ChainRow> {
  for (let after = afterSeq; ;) {
    const rows = await db.auditEntry.findMany({
      where: { ownerId, seq: { gt: after } },
      orderBy: { seq: "asc" },
      take: BATCH,
    });
    const orders = await ordersOf(db, ownerId, rows);
    for (const row of rows) {
      after = row.seq;
      const order = orders.get(row.seq);
      yield {
        ...(order === undefined ? {} : { order }),
        seq: Number(row.seq),
        prevHash: hex(row.prevHash),
        hash: hex(row.hash),
        body: row.body,
        columns: { id: row.id, agentId: row.agentId, action: row.action, at: row.createdAt },
      };
    }
    if (rows.length < BATCH) return;
  }
}

/** The typed data of a stored order; without its structs if this release does not know them, which verifying reports. */
function storedOrder(
  kind: OrderKind,
  { document, digest, chainId }: { document: unknown; digest: string; chainId: number },
): object {
  try {
    const order = document as never;
    const form = formOf(kind, order, chainId, digest as Hex) ?? "numbers";
    return typedDataOf(kind, order, chainId, form);
  } catch {
    return { primaryType: kind, domain: domainOf(chainId, "numbers"), message: document };
  }
}

/** The signed orders that entries name by their digest. */
async function ordersOf(
  db: Db,
  ownerId: string,
  rows: readonly { seq: bigint; body: string }[],
): Promise<Map<bigint, unknown>> {
  const named = new Map<bigint, { digest: string; agentId: string }>();
  for (const { seq, body } of rows) {
    const { proof, agentId } = JSON.parse(body) as EntryBody;
    // An order without an agent is stored under an empty agent id.
    if (proof?.kind === "order" && proof.order === undefined)
      named.set(seq, { digest: proof.digest, agentId: agentId ?? "" });
  }
  if (named.size === 0) return new Map();
  const found = await db.ownerOrder.findMany({
    where: { ownerId, OR: [...named.values()] },
    select: { digest: true, kind: true, document: true, chainId: true },
  });
  const byDigest = new Map(
    found.map(({ digest, kind, document, chainId }) => [
      digest,
      storedOrder(kind as OrderKind, { document, digest, chainId: Number(chainId) }),
    ]),
  );
  return new Map(
    [...named].flatMap(([seq, { digest }]) => {
      const order = byDigest.get(digest);
      return order === undefined ? [] : [[seq, order] as const];
    }),
  );
}

const NAMING: OrderKind[] = ["Members", "Passkeys", "PayoutAddress", "SecondWallet"];

/** The stored orders that name who signs for an owner, and where its money goes. */
export const namingOrders = (
  db: Db,
  ownerId: string,
): Promise<{ kind: string; digest: string }[]> =>
  db.ownerOrder.findMany({
    where: { ownerId, kind: { in: NAMING }, usedAt: { not: null } },
    orderBy: { usedAt: "asc" },
    select: { kind: true, digest: true },
  });

export async function readHead(db: Db, ownerId: string): Promise<ChainHead> {
  const head = await db.auditHead.findUnique({ where: { ownerId } });
  return head ? { seq: Number(head.seq), hash: hex(head.hash) } : { seq: 0, hash: NO_HASH };
}

/** All owners with an audit, or the one with this id or address. */
export async function ownersWithAudit(
  db: Db,
  named: string | undefined,
): Promise<{ id: string; address: string }[]> {
  const who = named === undefined ? {} : { OR: [{ id: named }, { address: named.toLowerCase() }] };
  return db.owner.findMany({
    where: { auditHead: { isNot: null }, ...who },
    select: { id: true, address: true },
    orderBy: { id: "asc" },
  });
}

export async function findOwnerOf(db: Db, agentId: string): Promise<string | undefined> {
  const agent = await db.agent.findUnique({ where: { id: agentId }, select: { ownerId: true } });
  return agent?.ownerId;
}

export const NO_HASH = "0".repeat(64);

export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
