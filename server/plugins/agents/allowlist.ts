import { ApiError } from "../../errors.ts";
import type { Payee } from "../../core/rules.ts";
import { type AddAllowlistBody, type AllowlistInput, MAX_ALLOWLIST } from "../../schemas/agents.ts";
import { changeAgent, type HeldAgent, type OwnerCall } from "./change.ts";
import {
  payeeOnWire,
  readAddress,
  readAllowlist,
  readPayeeTerms,
  refuseField,
  rulesInForce,
} from "./rules.ts";
import {
  entriesOf,
  isSame,
  keepOnly,
  removeFromAllowlist,
  upsertAllowlist,
  type AllowlistRow,
} from "./payees-store.ts";
import { updateAgent } from "./store.ts";

/** The whole list at once (bulk paste). Entries that stay keep the date they were added. */
export async function replaceAllowlist(
  call: OwnerCall,
  agentId: string,
  items: AllowlistInput,
): Promise<AllowlistRow[]> {
  const entries = readAllowlist(items);
  return changeAgent(call, agentId, async ({ tx, agent, audit, permit }) => {
    const before = await entriesOf(tx, agentId);
    await permit(rulesInForce(agent, entries), agent.name);
    return writeAllowlist({ tx, audit }, agentId, { before, entries });
  });
}

/** After it was permitted. */
export async function writeAllowlist(
  { tx, audit }: Pick<HeldAgent, "tx" | "audit">,
  agentId: string,
  { before, entries }: { before: readonly AllowlistRow[]; entries: readonly Payee[] },
): Promise<AllowlistRow[]> {
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
    before: { allowlist: before.map(payeeOnWire) },
    after: { allowlist: after.map(payeeOnWire) },
  });
  return after;
}

/** Adds one address, or gives one that is there other terms. */
export async function addToAllowlist(
  call: OwnerCall,
  agentId: string,
  body: AddAllowlistBody,
): Promise<AllowlistRow[]> {
  const address = readAddress(body.address, "body.address");
  return changeAgent(call, agentId, async ({ tx, agent, audit, permit }) => {
    const before = await entriesOf(tx, agentId);
    const known = before.find((entry) => entry.address === address);
    const wanted: Payee = { address, ...readPayeeTerms(body, "body", known) };
    if (!known && before.length >= MAX_ALLOWLIST)
      throw refuseField(
        "validation_failed",
        "body.address",
        `is one too many: an allowlist holds at most ${MAX_ALLOWLIST} addresses`,
      );
    const others = before.filter((entry) => entry !== known);
    await permit(rulesInForce(agent, [...others, wanted]), agent.name);
    if (isSame(known, wanted)) return before;
    await upsertAllowlist(tx, agentId, [wanted]);
    await updateAgent(tx, agentId, {});
    await audit({
      action: "allowlist.added",
      before: known ? payeeOnWire(known) : null,
      after: payeeOnWire(wanted),
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
  return changeAgent(call, agentId, async ({ tx, agent, audit, permit }) => {
    const before = await entriesOf(tx, agentId);
    const known = before.find((entry) => entry.address === address);
    const others = before.filter((entry) => entry !== known);
    await permit(rulesInForce(agent, others), agent.name);
    if (!known || !(await removeFromAllowlist(tx, agentId, address)))
      throw new ApiError("not_found", { detail: "This address is not on the agent's allowlist." });
    await updateAgent(tx, agentId, {});
    await audit({ action: "allowlist.removed", before: payeeOnWire(known), after: null });
    return others;
  });
}

const same = (left: readonly Payee[], right: readonly Payee[]): boolean =>
  JSON.stringify(left.map(payeeOnWire)) === JSON.stringify(right.map(payeeOnWire));
