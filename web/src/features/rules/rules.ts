/** The rules of an agent as a person edits them: checked, compared and told in plain words. */
import { atomic, canonical, formatUsdc, parseUsdc } from "../../lib/money.ts";
import { plural } from "../../lib/plural.ts";
import { formatDateTime } from "../../lib/time.ts";
import type { Agent, AgentChanges, NewAgent, ServiceInfo } from "../../lib/wire.ts";
import type { AllowlistDraft } from "./api.ts";

export interface RulesDraft {
  name: string;
  dailyLimit: string;
  /** Empty: no limit of its own, the daily limit rules. */
  perPaymentLimit: string;
  /** ISO time, or empty for never. */
  expiresAt: string;
  allowlist: AllowlistDraft[];
}

export type RulesErrors = Partial<
  Record<"name" | "dailyLimit" | "perPaymentLimit" | "expiresAt", string>
>;

/** What the server's rules call the settings that the owner makes. */
export type RuleWords = Record<Exclude<keyof RulesDraft, "name">, { label: string; help: string }>;

export function wordsOf(rules: ServiceInfo["rules"]): RuleWords {
  const wordsFor = (name: keyof RuleWords): RuleWords[typeof name] => {
    const rule = rules.find(({ field }) => field?.name === name && field.of === undefined);
    if (!rule?.field) throw new Error(`No rule of this server is set by ${name}.`);
    return rule.field;
  };
  return {
    dailyLimit: wordsFor("dailyLimit"),
    perPaymentLimit: wordsFor("perPaymentLimit"),
    expiresAt: wordsFor("expiresAt"),
    allowlist: wordsFor("allowlist"),
  };
}

export const EMPTY_RULES: RulesDraft = {
  name: "",
  dailyLimit: "",
  perPaymentLimit: "",
  expiresAt: "",
  allowlist: [],
};

export const rulesOf = (agent: Agent): RulesDraft => ({
  name: agent.name,
  dailyLimit: agent.dailyLimit,
  perPaymentLimit: agent.perPaymentLimit ?? "",
  expiresAt: agent.expiresAt ?? "",
  allowlist: agent.allowlist.map(({ address, label }) => ({ address, label })),
});

const AMOUNT_HINT = "An amount such as 5 or 0.25, with at most 6 decimals.";

export function checkRules(draft: RulesDraft, nowMs: number): RulesErrors {
  const errors: RulesErrors = {};
  const name = draft.name.trim();
  if (name === "") errors.name = "Give the agent a name.";
  else if (name.length > 80) errors.name = "At most 80 characters.";
  const limit = parseUsdc(draft.dailyLimit);
  if (draft.dailyLimit.trim() === "")
    errors.dailyLimit = "Say how much it may spend; 0 means nothing.";
  else if (limit === undefined) errors.dailyLimit = AMOUNT_HINT;
  if (draft.perPaymentLimit.trim() !== "") {
    const each = parseUsdc(draft.perPaymentLimit);
    if (each === undefined) errors.perPaymentLimit = AMOUNT_HINT;
    else if (limit !== undefined && each > limit)
      errors.perPaymentLimit = "This is more than the daily limit, so it would never matter.";
  }
  if (draft.expiresAt !== "" && Date.parse(draft.expiresAt) <= nowMs)
    errors.expiresAt = "This time has passed.";
  return errors;
}

/** One sentence a person can check against what they meant. */
export function tellRules(draft: RulesDraft): string[] {
  const limit = parseUsdc(draft.dailyLimit);
  if (limit === undefined) return [];
  const name = draft.name.trim() || "The agent";
  const count = draft.allowlist.length;
  if (limit === 0n) return [`${name} can spend nothing until you raise its limit.`];
  if (count === 0)
    return [
      `${name} can pay nobody until you allow an address.`,
      `Its limit is ${formatUsdc(limit)} USDC in any 24 hours.`,
    ];
  const sentences = [
    `${name} can spend at most ${formatUsdc(limit)} USDC in any 24 hours, to ${plural(count, "address", "addresses")} and nobody else.`,
  ];
  const each = parseUsdc(draft.perPaymentLimit);
  if (each !== undefined && draft.perPaymentLimit.trim() !== "")
    sentences.push(`A single payment is at most ${formatUsdc(each)} USDC.`);
  sentences.push(
    draft.expiresAt === ""
      ? "It does not expire."
      : `It stops paying on ${formatDateTime(draft.expiresAt)}.`,
  );
  return sentences;
}

