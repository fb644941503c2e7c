/** The members of a team, locked by the transaction of an order. */
import type { Db } from "../../infra/db/prisma.ts";

/** The version of the newest list. It does not change before the transaction ends. */
export async function lockMembers(tx: Db, teamId: string): Promise<number> {
  // SQL: a shared row lock, which Prisma does not have. A change of the list deletes these rows.
  await tx.$queryRaw`SELECT 1 FROM team_members WHERE team_id = ${teamId} FOR SHARE`;
  return tx.ownerOrder.count({
    where: { ownerId: teamId, kind: "Members", usedAt: { not: null } },
  });
}

/** Waits for orders that are being used. Call it under the lock of the owner, before anything else is locked. */
export async function lockMembersToChange(tx: Db, teamId: string): Promise<void> {
  // SQL: a row lock, which Prisma does not have.
  await tx.$queryRaw`SELECT 1 FROM team_members WHERE team_id = ${teamId} FOR UPDATE`;
}
