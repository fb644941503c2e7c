import type { Db } from "../../infra/db/prisma.ts";
import { giveDenied } from "../agents/denied-store.ts";

/** All agents of an owner, including archived ones, locked until the transaction ends. */
export async function lockAgents(tx: Db, ownerId: string): Promise<string[]> {
  // SQL: row locks, always in the same order.
  const rows = await tx.$queryRaw<{ id: string }[]>`
    SELECT id FROM agents WHERE owner_id = ${ownerId} ORDER BY id FOR UPDATE`;
  return rows.map(({ id }) => id);
}

/**
 * Moves agents with all their data, budgets, listings and denied payees, but without the former owner's approvals: only the new owner's
 * decisions count.
 */
export async function giveAgents(tx: Db, from: string, to: string): Promise<void> {
  await tx.approval.updateMany({
    where: { ownerId: from, state: { in: ["open", "granted"] } },
    data: { state: "expired" },
  });
  await tx.agent.updateMany({ where: { ownerId: from }, data: { ownerId: to } });
  await tx.budget.updateMany({ where: { ownerId: from }, data: { ownerId: to } });
  await tx.listing.updateMany({ where: { ownerId: from }, data: { ownerId: to } });
  await giveDenied(tx, from, to);
}

export async function keepSecondSignature(tx: Db, nonce: string, signature: string): Promise<void> {
  const secondSignature = Uint8Array.from(Buffer.from(signature.slice(2), "hex"));
  await tx.ownerOrder.update({ where: { nonce }, data: { secondSignature } });
}
