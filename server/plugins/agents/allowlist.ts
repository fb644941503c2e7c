import type { Address } from "viem";
import { ApiError } from "../../errors.ts";
import { payeeKey, type Payee } from "../../core/rules.ts";
import { type AddAllowlistBody, type AllowlistInput, MAX_ALLOWLIST } from "../../schemas/agents.ts";
import { changeAgent, payeeFacts, type LockedAgent, type OwnerCall } from "./change.ts";
import { refuseField } from "../../core/refuse-field.ts";
import {
  payeeOnWire,
  readAddress,
  readAllowlist,
  readPayeeTerms,
  readSite,
  rulesInForce,
} from "./rules.ts";
import {
  allowlistChange,
  entriesOf,
  storeAllowlist,
  type AllowlistChange,
  type AllowlistRow,
} from "./payees-store.ts";
import { assertNotDenied } from "./denied-store.ts";
import { updateAgent } from "./store.ts";

/** Replaces the whole list (bulk paste). Unchanged entries keep their date. */
export async function replaceAllowlist(
  call: OwnerCall,
  agentId: string,
  items: AllowlistInput,
): Promise<AllowlistRow[]> {
  const entries = readAllowlist(items);
  return changeAgent(call, agentId, async (held) => {
    const before = await entriesOf(held.tx, agentId);
    const change = allowlistChange(before, entries);
    await assertNotDenied(held.tx, held.agent.ownerId, addedIn(change));
    await held.permit(before, rulesInForce(held.agent, entries), held.agent.name);
    await writeAllowlist(held, change);
    return entriesOf(held.tx, agentId);
  });
}

/** Writes a change that was permitted before. */
export async function writeAllowlist(
  { tx, agent, audit, order }: LockedAgent,
  change: AllowlistChange,
): Promise<void> {
  if (isEmpty(change)) return;
  await storeAllowlist(tx, agent.id, change);
  await updateAgent(tx, agent.id, {});
  await audit({ action: "allowlist.replaced", ...payeeFacts(change, order) });
}

/**
 * Adds one address (for one site or everywhere), or changes the terms of an existing entry. With `replaces`, it takes
 * the place and the terms of another address at that site, which is removed.
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
        `exceeds the maximum of ${MAX_ALLOWLIST} addresses in an allowlist`,
      );
    const after = [...others, wanted];
    if (!known) await assertNotDenied(tx, agent.ownerId, [wanted]);
    await permit(before, rulesInForce(agent, after), agent.name);
    const change = allowlistChange(before, after);
    if (isEmpty(change)) return before;
    await storeAllowlist(tx, agentId, change);
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

/** Without a site, removes all entries of the address. */
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
    await permit(before, rulesInForce(agent, others), agent.name);
    const [first, ...more] = gone;
    if (!first)
      throw new ApiError("not_found", { detail: "This address is not on the agent's allowlist." });
    const change = { before: gone, after: [] };
    await storeAllowlist(tx, agentId, change);
    await updateAgent(tx, agentId, {});
    await audit({
      action: "allowlist.removed",
      ...(more.length === 0
        ? { before: payeeOnWire(first), after: null }
        : payeeFacts(change, undefined)),
    });
    return others;
  });
}

/** The payees that were not on the list before, anywhere or at this site. */
export function addedIn({ before, after }: AllowlistChange): Payee[] {
  const known = new Set(before.map(payeeKey));
  return after.filter((payee) => !known.has(payeeKey(payee)));
}

const isEmpty = ({ before, after }: AllowlistChange): boolean =>
  before.length === 0 && after.length === 0;
