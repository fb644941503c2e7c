import type { Address } from "viem";
import type { Payee } from "../../core/rules.ts";
import {
  atomicOrNull,
  databaseNow,
  decimalOrNull,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";

export interface AllowlistRow extends Payee {
  agentId: string;
  createdAt: Date;
}

const rowOf = (stored: Prisma.AllowlistEntryGetPayload<object>): AllowlistRow => ({
  agentId: stored.agentId,
  address: stored.address as Address,
  label: stored.label,
  site: stored.site,
  dailyLimitAtomic: atomicOrNull(stored.dailyLimit),
  perPaymentLimitAtomic: atomicOrNull(stored.perPaymentLimit),
  expiresAtSeconds:
    stored.expiresAt === null ? null : BigInt(Math.floor(stored.expiresAt.getTime() / 1000)),
  createdAt: stored.createdAt,
});

const columnsOf = (payee: Payee, rest: { agentId: string; createdAt: Date }) => ({
  ...rest,
  address: payee.address,
  label: payee.label,
  site: payee.site,
  dailyLimit: decimalOrNull(payee.dailyLimitAtomic),
  perPaymentLimit: decimalOrNull(payee.perPaymentLimitAtomic),
  expiresAt:
    payee.expiresAtSeconds === null ? null : new Date(Number(payee.expiresAtSeconds) * 1000),
});

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
  for (const row of rows) byAgent.get(row.agentId)?.push(rowOf(row));
  return byAgent;
}

export const entriesOf = async (db: Db, agentId: string): Promise<AllowlistRow[]> =>
  (await listAllowlists(db, [agentId])).get(agentId) ?? [];

/**
 * Adds entries; one that is there already takes the new terms and keeps its date. All at once: a thousand statements
 * would hold the agent's row for seconds.
 */
export async function upsertAllowlist(
  tx: Db,
  agentId: string,
  entries: readonly Payee[],
): Promise<void> {
  const now = await databaseNow(tx);
  const known = new Map((await entriesOf(tx, agentId)).map((row) => [row.address, row]));
  const changed = entries.filter((entry) => !isSame(known.get(entry.address), entry));
  const address = { in: changed.map((entry) => entry.address) };
  await tx.allowlistEntry.deleteMany({ where: { agentId, address } });
  await tx.allowlistEntry.createMany({
    data: changed.map((entry) => {
      const createdAt = known.get(entry.address)?.createdAt ?? now;
      return columnsOf(entry, { agentId, createdAt });
    }),
  });
}

export const isSame = (left: Payee | undefined, right: Payee): boolean =>
  left !== undefined &&
  left.label === right.label &&
  left.site === right.site &&
  left.dailyLimitAtomic === right.dailyLimitAtomic &&
  left.perPaymentLimitAtomic === right.perPaymentLimitAtomic &&
  left.expiresAtSeconds === right.expiresAtSeconds;

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
