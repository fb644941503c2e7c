import { api } from "../../lib/api.ts";
import { creationRequest, policyRequest } from "../../lib/orders/requests.ts";
import { signed } from "../../lib/orders/signed.ts";
import { type PayeeInput, type Terms, termsAllowing, termsWith } from "../../lib/orders/terms.ts";
import type { Agent, AgentChanges, CreatedAgent, NewAgent } from "../../lib/wire.ts";
import type { AllowlistDraft } from "./rules.ts";

export const createAgent = (agent: NewAgent, network: string): Promise<CreatedAgent> =>
  signed(creationRequest(agent, network), (signature) =>
    api.post("/api/agents", { ...agent, ...signature }),
  );

/** All changes are sent in one request, so the owner signs one order. */
export const changeRules = (
  agent: Agent,
  changes: AgentChanges,
  { title, isOnScreen }: { title: string; isOnScreen?: boolean },
): Promise<unknown> => {
  const { allowlist, authorization: _authorization, status: _status, ...rules } = changes;
  const payees = allowlist as PayeeInput[] | undefined;
  const apply = (terms: Terms): Terms => termsWith(terms, { ...rules, payees });
  return signed(policyRequest({ agent, title, apply, isOnScreen }), (signature) =>
    api.patch(`/api/agents/${agent.id}`, { ...changes, ...signature }),
  );
};

/**
 * Adds a payee, or changes an existing one. With `replaces`, the payee takes the place and terms of another
 * address at its site.
 */
export const allowPayee = (
  agent: Agent,
  payee: AllowlistDraft & { replaces?: string },
  title = `Allow ${payee.label || "this payee"}`,
): Promise<unknown> => {
  const { replaces, ...wanted } = payee;
  const apply = (terms: Terms): Terms => termsAllowing(terms, wanted, replaces);
  return signed(policyRequest({ agent, title, apply }), (signature) =>
    api.post(`/api/agents/${agent.id}/allowlist`, { ...payee, ...signature }),
  );
};
