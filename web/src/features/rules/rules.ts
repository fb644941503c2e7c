/** An agent's rules in the form's fields: validated, compared and described in plain words. */
import { canonical, formatUsdc, parseUsdc } from "../../lib/money.ts";
import {
  type Change,
  diffTerms,
  loosens,
  NO_TERMS,
  payeeConditions,
  payeeTerms,
  type TermNames,
  type Terms,
  termsWith,
} from "../../lib/orders/terms.ts";
import { plural } from "../../lib/plural.ts";
import { formatDateTime } from "../../lib/time.ts";
import type { Agent, AgentChanges, NewAgent, ServiceInfo } from "../../lib/wire.ts";
import type { AllowlistDraft } from "./api.ts";

/** Amounts and numbers as typed; empty means none. */
export interface RulesDraft {
  name: string;
  dailyLimit: string;
  weeklyLimit: string;
  monthlyLimit: string;
  perPaymentLimit: string;
  paymentsPerHour: string;
  fetch: "any" | "sites";
  /** ISO time, or empty for never. */
  expiresAt: string;
  allowlist: AllowlistDraft[];
}

export type RulesErrors = Partial<Record<Exclude<keyof RulesDraft, "fetch">, string>>;

const FIELDS = [
  "dailyLimit",
  "weeklyLimit",
  "monthlyLimit",
  "perPaymentLimit",
  "paymentsPerHour",
  "expiresAt",
  "allowlist",
] as const;
const PAYEE_FIELDS = ["dailyLimit", "perPaymentLimit", "expiresAt"] as const;
interface FieldLabels {
  label: string;
  help: string;
}

/** The server's names for the owner's settings. */
export type RuleLabels = Record<(typeof FIELDS)[number], FieldLabels> & {
  payee: Record<(typeof PAYEE_FIELDS)[number], FieldLabels>;
};

export function ruleLabelsOf(rules: ServiceInfo["rules"]): RuleLabels {
  const labelsFor = (name: string, of?: "payee"): FieldLabels => {
    const rule = rules.find(({ field }) => field?.name === name && field.of === of);
    if (!rule?.field) throw new Error(`This server has no rule named ${name}.`);
    return rule.field;
  };
  return {
    ...(Object.fromEntries(FIELDS.map((name) => [name, labelsFor(name)])) as Record<
      (typeof FIELDS)[number],
      FieldLabels
    >),
    payee: Object.fromEntries(
      PAYEE_FIELDS.map((name) => [name, labelsFor(name, "payee")]),
    ) as RuleLabels["payee"],
  };
}

export const namesOf = (labels: RuleLabels): TermNames => ({
  dailyLimit: labels.dailyLimit.label,
  weeklyLimit: labels.weeklyLimit.label,
  monthlyLimit: labels.monthlyLimit.label,
  perPaymentLimit: labels.perPaymentLimit.label,
  paymentsPerHour: labels.paymentsPerHour.label,
  expiresAt: labels.expiresAt.label,
});

export const EMPTY_RULES: RulesDraft = {
  name: "",
  dailyLimit: "",
  weeklyLimit: "",
  monthlyLimit: "",
  perPaymentLimit: "",
  paymentsPerHour: "",
  fetch: "any",
  expiresAt: "",
  allowlist: [],
};

export const rulesOf = (agent: Agent): RulesDraft => ({
  name: agent.name,
  dailyLimit: agent.dailyLimit,
  weeklyLimit: agent.weeklyLimit ?? "",
  monthlyLimit: agent.monthlyLimit ?? "",
  perPaymentLimit: agent.perPaymentLimit ?? "",
  paymentsPerHour: agent.paymentsPerHour === null ? "" : String(agent.paymentsPerHour),
  fetch: agent.fetch,
  expiresAt: agent.expiresAt ?? "",
  allowlist: agent.allowlist.map((entry) => ({
    address: entry.address,
    label: entry.label,
    site: entry.site,
    dailyLimit: entry.dailyLimit ?? "",
    perPaymentLimit: entry.perPaymentLimit ?? "",
    expiresAt: entry.expiresAt ?? "",
  })),
});

const AMOUNT_HINT = "Enter an amount such as 5 or 0.25, with at most 6 decimals.";
const MAX_PER_HOUR = 1_000_000;

function checkOptional(
  draft: RulesDraft,
  name: "weeklyLimit" | "monthlyLimit" | "perPaymentLimit",
): string | undefined {
  const typed = draft[name].trim();
  if (typed === "") return undefined;
  const limit = parseUsdc(typed);
  if (limit === undefined) return AMOUNT_HINT;
  const daily = parseUsdc(draft.dailyLimit);
  if (name === "perPaymentLimit" && daily !== undefined && limit > daily)
    return "This is more than the daily limit, so it has no effect.";
  return undefined;
}

