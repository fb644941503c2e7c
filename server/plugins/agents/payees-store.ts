import type { Address } from "viem";
import { payeeKey, type Payee } from "../../core/rules.ts";
import { PAYEE_FIELDS, valueIn, type PayeeSettings } from "../../../packages/rules/src/fields.ts";
import { databaseNow, type Db, type Prisma } from "../../infra/db/prisma.ts";
import { readStoredSettings, storedSettings } from "./store.ts";

export type AllowlistRow = Payee & {
  agentId: string;
  createdAt: Date;
};

const rowOf = (stored: Prisma.AllowlistEntryGetPayload<object>): AllowlistRow => ({
  ...(readStoredSettings(PAYEE_FIELDS, stored) as PayeeSettings),
  agentId: stored.agentId,
  address: stored.address as Address,
  label: stored.label,
  site: stored.site,
  createdAt: stored.createdAt,
});

const columnsOf = (payee: Payee, rest: { agentId: string; createdAt: Date }) => ({
  ...rest,
  address: payee.address,
  label: payee.label,
  site: payee.site,
  ...storedSettings(PAYEE_FIELDS, payee),
});

/** The entries of several agents, in the order in which they were added. */
export async function listAllowlists(
  db: Db,
  agentIds: readonly string[],
): Promise<Map<string, AllowlistRow[]>> {
  const rows = await db.allowlistEntry.findMany({
    where: { agentId: { in: [...agentIds] } },
    orderBy: [{ createdAt: "asc" }, { address: "asc" }, { site: "asc" }],
  });
  const byAgent = new Map<string, AllowlistRow[]>(agentIds.map((id) => [id, []]));
  for (const row of rows) byAgent.get(row.agentId)?.push(rowOf(row));
  return byAgent;
}

export const entriesOf = async (db: Db, agentId: string): Promise<AllowlistRow[]> =>
  (await listAllowlists(db, [agentId])).get(agentId) ?? [];

/** The entries that differ, before and after. Other entries are neither written nor recorded in the audit. */
export interface AllowlistChange {
  before: AllowlistRow[];
  after: Payee[];
}

export function allowlistChange(
  before: readonly AllowlistRow[],
  entries: readonly Payee[],
): AllowlistChange {
  const known = new Map(before.map((row) => [payeeKey(row), row]));
  const wanted = new Map(entries.map((entry) => [payeeKey(entry), entry]));
  return {
    before: before.filter((row) => !isSame(row, wanted.get(payeeKey(row)))),
    after: entries.filter((entry) => !isSame(entry, known.get(payeeKey(entry)))),
  };
}

/**
 * An unchanged entry keeps its date. In single statements, because a thousand of them would lock the agent's row for
 * seconds.
 */
export async function storeAllowlist(
  tx: Db,
  agentId: string,
  { before, after }: AllowlistChange,
): Promise<void> {
  const now = await databaseNow(tx);
  const known = new Map(before.map((row) => [payeeKey(row), row]));
  // SQL: pairs of address and site; Prisma would compare each row with every pair.
  await tx.$executeRaw`
    DELETE FROM allowlist_entries e
     USING unnest(${before.map(({ address }) => address)}::text[], ${before.map(({ site }) => site)}::text[])
           AS gone (address, site)
     WHERE e.agent_id = ${agentId} AND e.address = gone.address AND e.site = gone.site`;
  await tx.allowlistEntry.createMany({
    data: after.map((entry) =>
      columnsOf(entry, { agentId, createdAt: known.get(payeeKey(entry))?.createdAt ?? now }),
    ),
  });
}

const isSame = (left: Payee, right: Payee | undefined): boolean =>
  right !== undefined &&
  left.label === right.label &&
  PAYEE_FIELDS.every((field) => valueIn(left, field) === valueIn(right, field));

/** Whether this agent, which is restricted to its payees' sites, may fetch from this one. */
export async function hasSite(db: Db, agentId: string, site: string): Promise<boolean> {
  const now = await databaseNow(db);
  const entry = await db.allowlistEntry.findFirst({
    where: { agentId, site, OR: [{ expiresAt: null }, { expiresAt: { gt: now } }] },
    select: { site: true },
  });
  return entry !== null;
}
