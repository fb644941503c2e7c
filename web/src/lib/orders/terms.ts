/**
 * An agent's rules in one form, whether they come from an agent, a form or an order to sign, so that they can
 * be compared.
 */
import { formatUsdc, parseUsdc, toDecimal } from "../money.ts";
import { formatDateTime } from "../time.ts";
import type { Agent, AgentChanges } from "../wire.ts";

export interface PayeeTerms {
  address: string;
  label: string;
  site: string;
  dailyLimit: string | null;
  perPaymentLimit: string | null;
  expiresAt: string | null;
}

/** Amounts are plain decimals, times ISO 8601 in whole seconds; null means none. */
export interface Terms {
  name: string;
  dailyLimit: string;
  weeklyLimit: string | null;
  monthlyLimit: string | null;
  perPaymentLimit: string | null;
  paymentsPerHour: number | null;
  fetch: "any" | "sites";
  expiresAt: string | null;
  payees: PayeeTerms[];
}

export type PayeeInput = { address: string } & Partial<Omit<PayeeTerms, "address">>;

/** Rounds a time down to whole seconds, as the server does. */
const wholeSeconds = (iso: string | null | undefined): string | null =>
  iso === null || iso === undefined || iso === ""
    ? null
    : new Date(Math.floor(Date.parse(iso) / 1000) * 1000).toISOString();

const amount = (text: string | null | undefined): string | null => {
  if (text === null || text === undefined || text.trim() === "") return null;
  const value = parseUsdc(text);
  return value === undefined ? text : toDecimal(value);
};

/** A condition that is not given keeps its previous value, or is none. */
export const payeeTerms = (given: PayeeInput, known?: PayeeTerms): PayeeTerms => ({
  address: given.address,
  label: (given.label ?? known?.label ?? "").trim(),
  site: given.site ?? known?.site ?? "",
  dailyLimit:
    given.dailyLimit === undefined ? (known?.dailyLimit ?? null) : amount(given.dailyLimit),
  perPaymentLimit:
    given.perPaymentLimit === undefined
      ? (known?.perPaymentLimit ?? null)
      : amount(given.perPaymentLimit),
  expiresAt:
    given.expiresAt === undefined ? (known?.expiresAt ?? null) : wholeSeconds(given.expiresAt),
});

type Place = Pick<PayeeInput, "address" | "site">;

/** A payee is listed once for each site, and once for all sites. */
const keyOf = ({ address, site = "" }: Place): string => `${address.toLowerCase()} ${site}`;

export const isSamePayee = (left: Place, right: Place): boolean => keyOf(left) === keyOf(right);

const inOrder = (payees: PayeeTerms[]): PayeeTerms[] =>
  payees.toSorted((left, right) => (keyOf(left) < keyOf(right) ? -1 : 1));

/** The rules of an agent that does not exist yet: nothing is allowed. */
export const NO_TERMS: Terms = {
  name: "",
  dailyLimit: "0",
  weeklyLimit: null,
  monthlyLimit: null,
  perPaymentLimit: null,
  paymentsPerHour: null,
  fetch: "any",
  expiresAt: null,
  payees: [],
};

/** The terms after a change, as the server computes them. */
export function termsWith(
  terms: Terms,
  change: Omit<AgentChanges, "authorization" | "status" | "allowlist"> & {
    payees?: PayeeInput[];
  },
): Terms {
  const limit = (text: string | null | undefined, before: string | null): string | null =>
    text === undefined ? before : amount(text);
  return {
    name: change.name === undefined ? terms.name : change.name.trim(),
    dailyLimit: amount(change.dailyLimit) ?? terms.dailyLimit,
    weeklyLimit: limit(change.weeklyLimit, terms.weeklyLimit),
    monthlyLimit: limit(change.monthlyLimit, terms.monthlyLimit),
    perPaymentLimit: limit(change.perPaymentLimit, terms.perPaymentLimit),
    paymentsPerHour:
      change.paymentsPerHour === undefined ? terms.paymentsPerHour : change.paymentsPerHour,
    fetch: change.fetch ?? terms.fetch,
    expiresAt: change.expiresAt === undefined ? terms.expiresAt : wholeSeconds(change.expiresAt),
    payees:
      change.payees === undefined
        ? terms.payees
        : inOrder(change.payees.map((payee) => payeeTerms(payee))),
  };
}

