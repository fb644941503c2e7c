import { api } from "../../lib/api.ts";
import { creationAsk, policyAsk } from "../../lib/orders/asks.ts";
import { signed } from "../../lib/orders/signed.ts";
import {
  type PayeeInput,
  payeeTerms,
  type TermNames,
  type Terms,
  termsWith,
} from "../../lib/orders/terms.ts";
import type { Agent, AgentChanges, CreatedAgent, NewAgent } from "../../lib/wire.ts";

/** A payee as a person edits it; empty is none. */
export type AllowlistDraft = { address: string; label: string } & Partial<
  Record<"site" | "dailyLimit" | "perPaymentLimit" | "expiresAt", string>
>;

export const createAgent = (
  agent: NewAgent,
  { network, names }: { network: string; names?: TermNames },
): Promise<CreatedAgent> =>
  signed(creationAsk(agent, network, names), (signature) =>
    api.post("/api/agents", { ...agent, ...signature }),
  );

/** All that is changed at once is one request: one order, one window of the wallet. */
export const changeRules = (
  agent: Agent,
  changes: AgentChanges,
  { title, names }: { title: string; names?: TermNames },
): Promise<unknown> => {
  const { allowlist, authorization: _authorization, status: _status, ...rules } = changes;
  const payees = allowlist as PayeeInput[] | undefined;
  const apply = (terms: Terms): Terms => termsWith(terms, { ...rules, payees });
  return signed(policyAsk({ agent, title, names, apply }), (signature) =>
    api.patch(`/api/agents/${agent.id}`, { ...changes, ...signature }),
  );
};

/** One more payee, or other terms for one that is there. */
export const allowPayee = (
  agent: Agent,
  payee: AllowlistDraft,
  title = `Allow ${payee.label || "this payee"}`,
): Promise<unknown> => {
  const isThis = ({ address }: { address: string }): boolean =>
    address.toLowerCase() === payee.address.toLowerCase();
  const apply = (terms: Terms): Terms =>
    termsWith(terms, {
      payees: [
        ...terms.payees.filter((entry) => !isThis(entry)),
        payeeTerms(payee, terms.payees.find(isThis)),
      ],
    });
  return signed(policyAsk({ agent, title, apply }), (signature) =>
    api.post(`/api/agents/${agent.id}/allowlist`, { ...payee, ...signature }),
  );
};
