/**
 * An agent's rules in one form, whether they come from an agent, a form or an order to sign, so that they can
 * be compared. The settings and their comparison are those of the server (packages/rules).
 */
import {
  AGENT_FIELDS,
  type AgentSettings,
  type Field,
  isSet,
  PAYEE_FIELDS,
  settingsFromWire,
  settingsIn,
  valueIn,
} from "../../../../packages/rules/src/fields.ts";
import { type Show, TIME, type Wire } from "../../../../packages/rules/src/kinds.ts";
import { type AgentPolicyOrder, rulesOfPolicy } from "../../../../packages/rules/src/policy.ts";
import {
  loosens as rulesLoosen,
  type Payee,
  payeeKey,
  type Rules,
  sortPayees,
} from "../../../../packages/rules/src/rules.ts";
import { formatUsdc } from "../money.ts";
import { formatDateTime } from "../time.ts";
import type { Agent, AgentChanges } from "../wire.ts";

/** Addresses have their checksum. */
type PayeeTerms = Payee;
export type Terms = Rules & { name: string };

/** A payee as in a request: a setting that is not given keeps its previous value, or is not set. */
export type PayeeInput = { address: string; label?: string; site?: string } & Partial<
  Record<string, Wire>
>;

/** Formats values for people. */
export const SHOW: Show = {
  usdc: formatUsdc,
  time: (seconds) => formatDateTime(TIME.wire(seconds) ?? ""),
};

/** The settings in a body. A value that cannot be read is one that no order has. */
const settingsOfBody = (fields: readonly Field[], body: object): object =>
  settingsFromWire(fields, body, ({ kind }, _reason, given) =>
    kind.type === "string" ? String(given) : -1n,
  );

/** A condition that is not given keeps its previous value, or is none. */
export const payeeTerms = (given: PayeeInput, known?: PayeeTerms): PayeeTerms => ({
  ...(settingsIn(PAYEE_FIELDS, { ...known, ...settingsOfBody(PAYEE_FIELDS, given) }) as PayeeTerms),
  address: given.address as PayeeTerms["address"],
  label: (given.label ?? known?.label ?? "").trim(),
  site: given.site ?? known?.site ?? "",
});

interface Place {
  address: string;
  site?: string;
}

/** A payee is listed once for each site, and once for all sites. */
const keyOf = ({ address, site = "" }: Place): string => payeeKey({ address, site });

export const isSamePayee = (left: Place, right: Place): boolean => keyOf(left) === keyOf(right);

/** The rules of an agent that does not exist yet: nothing is allowed. */
export const NO_TERMS: Terms = {
  ...(settingsIn(AGENT_FIELDS, {}) as AgentSettings),
  name: "",
  payees: [],
};

/** The terms after a change, as the server computes them. */
export const termsWith = (
  terms: Terms,
  change: Omit<AgentChanges, "authorization" | "status" | "allowlist"> & {
    payees?: readonly PayeeInput[];
  },
): Terms => ({
  ...(settingsIn(AGENT_FIELDS, { ...terms, ...settingsOfBody(AGENT_FIELDS, change) }) as Terms),
  name: change.name === undefined ? terms.name : change.name.trim(),
  payees:
    change.payees === undefined
      ? terms.payees
      : sortPayees(change.payees.map((payee) => payeeTerms(payee))),
});

/** The terms with one payee more, or with other terms of a payee; in the place of another address if there is one. */
export function termsAllowing(terms: Terms, payee: PayeeInput, replaced?: string): Terms {
  const places = [payee, { address: replaced ?? payee.address, site: payee.site }];
  const known = places.map((place) => terms.payees.find((entry) => isSamePayee(entry, place)));
  const others = terms.payees.filter((entry) => !known.includes(entry));
  const entry = payeeTerms(
    payee,
    known.find((one) => one !== undefined),
  );
  return { ...terms, payees: sortPayees([...others, entry]) };
}

export const termsOfAgent = (agent: Agent): Terms =>
  termsWith(NO_TERMS, { ...agent, payees: agent.allowlist as unknown as PayeeInput[] });

