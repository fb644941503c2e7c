import type { Db } from "../../infra/db/prisma.ts";

/** One naming or move of an owner at a time. Whatever only refers to the owner's row goes on. */
export async function lockOwner(tx: Db, ownerId: string): Promise<boolean> {
  // SQL: a row lock, which Prisma does not have.
  const rows = await tx.$queryRaw<
    unknown[]
  >`SELECT 1 FROM owners WHERE id = ${ownerId} FOR NO KEY UPDATE`;
  return rows.length === 1;
}

/** All agents of an owner, archived ones included, held until the transaction ends. */
export async function lockAgents(tx: Db, ownerId: string): Promise<string[]> {
  // SQL: row locks, in one order for everybody.
  const rows = await tx.$queryRaw<{ id: string }[]>`
    SELECT id FROM agents WHERE owner_id = ${ownerId} ORDER BY id FOR UPDATE`;
  return rows.map(({ id }) => id);
}

/** With all they have, but for what the former owner was asked or allowed: that was its word, and the new owner's counts. */
export async function giveAgents(tx: Db, from: string, to: string): Promise<void> {
  await tx.approval.updateMany({
    where: { ownerId: from, state: { in: ["open", "granted"] } },
    data: { state: "expired" },
  });
  await tx.agent.updateMany({ where: { ownerId: from }, data: { ownerId: to } });
  await tx.listing.updateMany({ where: { ownerId: from }, data: { ownerId: to } });
}

export async function keepSecondSignature(tx: Db, nonce: string, signature: string): Promise<void> {
  const secondSignature = Uint8Array.from(Buffer.from(signature.slice(2), "hex"));
  await tx.ownerOrder.update({ where: { nonce }, data: { secondSignature } });
}