export const termsOfAgent = (agent: Agent): Terms =>
  termsWith(NO_TERMS, { ...pickRules(agent), payees: agent.allowlist });

const pickRules = (agent: Agent) => ({
  name: agent.name,
  dailyLimit: agent.dailyLimit,
  weeklyLimit: agent.weeklyLimit,
  monthlyLimit: agent.monthlyLimit,
  perPaymentLimit: agent.perPaymentLimit,
  paymentsPerHour: agent.paymentsPerHour,
  fetch: agent.fetch,
  expiresAt: agent.expiresAt,
});

const ABSENT = (1n << 256n) - 1n;

/** Throws where a value is not a number: such an order is not signed. */
const numberIn = (order: Record<string, unknown>, name: string): bigint | null => {
  const number = BigInt(String(order[name]));
  return number === ABSENT ? null : number;
};
const moneyIn = (order: Record<string, unknown>, name: string): string | null => {
  const number = numberIn(order, name);
  return number === null ? null : toDecimal(number);
};
export function timeIn(order: Record<string, unknown>, name: string): string | null {
  const seconds = numberIn(order, name);
  return seconds === null ? null : new Date(Number(seconds) * 1000).toISOString();
}

export function termsOfOrder(order: Record<string, unknown>): Terms {
  const hourly = numberIn(order, "paymentsPerHour");
  return {
    name: String(order.name),
    dailyLimit: moneyIn(order, "dailyLimit") ?? "",
    weeklyLimit: moneyIn(order, "weeklyLimit"),
    monthlyLimit: moneyIn(order, "monthlyLimit"),
    perPaymentLimit: moneyIn(order, "perPaymentLimit"),
    paymentsPerHour: hourly === null ? null : Number(hourly),
    fetch: order.fetch === "any" ? "any" : "sites",
    expiresAt: timeIn(order, "expiresAt"),
    payees: inOrder(
      (order.payees as Record<string, unknown>[]).map((payee) => ({
        address: String(payee.payee),
        label: String(payee.label),
        site: String(payee.site),
        dailyLimit: moneyIn(payee, "dailyLimit"),
        perPaymentLimit: moneyIn(payee, "perPaymentLimit"),
        expiresAt: timeIn(payee, "expiresAt"),
      })),
    ),
  };
}

const canonical = (terms: Terms): string =>
  JSON.stringify({
    ...terms,
    payees: terms.payees.map((payee) => ({ ...payee, address: payee.address.toLowerCase() })),
  });

export const isSameTerms = (left: Terms, right: Terms): boolean =>
  canonical(left) === canonical(right);

/** One line of a change, in plain words; an empty text means none. */
export interface Change {
  what: string;
  before: string;
  after: string;
}

/** The names of the settings, which the server's rules define. */
export type TermNames = Partial<Record<Exclude<keyof Terms, "name">, string>>;

export const DEFAULT_NAMES: Required<TermNames> = {
  dailyLimit: "Daily limit",
  weeklyLimit: "Weekly limit",
  monthlyLimit: "Monthly limit",
  perPaymentLimit: "Limit per payment",
  paymentsPerHour: "Payments per hour",
  fetch: "Paid APIs",
  expiresAt: "Expires",
  payees: "Payee",
};

const money = (value: string | null): string =>
  value === null ? "none" : `${formatUsdc(value)} USDC`;
const time = (iso: string | null): string => (iso === null ? "never" : formatDateTime(iso));
const FETCH = { any: "any site", sites: "only the sites of its payees" };