/** The time in an order; null means never. */
export const timeIn = (order: Record<string, unknown>, name: string): string | null =>
  TIME.wire(TIME.readSigned(String(order[name])));

/** Throws where a value is not a number, or the order is of a newer release: such an order is not signed. */
export function termsOfOrder(order: Record<string, unknown>): Terms {
  const document = order as unknown as AgentPolicyOrder;
  const rules = rulesOfPolicy(document);
  const payees = rules.payees.map((payee, index) => ({
    ...payee,
    address: document.payees[index]?.payee as PayeeTerms["address"],
  }));
  return { ...rules, name: document.name, payees: sortPayees(payees) };
}

/** The same text for the same terms, whatever the order of their members. */
function canonical({ name, payees, ...settings }: Terms): string {
  const values = (fields: readonly Field[], of: object) =>
    fields.map((field) => String(valueIn(of, field)));
  return JSON.stringify([
    name,
    values(AGENT_FIELDS, settings),
    payees.map((payee) => [keyOf(payee), payee.label, values(PAYEE_FIELDS, payee)]),
  ]);
}

export const isSameTerms = (left: Terms, right: Terms): boolean =>
  canonical(left) === canonical(right);

/** One line of a change, in plain words; an empty text means none. */
export interface Change {
  what: string;
  before: string;
  after: string;
}

/** With `before` null, every rule that is set is listed. */
export function diffTerms(before: Terms | null, after: Terms): Change[] {
  const old = before ?? NO_TERMS;
  const changes: Change[] = [];
  const note = (what: string, was: string, is: string): void => {
    if (was !== is) changes.push({ what, before: before === null ? "" : was, after: is });
  };
  note("Name", old.name, after.name);
  for (const field of AGENT_FIELDS) {
    const textIn = (terms: Terms): string => field.kind.text(valueIn(terms, field), SHOW);
    // A new agent's order shows a required setting whatever its value is.
    const was = before === null && field.required === true ? "" : textIn(old);
    note(field.label, was, textIn(after));
  }
  return [...changes, ...diffPayees(old.payees, after.payees)];
}

const nameOf = (payee: PayeeTerms): string =>
  payee.label === "" ? payee.address : `${payee.label} (${payee.address})`;

/** The conditions of one payee, in words; empty where it has none. */
export const payeeConditions = (payee: PayeeTerms): string =>
  [
    ...(payee.site === "" ? [] : [`only at ${payee.site}`]),
    ...PAYEE_FIELDS.filter((field) => isSet(payee, field)).map((field) =>
      field.describe(field.kind.text(valueIn(payee, field), SHOW)),
    ),
  ].join(", ");

function diffPayees(before: readonly PayeeTerms[], after: readonly PayeeTerms[]): Change[] {
  const changes: Change[] = [];
  const old = new Map(before.map((payee) => [keyOf(payee), payee]));
  const now = new Map(after.map((payee) => [keyOf(payee), payee]));
  const describe = (payee: PayeeTerms): string => {
    const conditions = payeeConditions(payee);
    return conditions === "" ? nameOf(payee) : `${nameOf(payee)}: ${conditions}`;
  };
  for (const [address, payee] of now) {
    const was = old.get(address);
    if (!was) changes.push({ what: "Payee added", before: "", after: describe(payee) });
    else if (payeeConditions(was) !== payeeConditions(payee))
      changes.push({
        what: `Payee ${payee.label || payee.address}`,
        before: payeeConditions(was) || "the agent's limits only",
        after: payeeConditions(payee) || "the agent's limits only",
      });
    else if (was.label !== payee.label)
      changes.push({ what: "Payee renamed", before: nameOf(was), after: nameOf(payee) });
  }
  for (const [address, payee] of old)
    if (!now.has(address))
      changes.push({ what: "Payee removed", before: nameOf(payee), after: "" });
  return changes;
}

/** Whether a change needs the owner's signature. The server decides; a button announces it beforehand. */
export const loosens = (before: Terms, after: Terms): boolean =>
  rulesLoosen({ ...before, status: "active" }, { ...after, status: "active" });
