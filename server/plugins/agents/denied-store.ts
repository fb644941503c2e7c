/** What an owner never pays, from any agent. SQL compares payments with it (purser_denied). */
import { getAddress, type Address } from "viem";
import { payeeKey, type Payee } from "../../core/rules.ts";
import type { PageRequest, Place } from "../../core/paging.ts";
import { shownDenied } from "../../core/site.ts";
import { placeOf, readKeyset, type Db } from "../../infra/db/prisma.ts";
import { ApiError } from "../../errors.ts";

export interface DeniedRow extends Place {
  /** An address in lower case, or a site. */
  entry: string;
  note: string;
  addedBy: Address;
  createdAt: Date;
}

const FIELDS = { id: true, entry: true, note: true, addedBy: true, createdAt: true } as const;

interface Stored extends Pick<DeniedRow, "id" | "entry" | "note" | "createdAt"> {
  addedBy: string;
}

const rowOf = (stored: Stored): DeniedRow => ({
  ...stored,
  ...placeOf(stored),
  addedBy: getAddress(stored.addedBy),
});

export async function listDenied(db: Db, ownerId: string, page: PageRequest): Promise<DeniedRow[]> {
  const rows = await readKeyset(page, (where, order) =>
    db.deniedPayee.findMany({ where: { ownerId, ...where }, ...order, select: FIELDS }),
  );
  return rows.map(rowOf);
}

export async function findDenied(
  db: Db,
  ownerId: string,
  entry: string,
): Promise<DeniedRow | undefined> {
  const where = { ownerId_entry: { ownerId, entry } };
  const row = await db.deniedPayee.findUnique({ where, select: FIELDS });
  return row ? rowOf(row) : undefined;
}

export async function removeDenied(db: Db, id: string): Promise<void> {
  await db.deniedPayee.delete({ where: { id } });
}

/** The owner's entry that denies this site, or this payee there; undefined if none does. */
export async function deniedBy(
  db: Db,
  ownerId: string,
  { address = null, site }: { address?: Address | null; site: string },
): Promise<string | undefined> {
  // SQL: the comparison of purser_reserve.
  const rows = await db.$queryRaw<{ entry: string | null }[]>`
    SELECT entry FROM purser_denied(${ownerId}, ${address}, ${site})`;
  return rows[0]?.entry ?? undefined;
}

/** The payees of an agent's list that its owner denies, by payeeKey. */
export async function deniedOnList(db: Db, agentId: string): Promise<Set<string>> {
  // SQL: the comparison of purser_reserve, for each payee.
  const rows = await db.$queryRaw<{ address: string; site: string }[]>`
    SELECT l.address, l.site FROM allowlist_entries l JOIN agents a ON a.id = l.agent_id
      CROSS JOIN LATERAL purser_denied(a.owner_id, l.address, l.site) d
     WHERE l.agent_id = ${agentId} AND d.entry IS NOT NULL
       AND EXISTS (SELECT FROM denied_payees any_of WHERE any_of.owner_id = a.owner_id)`;
  return new Set(rows.map(payeeKey));
}

/** An owner who allows a payee must first remove it from the denied ones. Call it with the owner's row shared. */
export async function assertNotDenied(
  tx: Db,
  ownerId: string,
  payees: readonly Pick<Payee, "address" | "site">[],
): Promise<void> {
  if (payees.length === 0) return;
  // SQL: the comparison of purser_reserve, for each payee.
  const [found] = await tx.$queryRaw<{ entry: string }[]>`
    SELECT d.entry FROM unnest(${payees.map(({ address }) => address)}::text[], ${payees.map(({ site }) => site)}::text[])
             AS wanted (address, site)
      CROSS JOIN LATERAL purser_denied(${ownerId}, wanted.address, wanted.site) d
     WHERE d.entry IS NOT NULL LIMIT 1`;
  if (!found) return;
  const denied = shownDenied(found.entry);
  throw new ApiError("denied_by_owner", {
    detail: `You never pay ${denied}. Remove it from your denied payees first.`,
    extra: { denied },
  });
}

/** With the agents: what their former owner never pays, the new owner does not pay either. */
export async function giveDenied(tx: Db, from: string, to: string): Promise<void> {
  // SQL: an entry that the new owner has already stays where it is.
  await tx.$executeRaw`
    UPDATE denied_payees d SET owner_id = ${to}
     WHERE d.owner_id = ${from}
       AND NOT EXISTS (SELECT FROM denied_payees own WHERE own.owner_id = ${to} AND own.entry = d.entry)`;
}
