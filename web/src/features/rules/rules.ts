/** An agent's rules in the form's fields: validated, compared and described in plain words. */
import {
  AGENT_FIELDS,
  type AgentFieldName,
  type AgentWire,
  type Field,
  PAYEE_FIELDS,
  type PayeeFieldName,
} from "../../../../packages/rules/src/fields.ts";
import type { Wire } from "../../../../packages/rules/src/kinds.ts";
import { canonical, formatUsdc, parseUsdc } from "../../lib/money.ts";
import {
  type Change,
  diffTerms,
  isSamePayee,
  loosens,
  NO_TERMS,
  payeeConditions,
  type PayeeInput,
  payeeTerms,
  SHOW,
  type Terms,
  termsWith,
} from "../../lib/orders/terms.ts";
import { plural } from "../../lib/plural.ts";
import type { Agent, AgentChanges, NewAgent, Payment } from "../../lib/wire.ts";

/** A payee as the form edits it; empty means none. */
export type AllowlistDraft = { address: string; label: string } & Partial<
  Record<"site" | PayeeFieldName, string>
>;

/**
 * The allowlist entry that applies to a payment: its payee's entry for the site, or the one for all sites.
 */
export function entryFor(
  agent: Agent,
  { recipient, x402 }: Payment,
): Agent["allowlist"][number] | undefined {
  if (recipient === null) return undefined;
  const url = x402?.url ?? "";
  const sites = URL.canParse(url) ? [new URL(url).origin, ""] : [""];
  return sites
    .map((site) =>
      agent.allowlist.find((entry) => isSamePayee(entry, { address: recipient, site })),
    )
    .find((entry) => entry !== undefined);
}

/** The values of settings as typed; empty means that a setting is not set. */
export type RulesDraft = Record<AgentFieldName, string> & {
  name: string;
  allowlist: AllowlistDraft[];
};

export type RulesErrors = Partial<Record<keyof RulesDraft, string>>;

/** The text of a setting in the form. A choice and a required setting always have a value. */
function typedOf({ kind, required }: Field, wire: Wire | undefined): string {
  const unset = kind.wire(kind.unset);
  if (kind.offers === undefined && (wire ?? unset) === unset && !required) return "";
  return wire === undefined && required ? "" : String(wire ?? unset);
}
const drafts = <N extends string>(fields: readonly Field[], wire: object): Record<N, string> =>
  Object.fromEntries(
    fields.map((field) => [
      field.name,
      typedOf(field, (wire as Record<string, Wire | undefined>)[field.name]),
    ]),
  ) as Record<N, string>;

export const EMPTY_RULES: RulesDraft = {
  ...drafts<AgentFieldName>(AGENT_FIELDS, {}),
  name: "",
  allowlist: [],
};

/** A draft that another version of the app may have stored. */
export const completeRules = (draft: Partial<RulesDraft> = {}): RulesDraft => ({
  ...EMPTY_RULES,
  ...draft,
});

export const rulesOf = (agent: Agent): RulesDraft => ({
  ...drafts<AgentFieldName>(AGENT_FIELDS, agent),
  name: agent.name,
  allowlist: agent.allowlist.map((entry) => ({
    ...drafts<PayeeFieldName>(PAYEE_FIELDS, entry),
    address: entry.address,
    label: entry.label,
    site: entry.site,
  })),
});

/** The API's form of a typed setting; an empty one is not set. Null for a required one that is missing. */
export function wireOf({ kind, required }: Field, typed: string): Wire {
  const text = typed.trim();
  if (text === "") return required ? null : kind.wire(kind.unset);
  return kind.readTyped(kind.unit === "Atomic" ? canonical(text) : text);
}

const typedIn = (draft: object, { name }: Field): string =>
  (draft as Record<string, string | undefined>)[name] ?? "";

/** What is wrong with a typed setting; undefined if it can be read. */
export function faultOf(field: Field, draft: object): string | undefined {
  const wire = wireOf(field, typedIn(draft, field));
  return wire === null || field.kind.readWire(wire).ok ? undefined : field.kind.hint;
}

export function checkRules(draft: RulesDraft, nowMs: number): RulesErrors {
  const errors: RulesErrors = {};
  const name = draft.name.trim();
  if (name === "") errors.name = "Give the agent a name.";
  else if (name.length > 80) errors.name = "Use at most 80 characters.";
  for (const field of AGENT_FIELDS) {
    const fault = faultOf(field, draft);
    if (fault !== undefined) errors[field.name as AgentFieldName] = fault;
  }
  if (draft.dailyLimit.trim() === "")
    errors.dailyLimit = "Enter how much the agent may spend in 24 hours, or 0 for nothing.";
  const [daily, single] = [parseUsdc(draft.dailyLimit), parseUsdc(draft.perPaymentLimit)];
  if (daily !== undefined && single !== undefined && single > daily)
    errors.perPaymentLimit = "This is more than the daily limit, so it has no effect.";
  if (draft.expiresAt !== "" && Date.parse(draft.expiresAt) <= nowMs)
    errors.expiresAt = "Choose a time in the future.";
  if (draft.allowlist.some((entry) => Object.keys(checkPayee(entry)).length > 0))
    errors.allowlist = "Correct the limits of the marked payees.";
  return errors;
}

