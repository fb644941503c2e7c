import { type Address, getAddress } from "viem";
import { ApiError } from "../../errors.ts";
import { type Db, databaseNow } from "../../infra/db/prisma.ts";
import { type AllowlistInput, MAX_ALLOWLIST } from "../../schemas/agents.ts";
import {
  changeAgent,
  readAddress,
  readAllowlist,
  readLabel,
  refuseField,
  type OwnerCall,
} from "./change.ts";
import { updateAgent } from "./store.ts";

/** The whole list at once (bulk paste). Entries that stay keep the date they were added. */
export async function replaceAllowlist(
  call: OwnerCall,
  agentId: string,
  items: AllowlistInput,
): Promise<AllowlistRow[]> {
  const entries = readAllowlist(items);
  return changeAgent(call, agentId, async (tx, _agent, audit) => {
    const before = await entriesOf(tx, agentId);
    await keepOnly(
      tx,
      agentId,
      entries.map(({ address }) => address),
    );
    if (entries.length > 0) await upsertAllowlist(tx, agentId, entries);
    const after = await entriesOf(tx, agentId);
    if (same(before, after)) return after;
    await updateAgent(tx, agentId, {});
    await audit({
      action: "allowlist.replaced",
      before: { allowlist: before.map(fact) },
      after: { allowlist: after.map(fact) },
    });
    return after;
  });
}

/** Adds one address, or gives one that is there a new label. */
export async function addToAllowlist(
  call: OwnerCall,
  agentId: string,
  body: { address: string; label?: string },
): Promise<AllowlistRow[]> {
  const address = readAddress(body.address, "body.address");
  const label = readLabel(body.label, "body.label");
  return changeAgent(call, agentId, async (tx, _agent, audit) => {
    const before = await entriesOf(tx, agentId);
    const known = before.find((entry) => entry.address === address);
    if (known?.label === label) return before;
    if (!known && before.length >= MAX_ALLOWLIST)
      throw refuseField(
        "validation_failed",
        "body.address",
        `is one too many: an allowlist holds at most ${MAX_ALLOWLIST} addresses`,
      );
    await upsertAllowlist(tx, agentId, [{ address, label }]);
    await updateAgent(tx, agentId, {});
    await audit({
      action: "allowlist.added",
      before: known ? fact(known) : null,
      after: fact({ address, label }),
    });
    return entriesOf(tx, agentId);
  });
}

export async function removeAllowed(
  call: OwnerCall,
  agentId: string,
  text: string,
): Promise<AllowlistRow[]> {
  const address = readAddress(text, "params.address");
  return changeAgent(call, agentId, async (tx, _agent, audit) => {
    const before = await entriesOf(tx, agentId);
    const known = before.find((entry) => entry.address === address);
    if (!known || !(await removeFromAllowlist(tx, agentId, address)))
      throw new ApiError("not_found", { detail: "This address is not on the agent's allowlist." });
    await updateAgent(tx, agentId, {});
    await audit({ action: "allowlist.removed", before: fact(known), after: null });
    return before.filter((entry) => entry !== known);
  });
}

const entriesOf = async (tx: Db, agentId: string): Promise<AllowlistRow[]> =>
  (await listAllowlists(tx, [agentId])).get(agentId) ?? [];

const fact = ({ address, label }: AllowlistEntry) => ({ address: getAddress(address), label });

const same = (left: readonly AllowlistEntry[], right: readonly AllowlistEntry[]): boolean =>
  JSON.stringify(left.map(fact)) === JSON.stringify(right.map(fact));

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