export function checkRules(draft: RulesDraft, nowMs: number): RulesErrors {
  const errors: RulesErrors = {};
  const name = draft.name.trim();
  if (name === "") errors.name = "Give the agent a name.";
  else if (name.length > 80) errors.name = "Use at most 80 characters.";
  const limit = parseUsdc(draft.dailyLimit);
  if (draft.dailyLimit.trim() === "")
    errors.dailyLimit = "Enter how much the agent may spend in 24 hours, or 0 for nothing.";
  else if (limit === undefined) errors.dailyLimit = AMOUNT_HINT;
  for (const field of ["weeklyLimit", "monthlyLimit", "perPaymentLimit"] as const) {
    const error = checkOptional(draft, field);
    if (error !== undefined) errors[field] = error;
  }
  const hourly = draft.paymentsPerHour.trim();
  if (hourly !== "" && !(/^\d{1,7}$/.test(hourly) && Number(hourly) <= MAX_PER_HOUR))
    errors.paymentsPerHour = "Enter a whole number of at most a million.";
  if (draft.expiresAt !== "" && Date.parse(draft.expiresAt) <= nowMs)
    errors.expiresAt = "Choose a time in the future.";
  if (draft.allowlist.some((entry) => Object.keys(checkPayee(entry)).length > 0))
    errors.allowlist = "Correct the limits of the marked payees.";
  return errors;
}

export function checkPayee(
  entry: AllowlistDraft,
): Partial<Record<"dailyLimit" | "perPaymentLimit", string>> {
  const wrong = (["dailyLimit", "perPaymentLimit"] as const).filter((name) => {
    const typed = entry[name]?.trim() ?? "";
    return typed !== "" && parseUsdc(typed) === undefined;
  });
  return Object.fromEntries(wrong.map((name) => [name, AMOUNT_HINT]));
}

/** Sentences that the owner can compare with the intended rules. */
export function describeRules(draft: RulesDraft): string[] {
  const limit = parseUsdc(draft.dailyLimit);
  if (limit === undefined) return [];
  const name = draft.name.trim() || "The agent";
  const count = draft.allowlist.length;
  if (limit === 0n) return [`${name} cannot spend until you raise its limit.`];
  if (count === 0)
    return [
      `${name} cannot pay until you add at least one payee.`,
      `Its limit is ${formatUsdc(limit)} USDC in any 24 hours.`,
    ];
  const sentences = [
    `${name} can spend at most ${formatUsdc(limit)} USDC in any 24 hours, only to ${plural(count, "address", "addresses")}.`,
  ];
  const addLimit = (text: string, describe: (amount: string) => string): void => {
    const amount = parseUsdc(text);
    if (amount !== undefined) sentences.push(describe(formatUsdc(amount)));
  };
  addLimit(draft.weeklyLimit, (amount) => `In any 7 days at most ${amount} USDC.`);
  addLimit(draft.monthlyLimit, (amount) => `In any 30 days at most ${amount} USDC.`);
  addLimit(draft.perPaymentLimit, (amount) => `A single payment is at most ${amount} USDC.`);
  if (draft.paymentsPerHour.trim() !== "")
    sentences.push(
      `It makes at most ${plural(Number(draft.paymentsPerHour), "payment")} in an hour.`,
    );
  if (draft.fetch === "sites") sentences.push("It fetches only from the sites of its payees.");
  const own = draft.allowlist.filter((entry) => conditionsOf(entry) !== "").length;
  if (own > 0)
    sentences.push(
      `${plural(own, "payee has a limit of its own", "payees have limits of their own")}.`,
    );
  sentences.push(
    draft.expiresAt === ""
      ? "It does not expire."
      : `It stops paying on ${formatDateTime(draft.expiresAt)}.`,
  );
  return sentences;
}

export const conditionsOf = (entry: AllowlistDraft): string => payeeConditions(payeeTerms(entry));

const optional = (text: string): string | null => (text.trim() === "" ? null : canonical(text));

/** The API's form of a payee; empty members are left out. */
export const payeeBody = ({ address, label, ...terms }: AllowlistDraft) => ({
  address,
  label: label.trim(),
  ...Object.fromEntries(
    Object.entries(terms)
      .filter(([, value]) => value.trim() !== "")
      .map(([name, value]) => [name, name.endsWith("Limit") ? canonical(value) : value]),
  ),
});

const bodyOf = (draft: RulesDraft) => ({
  name: draft.name.trim(),
  dailyLimit: canonical(draft.dailyLimit),
  weeklyLimit: optional(draft.weeklyLimit),
  monthlyLimit: optional(draft.monthlyLimit),
  perPaymentLimit: optional(draft.perPaymentLimit),
  paymentsPerHour: draft.paymentsPerHour.trim() === "" ? null : Number(draft.paymentsPerHour),
  fetch: draft.fetch,
  expiresAt: draft.expiresAt === "" ? null : draft.expiresAt,
  allowlist: draft.allowlist.map(payeeBody),
});

const termsOf = (draft: RulesDraft): Terms => {
  const { allowlist, ...rules } = bodyOf(draft);
  return termsWith(NO_TERMS, { ...rules, payees: allowlist });
};

/** The changes of saving, line by line. Drafts must be valid. */
export const diffRules = (before: RulesDraft, after: RulesDraft, labels: RuleLabels): Change[] =>
  diffTerms(termsOf(before), termsOf(after), namesOf(labels));

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
  );
}
