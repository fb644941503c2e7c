/** Parses an owner's rules from requests, refuses invalid fields by their path, and formats rules for responses. */
import { getAddress, type Address } from "viem";
import { parseAddress } from "../../core/foreign-text.ts";
import { formatAtomic, parseDecimal } from "../../core/money.ts";
import { payeeKey, sortPayees, type Payee, type RulesInForce } from "../../core/rules.ts";
import { parseSite, readableSite } from "../../core/site.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";
import type { AllowlistInput, PayeeInput, UpdateAgentBody } from "../../schemas/agents.ts";
import type { AgentChange, AgentRow } from "./store.ts";

export function refuseField(code: ErrorCode, path: string, message: string): ApiError {
  return new ApiError(code, {
    detail: `${path} ${message}`,
    extra: { errors: [{ path, message }] },
  });
}

export function readName(text: string): string {
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
  // Control characters, and marks that reorder text: they would let a label look like another one.
  if (/[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/u.test(text))
    throw refuseField("validation_failed", path, "must not contain control characters");
}

/** A limit may be "0": then nothing can be spent. */
export function readLimit(text: string, path: string): bigint {
  const parsed = parseDecimal(text);
  if (!parsed.ok) throw refuseField("invalid_amount", path, parsed.reason);
  return parsed.atomic;
}

export function readTime(text: string, path: string): Date {
  const time = new Date(text);
  const year = time.getUTCFullYear();
  if (Number.isNaN(time.getTime()) || year < 1970 || year > 9999)
    throw refuseField("validation_failed", path, "must be a time in RFC 3339 format");
  // Whole seconds, as in an order, rounded down so that it is never later than requested.
  return new Date(Math.floor(time.getTime() / 1000) * 1000);
}

export function readAddress(text: string, path: string): Address {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw refuseField("invalid_address", path, parsed.reason);
  return parsed.address;
}

/** A payee's own terms; missing members keep their current value, or are unset. */
export function readPayeeTerms(body: Omit<PayeeInput, "address">, path: string, known?: Payee) {
  const limit = (text: string | null | undefined, name: string, before: bigint | null) =>
    typeof text === "string" ? readLimit(text, `${path}.${name}`) : text === null ? null : before;
  const { expiresAt } = body;
  return {
    label: body.label === undefined && known ? known.label : readLabel(body.label, `${path}.label`),
    site: readSite(body.site, `${path}.site`),
    dailyLimitAtomic: limit(body.dailyLimit, "dailyLimit", known?.dailyLimitAtomic ?? null),
    perPaymentLimitAtomic: limit(
      body.perPaymentLimit,
      "perPaymentLimit",
      known?.perPaymentLimitAtomic ?? null,
    ),
    expiresAtSeconds:
      expiresAt === undefined
        ? (known?.expiresAtSeconds ?? null)
        : secondsOf(expiresAt === null ? null : readTime(expiresAt, `${path}.expiresAt`)),
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

/** The limits, names and times in a body; missing members stay missing. */
export function readChange(
  body: Omit<UpdateAgentBody, "authorization" | "allowlist">,
): AgentChange {
  const limit = (text: string | null, name: string) =>
    text === null ? null : readLimit(text, `body.${name}`);
  const { weeklyLimit, monthlyLimit, perPaymentLimit, paymentsPerHour } = body;
  return {
    ...(body.name === undefined ? {} : { name: readName(body.name) }),
    ...(body.dailyLimit === undefined
      ? {}
      : { dailyLimitAtomic: readLimit(body.dailyLimit, "body.dailyLimit") }),
    ...(weeklyLimit === undefined ? {} : { weeklyLimitAtomic: limit(weeklyLimit, "weeklyLimit") }),
    ...(monthlyLimit === undefined
      ? {}
      : { monthlyLimitAtomic: limit(monthlyLimit, "monthlyLimit") }),
    ...(perPaymentLimit === undefined
      ? {}
      : { perPaymentLimitAtomic: limit(perPaymentLimit, "perPaymentLimit") }),
    ...(paymentsPerHour === undefined ? {} : { paymentsPerHour }),
    ...(body.fetch === undefined ? {} : { fetch: body.fetch }),
    // A time in the past ends the agent at once.
    ...(body.expiresAt === undefined
      ? {}
      : { expiresAt: body.expiresAt === null ? null : readTime(body.expiresAt, "body.expiresAt") }),
    ...(body.status === undefined ? {} : { status: body.status }),
  };
}

export const secondsOf = (time: Date | null): bigint | null =>
  time === null ? null : BigInt(Math.floor(time.getTime() / 1000));

/** The rules in force, from an agent's columns and payees. */
export const rulesInForce = (
  agent: Omit<AgentChange, "name"> & Pick<AgentRow, "dailyLimitAtomic" | "status">,
  payees: readonly Payee[],
): RulesInForce => ({
  status: agent.status,
  dailyLimitAtomic: agent.dailyLimitAtomic,
  weeklyLimitAtomic: agent.weeklyLimitAtomic ?? null,
  monthlyLimitAtomic: agent.monthlyLimitAtomic ?? null,
  perPaymentLimitAtomic: agent.perPaymentLimitAtomic ?? null,
  paymentsPerHour: typeof agent.paymentsPerHour === "number" ? BigInt(agent.paymentsPerHour) : null,
  fetch: agent.fetch ?? "any",
  expiresAtSeconds: secondsOf(agent.expiresAt ?? null),
  payees: sortPayees(payees),
});

const amountOrNull = (atomic: bigint | null): string | null =>
  atomic === null ? null : formatAtomic(atomic);

/** An agent's rules in API form. */
export const rulesOnWire = (agent: AgentRow) => ({
  name: agent.name,
  dailyLimit: formatAtomic(agent.dailyLimitAtomic),
  weeklyLimit: amountOrNull(agent.weeklyLimitAtomic),
  monthlyLimit: amountOrNull(agent.monthlyLimitAtomic),
  perPaymentLimit: amountOrNull(agent.perPaymentLimitAtomic),
  paymentsPerHour: agent.paymentsPerHour,
  fetch: agent.fetch,
  expiresAt: agent.expiresAt?.toISOString() ?? null,
  status: agent.status,
});

export const payeeOnWire = (payee: Payee) => ({
  address: getAddress(payee.address),
  label: payee.label,
  site: payee.site,
  readableSite: readableSite(payee.site),
  dailyLimit: amountOrNull(payee.dailyLimitAtomic),
  perPaymentLimit: amountOrNull(payee.perPaymentLimitAtomic),
  expiresAt:
    payee.expiresAtSeconds === null
      ? null
      : new Date(Number(payee.expiresAtSeconds) * 1000).toISOString(),
});