export interface RuleChange {
  what: string;
  before: string;
  after: string;
}

const money = (amount: string, none: string): string =>
  amount === "" ? none : `${formatUsdc(atomic(canonical(amount)))} USDC`;
const time = (iso: string): string => (iso === "" ? "never" : formatDateTime(iso));
const nameEntry = (entry: AllowlistDraft): string =>
  entry.label === "" ? entry.address : `${entry.label} (${entry.address})`;

/** What saving would change, line by line. Drafts are checked before. */
export function diffRules(before: RulesDraft, after: RulesDraft, words: RuleWords): RuleChange[] {
  const changes: RuleChange[] = [];
  const note = (what: string, was: string, is: string): void => {
    if (was !== is) changes.push({ what, before: was, after: is });
  };
  note("Name", before.name, after.name.trim());
  note(words.dailyLimit.label, money(before.dailyLimit, "–"), money(after.dailyLimit, "–"));
  note(
    words.perPaymentLimit.label,
    money(before.perPaymentLimit, "none"),
    money(after.perPaymentLimit.trim(), "none"),
  );
  note(words.expiresAt.label, time(before.expiresAt), time(after.expiresAt));
  return [...changes, ...diffPayees(before.allowlist, after.allowlist)];
}

function diffPayees(before: AllowlistDraft[], after: AllowlistDraft[]): RuleChange[] {
  const changes: RuleChange[] = [];
  const old = new Map(before.map((entry) => [entry.address, entry]));
  const now = new Map(after.map((entry) => [entry.address, entry]));
  for (const [address, entry] of now) {
    const was = old.get(address);
    if (!was) changes.push({ what: "Payee added", before: "", after: nameEntry(entry) });
    else if (was.label !== entry.label)
      changes.push({ what: "Payee renamed", before: nameEntry(was), after: nameEntry(entry) });
  }
  for (const [address, entry] of old)
    if (!now.has(address))
      changes.push({ what: "Payee removed", before: nameEntry(entry), after: "" });
  return changes;
}

/** The request that creates an agent with these rules. Drafts are checked before. */
export const creationOf = (draft: RulesDraft): NewAgent => ({
  name: draft.name.trim(),
  dailyLimit: canonical(draft.dailyLimit),
  allowlist: draft.allowlist,
  ...(draft.perPaymentLimit.trim() === ""
    ? {}
    : { perPaymentLimit: canonical(draft.perPaymentLimit) }),
  ...(draft.expiresAt === "" ? {} : { expiresAt: draft.expiresAt }),
});

/** The request that makes these changes; `undefined` where nothing of its kind changed. */
export function requestFor(
  before: RulesDraft,
  after: RulesDraft,
): { agent: AgentChanges | undefined; allowlist: AllowlistDraft[] | undefined } {
  const agent: AgentChanges = {};
  if (before.name !== after.name.trim()) agent.name = after.name.trim();
  if (canonical(before.dailyLimit) !== canonical(after.dailyLimit))
    agent.dailyLimit = canonical(after.dailyLimit);
  const each = after.perPaymentLimit.trim();
  if (canonical(before.perPaymentLimit) !== canonical(each))
    agent.perPaymentLimit = each === "" ? null : canonical(each);
  if (before.expiresAt !== after.expiresAt)
    agent.expiresAt = after.expiresAt === "" ? null : after.expiresAt;
  const isListChanged = diffPayees(before.allowlist, after.allowlist).length > 0;
  return {
    agent: Object.keys(agent).length > 0 ? agent : undefined,
    allowlist: isListChanged ? after.allowlist : undefined,
  };
}
