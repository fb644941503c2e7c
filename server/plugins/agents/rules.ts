/** Parses an owner's rules from requests, refuses invalid fields by their path, and formats rules for responses. */
import { getAddress, type Address } from "viem";
import { parseAddress } from "../../core/foreign-text.ts";
import {
  AGENT_FIELDS,
  PAYEE_FIELDS,
  settingsFromWire,
  settingsIn,
  settingsOnWire,
  valueIn,
  type AgentSettings,
  type AgentWire,
  type Field,
  type PayeeSettings,
  type PayeeWire,
} from "../../../packages/rules/src/fields.ts";
import { TIME } from "../../../packages/rules/src/kinds.ts";
import { payeeKey, sortPayees, type Payee, type RulesInForce } from "../../core/rules.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { parseSite, readableSite } from "../../core/site.ts";
import { ApiError } from "../../errors.ts";
import type { AllowlistInput, PayeeInput, UpdateAgentBody } from "../../schemas/agents.ts";
import type { AgentChange, AgentRow } from "./store.ts";

function readName(text: string): string {
  const name = text.trim();
  if (name === "") throw refuseField("validation_failed", "body.name", "must not be blank");
  assertPrintable(name, "body.name");
  return name;
}

export function readLabel(text: string | undefined, path: string): string {
  const label = (text ?? "").trim();
  assertPrintable(label, path);
  return label;
}

function assertPrintable(text: string, path: string): void {
  // Also invisible ones and marks that reorder text: they would let a label look like another one. Emoji need joiners.
  if (/[\p{Cc}\u2028\u2029]|(?![\u200c\u200d])\p{Cf}/u.test(text))
    throw refuseField(
      "validation_failed",
      path,
      "must not contain control or invisible characters",
    );
}

const readRequestSettings = (fields: readonly Field[], body: object, path: string): object =>
  settingsFromWire(fields, body, ({ name, kind }, reason) => {
    throw refuseField(kind.fault, `${path}.${name}`, reason);
  });

export function readTime(text: string, path: string): Date {
  const read = TIME.readWire(text);
  if (!read.ok) throw refuseField("validation_failed", path, read.reason);
  return new Date(Number(read.value) * 1000);
}

export function readAddress(text: string, path: string): Address {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw refuseField("invalid_address", path, parsed.reason);
  return parsed.address;
}

/** A payee's own terms; missing members keep their current value, or are not set. */
export function readPayeeTerms(
  body: Omit<PayeeInput, "address">,
  path: string,
  known?: Payee,
): Omit<Payee, "address"> {
  const settings = { ...known, ...readRequestSettings(PAYEE_FIELDS, body, path) };
  return {
    ...(settingsIn(PAYEE_FIELDS, settings) as PayeeSettings),
    label: body.label === undefined && known ? known.label : readLabel(body.label, `${path}.label`),
    site: readSite(body.site, `${path}.site`),
  };
}

/** "" means everywhere. */
export function readSite(text: string | undefined, path: string): string {
  if (text === undefined || text === "") return "";
  const read = parseSite(text);
  if (!read.ok) throw refuseField("validation_failed", path, read.reason);
  return read.site;
}

/** All invalid lines of a bulk paste are reported together; the same address twice for one site is refused as well. */
export function readAllowlist(items: AllowlistInput): Payee[] {
  const errors: { path: string; message: string }[] = [];
  const entries: Payee[] = [];
  const firstAt = new Map<string, number>();
  let duplicates = 0;
  items.forEach((item, index) => {
    const path = `body.allowlist.${index}`;
    const { address: text, ...terms } = typeof item === "string" ? { address: item } : item;
    const parsed = parseAddress(text);
    if (!parsed.ok) {
      errors.push({ path, message: parsed.reason });
      return;
    }
    const payee = { address: parsed.address, ...readPayeeTerms(terms, path) };
    const earlier = firstAt.get(payeeKey(payee));
    if (earlier !== undefined) {
      duplicates += 1;
      errors.push({ path, message: `is the same address as body.allowlist.${earlier}` });
      return;
    }
    firstAt.set(payeeKey(payee), index);
    entries.push(payee);
  });
  const [first] = errors;
  if (!first) return entries;
  const more = errors.length > 1 ? ` (and ${errors.length - 1} more)` : "";
  throw new ApiError(duplicates === errors.length ? "validation_failed" : "invalid_address", {
    detail: `${first.path} ${first.message}${more}`,
    extra: { errors },
  });
}

/** The settings in a body; missing members stay missing. A time in the past ends the agent at once. */
export const readChange = (
  body: Omit<UpdateAgentBody, "authorization" | "allowlist">,
): AgentChange => ({
  ...(readRequestSettings(AGENT_FIELDS, body, "body") as Partial<AgentSettings>),
  ...(body.name === undefined ? {} : { name: readName(body.name) }),
  ...(body.status === undefined ? {} : { status: body.status }),
});

export const secondsOf = (time: Date | null): bigint | null =>
  time === null ? null : BigInt(Math.floor(time.getTime() / 1000));

/** The rules in force, from an agent's settings and payees. */
export const rulesInForce = (
  agent: Partial<AgentSettings> & Pick<AgentRow, "status">,
  payees: readonly Payee[],
): RulesInForce => ({
  ...(settingsIn(AGENT_FIELDS, agent) as AgentSettings),
  status: agent.status,
  payees: sortPayees(payees),
});

/**
 * The rules for which the wallet is sealed. What a stop or a rule pauses stays sealed as active, because it changes only
 * the column, at once and without a key.
 */
export const sealedRules = (
  { pausedBy }: Pick<AgentRow, "pausedBy">,
  rules: RulesInForce,
): RulesInForce => (pausedBy === null ? rules : { ...rules, status: "active" });

/** An agent's rules in API form. */
export const rulesOnWire = (agent: AgentRow) => ({
  name: agent.name,
  ...(settingsOnWire(AGENT_FIELDS, agent) as AgentWire),
  status: agent.status,
});

/** The names in API form of the members of a change. */
export const namesIn = (change: AgentChange): Set<string> =>
  new Set([
    ...Object.keys(change).filter((name) => name === "name" || name === "status"),
    ...AGENT_FIELDS.filter(({ member }) => member in change).map(({ name }) => name),
  ]);

export const payeeOnWire = (payee: Payee) => ({
  address: getAddress(payee.address),
  label: payee.label,
  site: payee.site,
  readableSite: readableSite(payee.site),
  ...(settingsOnWire(PAYEE_FIELDS, payee) as PayeeWire),
});

/** The members of the change that differ from the agent's. */
export const onlyChanges = (agent: AgentRow, wanted: AgentChange): AgentChange => ({
  ...(Object.fromEntries(
    AGENT_FIELDS.filter(
      (field) => field.member in wanted && valueIn(wanted, field) !== valueIn(agent, field),
    ).map((field) => [field.member, valueIn(wanted, field)]),
  ) as AgentChange),
  ...(wanted.name !== undefined && wanted.name !== agent.name && { name: wanted.name }),
  // An agent that a stop or a rule paused stays paused after it, if its owner says so.
  ...(wanted.status !== undefined &&
    (wanted.status !== agent.status || agent.pausedBy !== null) && { status: wanted.status }),
});
