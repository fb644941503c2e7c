import type { Address } from "viem";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";

export interface AllowlistEntry {
  address: Address;
  label: string;
}

export interface AllowlistRow extends AllowlistEntry {
  agentId: string;
  createdAt: Date;
}

/** Entries of several agents at once, in the order they were added. */
export async function listAllowlists(
  db: Db,
  agentIds: readonly string[],
): Promise<Map<string, AllowlistRow[]>> {
  const rows = await db.allowlistEntry.findMany({
    where: { agentId: { in: [...agentIds] } },
    orderBy: [{ createdAt: "asc" }, { address: "asc" }],
  });
  const byAgent = new Map<string, AllowlistRow[]>(agentIds.map((id) => [id, []]));
  for (const row of rows)
    byAgent.get(row.agentId)?.push({ ...row, address: row.address as Address });
  return byAgent;
}

/** Adds entries; one that is there already gets the new label and keeps its date. */
export async function upsertAllowlist(
  tx: Db,
  agentId: string,
  entries: readonly AllowlistEntry[],
): Promise<void> {
  const createdAt = await databaseNow(tx);
  await tx.allowlistEntry.createMany({
    data: entries.map(({ address, label }) => ({ agentId, address, label, createdAt })),
    skipDuplicates: true,
  });
  // Those that were there: the new ones have their label already, so few are left to change.
  const known = await tx.allowlistEntry.findMany({ where: { agentId } });
  const labels = new Map(entries.map(({ address, label }) => [address, label]));
  for (const { address, label: before } of known) {
    const label = labels.get(address as Address);
    if (label !== undefined && label !== before)
      await tx.allowlistEntry.update({
        where: { agentId_address: { agentId, address } },
        data: { label },
      });
  }
}

/** Removes all entries but these. */
export async function keepOnly(
  tx: Db,
  agentId: string,
  addresses: readonly Address[],
): Promise<void> {
  await tx.allowlistEntry.deleteMany({ where: { agentId, address: { notIn: [...addresses] } } });
}

export async function removeFromAllowlist(
  tx: Db,
  agentId: string,
  address: Address,
): Promise<boolean> {
  const { count } = await tx.allowlistEntry.deleteMany({ where: { agentId, address } });
  return count === 1;
}