export const checkPayee = (entry: AllowlistDraft): Partial<Record<PayeeFieldName, string>> =>
  Object.fromEntries(
    PAYEE_FIELDS.flatMap((field) => {
      const fault = faultOf(field, entry);
      return fault === undefined ? [] : [[field.name, fault]];
    }),
  );

/** A sentence for each setting that is set, besides the daily limit. */
export function describeSettings(rules: Partial<AgentWire>, except: readonly string[]): string[] {
  const given = rules as Record<string, Wire | undefined>;
  return AGENT_FIELDS.filter(({ name }) => !except.includes(name)).flatMap((field) => {
    const { kind, name, describe } = field;
    const read = kind.readWire(given[name] ?? null);
    const isSet = given[name] != null && read.ok && read.value !== kind.unset;
    return isSet ? [describe(kind.text(read.value, SHOW))] : [];
  });
}

/** Sentences that the owner can compare with the intended rules. */
export function describeRules(draft: RulesDraft): string[] {
  const limit = parseUsdc(draft.dailyLimit);
  if (limit === undefined) return [];
  const name = draft.name.trim() || "The agent";
  const count = draft.allowlist.length;
  if (limit === 0n)
    return [`${name} pays nothing by itself. It can ask you to approve a single payment.`];
  if (count === 0)
    return [
      `${name} cannot pay until you add at least one payee.`,
      `Its limit is ${formatUsdc(limit)} USDC in any 24 hours.`,
    ];
  const sentences = [
    `${name} can spend at most ${formatUsdc(limit)} USDC in any 24 hours, only to ${plural(count, "address", "addresses")}.`,
  ];
  sentences.push(...describeSettings(settingsOf(draft), ["dailyLimit", "expiresAt"]));
  const own = draft.allowlist.filter((entry) => conditionsOf(entry) !== "").length;
  if (own > 0)
    sentences.push(
      `${plural(own, "payee has a limit of its own", "payees have limits of their own")}.`,
    );
  const end = draft.expiresAt;
  const ending = describeSettings({ expiresAt: end === "" ? null : end }, []);
  sentences.push(...(end === "" ? ["It does not expire."] : ending));
  return sentences;
}

/** The API's form of a payee; empty members are left out. */
const payeeBody = (entry: AllowlistDraft): PayeeInput => ({
  address: entry.address,
  label: entry.label.trim(),
  ...(entry.site ? { site: entry.site } : {}),
  ...Object.fromEntries(
    PAYEE_FIELDS.map((field) => [field.name, wireOf(field, typedIn(entry, field))]).filter(
      ([, wire]) => wire !== null,
    ),
  ),
});

export const conditionsOf = (entry: AllowlistDraft): string =>
  payeeConditions(payeeTerms(payeeBody(entry)));

const settingsOf = (draft: RulesDraft): AgentWire =>
  Object.fromEntries(
    AGENT_FIELDS.map((field) => [field.name, wireOf(field, typedIn(draft, field))]),
  ) as AgentWire;

const bodyOf = (draft: RulesDraft) => ({
  name: draft.name.trim(),
  ...settingsOf(draft),
  allowlist: draft.allowlist.map(payeeBody),
});

const termsOf = (draft: RulesDraft): Terms => {
  const { allowlist, ...rules } = bodyOf(draft);
  return termsWith(NO_TERMS, { ...rules, payees: allowlist });
};

/** The changes of saving, line by line. Drafts must be valid. */
export const diffRules = (before: RulesDraft, after: RulesDraft): Change[] =>
  diffTerms(termsOf(before), termsOf(after));

/** Whether saving needs the owner's signature. */
export const needsSignature = (before: RulesDraft, after: RulesDraft): boolean =>
  loosens(termsOf(before), termsOf(after));

/** The body of the request that creates an agent with these rules. Drafts must be valid. */
export const creationOf = (draft: RulesDraft): NewAgent =>
  Object.fromEntries(
    Object.entries(bodyOf(draft)).filter(([, value]) => value !== null),
  ) as unknown as NewAgent;

/** The body of the request that makes these changes; it contains only what changed. */
export function requestFor(before: RulesDraft, after: RulesDraft): AgentChanges {
  const was = bodyOf(before);
  return Object.fromEntries(
    Object.entries(bodyOf(after)).filter(
      ([name, value]) => JSON.stringify(was[name as keyof typeof was]) !== JSON.stringify(value),
    ),
  ) as AgentChanges;
}
