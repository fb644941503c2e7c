import { getAddress } from "viem";
import type { Db } from "../../infra/db/prisma.ts";
import { updateAgent } from "./store.ts";
import {
  keepOnly,
  listAllowlists,
  removeFromAllowlist,
  upsertAllowlist,
  type AllowlistEntry,
  type AllowlistRow,
} from "./allowlist-store.ts";
import { ApiError } from "../../errors.ts";
import { MAX_ALLOWLIST, type AllowlistInput } from "../../schemas/agents.ts";
import { changeAgent, type OwnerCall } from "./change.ts";
import { readAddress, readAllowlist, readLabel, refuseField } from "./rules.ts";

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