/** With `before` null, every rule that is set is listed. */
export function diffTerms(
  before: Terms | null,
  after: Terms,
  names: TermNames = DEFAULT_NAMES,
): Change[] {
  const called = { ...DEFAULT_NAMES, ...names };
  const old = before ?? NO_TERMS;
  const changes: Change[] = [];
  const note = (what: string, was: string, is: string): void => {
    if (was !== is) changes.push({ what, before: before === null ? "" : was, after: is });
  };
  note("Name", old.name, after.name);
  note(called.dailyLimit, before === null ? "" : money(old.dailyLimit), money(after.dailyLimit));
  note(called.weeklyLimit, money(old.weeklyLimit), money(after.weeklyLimit));
  note(called.monthlyLimit, money(old.monthlyLimit), money(after.monthlyLimit));
  note(called.perPaymentLimit, money(old.perPaymentLimit), money(after.perPaymentLimit));
  const rate = (count: number | null): string => (count === null ? "no limit" : String(count));
  note(called.paymentsPerHour, rate(old.paymentsPerHour), rate(after.paymentsPerHour));
  note(called.fetch, FETCH[old.fetch], FETCH[after.fetch]);
  note(called.expiresAt, time(old.expiresAt), time(after.expiresAt));
  return [...changes, ...diffPayees(old.payees, after.payees)];
}

const nameOf = (payee: PayeeTerms): string =>
  payee.label === "" ? payee.address : `${payee.label} (${payee.address})`;

/** The conditions of one payee, in words; empty where it has none. */
export const payeeConditions = (payee: PayeeTerms): string =>
  [
    payee.site !== "" && `only at ${payee.site}`,
    payee.dailyLimit !== null && `${formatUsdc(payee.dailyLimit)} USDC a day`,
    payee.perPaymentLimit !== null && `${formatUsdc(payee.perPaymentLimit)} USDC per payment`,
    payee.expiresAt !== null && `until ${formatDateTime(payee.expiresAt)}`,
  ]
    .filter(Boolean)
    .join(", ");

function diffPayees(before: PayeeTerms[], after: PayeeTerms[]): Change[] {
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

/** Higher, later, or without limit. */
const isMore = (wanted: string | null, current: string | null, read: (text: string) => bigint) =>
  current !== null && (wanted === null || read(wanted) > read(current));
const units = (text: string): bigint => parseUsdc(text) ?? 0n;
const moment = (iso: string): bigint => BigInt(Date.parse(iso));

/** Whether a change needs the owner's signature. The server decides; a button announces it beforehand. */
export function loosens(before: Terms, after: Terms): boolean {
  const was = termsAt(before.payees);
  const is = termsAt(after.payees);
  const hourly = (count: number | null): string | null => (count === null ? null : String(count));
  return (
    isMore(after.dailyLimit, before.dailyLimit, units) ||
    isMore(after.weeklyLimit, before.weeklyLimit, units) ||
    isMore(after.monthlyLimit, before.monthlyLimit, units) ||
    isMore(after.perPaymentLimit, before.perPaymentLimit, units) ||
    isMore(hourly(after.paymentsPerHour), hourly(before.paymentsPerHour), BigInt) ||
    (before.fetch === "sites" && after.fetch === "any") ||
    isMore(after.expiresAt, before.expiresAt, moment) ||
    reachesMore(before, after) ||
    [...before.payees, ...after.payees].some((place) => payeeLoosens(was(place), is(place)))
  );
}

/** The terms for an address at a site: those listed for the site, or those for all sites. */
function termsAt(payees: PayeeTerms[]): (place: Place) => PayeeTerms | undefined {
  const listed = new Map(payees.map((payee) => [keyOf(payee), payee]));
  return (place) => listed.get(keyOf(place)) ?? listed.get(keyOf({ address: place.address }));
}

const payeeLoosens = (was: PayeeTerms | undefined, is: PayeeTerms | undefined): boolean =>
  is !== undefined &&
  (was === undefined ||
    isMore(is.dailyLimit, was.dailyLimit, units) ||
    isMore(is.perPaymentLimit, was.perPaymentLimit, units) ||
    isMore(is.expiresAt, was.expiresAt, moment));

/** Adds a site for an agent that fetches only from its payees' sites. */
const reachesMore = (before: Terms, after: Terms): boolean =>
  before.fetch === "sites" &&
  after.payees.some(({ site }) => site !== "" && !before.payees.some((was) => was.site === site));
