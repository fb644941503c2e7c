import type { Address } from "viem";
import { ApiError } from "../../errors.ts";
import type { Payee } from "../../core/rules.ts";
import { type AddAllowlistBody, type AllowlistInput, MAX_ALLOWLIST } from "../../schemas/agents.ts";
import { changeAgent, type HeldAgent, type OwnerCall } from "./change.ts";
import {
  payeeOnWire,
  readAddress,
  readAllowlist,
  readPayeeTerms,
  readSite,
  refuseField,
  rulesInForce,
} from "./rules.ts";
import { entriesOf, storeAllowlist, type AllowlistRow } from "./payees-store.ts";
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
  await storeAllowlist(tx, agentId, entries);
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

/**
 * Adds one address (at one site, or everywhere), or gives one that is there other terms. With `replaces`, in the place
 * and by the terms of another address at that site, which goes.
 */
export async function addToAllowlist(
  call: OwnerCall,
  agentId: string,
  body: AddAllowlistBody,
): Promise<AllowlistRow[]> {
  const address = readAddress(body.address, "body.address");
  const site = readSite(body.site, "body.site");
  const replaced =
    body.replaces === undefined ? undefined : readAddress(body.replaces, "body.replaces");
  return changeAgent(call, agentId, async ({ tx, agent, audit, permit }) => {
    const before = await entriesOf(tx, agentId);
    const at = (wanted: Address | undefined) =>
      before.find((entry) => entry.address === wanted && entry.site === site);
    const known = at(address);
    const old = at(replaced);
    const wanted: Payee = { address, ...readPayeeTerms(body, "body", known ?? old) };
    const others = before.filter((entry) => entry !== known && entry !== old);
    if (others.length >= MAX_ALLOWLIST)
      throw refuseField(
        "validation_failed",
        "body.address",
        `is one too many: an allowlist holds at most ${MAX_ALLOWLIST} addresses`,
      );
    const after = [...others, wanted];
    await permit(rulesInForce(agent, after), agent.name);
    if (!old && known && same([known], [wanted])) return before;
    await storeAllowlist(tx, agentId, after);
    await updateAgent(tx, agentId, {});
    const gone = old ?? known;
    await audit({
      action: "allowlist.added",
      before: gone ? payeeOnWire(gone) : null,
      after: payeeOnWire(wanted),
    });
    return entriesOf(tx, agentId);
  });
}

/** Without a site, wherever the address may be paid. */
export async function removeAllowed(
  call: OwnerCall,
  agentId: string,
  payee: { address: string; site?: string },
): Promise<AllowlistRow[]> {
  const address = readAddress(payee.address, "params.address");
  const site = payee.site === undefined ? undefined : readSite(payee.site, "query.site");
  return changeAgent(call, agentId, async ({ tx, agent, audit, permit }) => {
    const before = await entriesOf(tx, agentId);
    const [gone, others] = [true, false].map((wanted) =>
      before.filter(
        (entry) =>
          (entry.address === address && (site === undefined || entry.site === site)) === wanted,
      ),
    ) as [AllowlistRow[], AllowlistRow[]];
    await permit(rulesInForce(agent, others), agent.name);
    if (gone.length === 0)
      throw new ApiError("not_found", { detail: "This address is not on the agent's allowlist." });
    await storeAllowlist(tx, agentId, others);
    await updateAgent(tx, agentId, {});
    for (const entry of gone)
      await audit({ action: "allowlist.removed", before: payeeOnWire(entry), after: null });
    return others;
  });
}

const same = (left: readonly Payee[], right: readonly Payee[]): boolean =>
  JSON.stringify(left.map(payeeOnWire)) === JSON.stringify(right.map(payeeOnWire));
