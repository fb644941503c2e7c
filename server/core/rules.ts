/**
 * An agent's spending rules, and the two comparisons on which everything depends: whether a change loosens them, and
 * whether they cover a payment.
 */
import { createHash } from "node:crypto";
import type { Address, Hex } from "viem";

export interface Payee {
  /** Lower case. */
  address: Address;
  label: string;
  /** "", or the one origin at which it may be paid, by x402-fetch only. */
  site: string;
  dailyLimitAtomic: bigint | null;
  perPaymentLimitAtomic: bigint | null;
  expiresAtSeconds: bigint | null;
}

/** An agent's rules, with payees sorted by address and site. */
export interface Rules {
  dailyLimitAtomic: bigint;
  weeklyLimitAtomic: bigint | null;
  monthlyLimitAtomic: bigint | null;
  perPaymentLimitAtomic: bigint | null;
  paymentsPerHour: bigint | null;
  fetch: "any" | "sites";
  expiresAtSeconds: bigint | null;
  payees: readonly Payee[];
}

/** The rules in force: the signed ones, narrowed by the owner's later restrictions. */
export interface RulesInForce extends Rules {
  status: "active" | "paused" | "archived";
}

/** The key of a payee entry: a payee has at most one entry per site, and one for all other places. */
export const payeeKey = ({ address, site }: Pick<Payee, "address" | "site">): string =>
  `${address} ${site}`;

export const sortPayees = <T extends Pick<Payee, "address" | "site">>(payees: readonly T[]): T[] =>
  payees.toSorted((left, right) => (payeeKey(left) < payeeKey(right) ? -1 : 1));

type Place = Pick<Payee, "address" | "site">;

/** The terms for paying an address at a site: its entry for the site, otherwise its entry for everywhere. */
function termsAt(payees: readonly Payee[]): (place: Place) => Payee | undefined {
  const listed = new Map(payees.map((payee) => [payeeKey(payee), payee]));
  return (place) => listed.get(payeeKey(place)) ?? listed.get(payeeKey({ ...place, site: "" }));
}

const sitesOf = (payees: readonly Payee[]): Set<string> =>
  new Set(payees.map(({ site }) => site).filter((site) => site !== ""));

/** Equal bytes exactly for equal rules; names and labels do not count. */
export function rulesDigest(rules: RulesInForce): Hex {
  const payees = sortPayees(rules.payees).map((payee) => [
    payee.address,
    payee.site,
    payee.dailyLimitAtomic,
    payee.perPaymentLimitAtomic,
    payee.expiresAtSeconds,
  ]);
  const facts = [
    rules.status,
    rules.dailyLimitAtomic,
    rules.weeklyLimitAtomic,
    rules.monthlyLimitAtomic,
    rules.perPaymentLimitAtomic,
    rules.paymentsPerHour,
    rules.fetch,
    rules.expiresAtSeconds,
    payees,
  ];
  const canonical = JSON.stringify(facts, (_key, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  return `0x${createHash("sha256").update(`purser:rules:v1|${canonical}`).digest("hex")}`;
}

/** Whether the new value is later or higher; null means forever, or no limit. */
const isMore = (wanted: bigint | null, current: bigint | null): boolean =>
  current !== null && (wanted === null || wanted > current);

/** Whether the change allows anything that the current rules do not. Names and labels allow nothing. */
export function loosens(current: RulesInForce, wanted: RulesInForce): boolean {
  if (current.status !== "active" && wanted.status === "active") return true;
  if (current.status === "archived" && wanted.status !== "archived") return true;
  if (current.fetch === "sites" && wanted.fetch === "any") return true;
  const reachable = sitesOf(current.payees);
  if (current.fetch === "sites" && wanted.payees.some(({ site }) => site && !reachable.has(site)))
    return true;
  const before = termsAt(current.payees);
  const after = termsAt(wanted.payees);
  return (
    isMore(wanted.dailyLimitAtomic, current.dailyLimitAtomic) ||
    isMore(wanted.weeklyLimitAtomic, current.weeklyLimitAtomic) ||
    isMore(wanted.monthlyLimitAtomic, current.monthlyLimitAtomic) ||
    isMore(wanted.perPaymentLimitAtomic, current.perPaymentLimitAtomic) ||
    isMore(wanted.paymentsPerHour, current.paymentsPerHour) ||
    isMore(wanted.expiresAtSeconds, current.expiresAtSeconds) ||
    // An entry may also loosen by its removal: without its own terms, a site has those for everywhere.
    [...current.payees, ...wanted.payees].some((place) => payeeLoosens(before(place), after(place)))
  );
}

function payeeLoosens(current: Payee | undefined, wanted: Payee | undefined): boolean {
  if (wanted === undefined) return false;
  if (current === undefined) return true;
  return (
    isMore(wanted.dailyLimitAtomic, current.dailyLimitAtomic) ||
    isMore(wanted.perPaymentLimitAtomic, current.perPaymentLimitAtomic) ||
    isMore(wanted.expiresAtSeconds, current.expiresAtSeconds)
  );
}

/** The payment to be signed: `site` is the origin of an x402 payment. */
export interface PaymentFacts {
  payee: Address;
  valueAtomic: bigint;
  site?: string;
  nowSeconds: bigint;
}

export type Cover = { covered: true } | { covered: false; why: string };

/** For many payments under the same rules: payees and sites are indexed. */
export function coverOf(rules: Rules): (payment: PaymentFacts) => Cover {
  const terms = termsAt(rules.payees);
  const addresses = new Set(rules.payees.map(({ address }) => address));
  const sites = sitesOf(rules.payees);
  const isOver = (end: bigint | null, now: bigint) => end !== null && end <= now;
  const isAbove = (limit: bigint | null, value: bigint) => limit !== null && value > limit;
  const no = (why: string): Cover => ({ covered: false, why });
  return ({ payee: to, valueAtomic, site, nowSeconds }) => {
    const address = to.toLowerCase() as Address;
    const payee = terms({ address, site: site ?? "" });
    if (!payee && addresses.has(address))
      return no("the owner signed this payee for a different site, or not for direct payments");
    if (!payee) return no("the owner did not sign for this payee");
    if (site !== undefined && rules.fetch === "sites" && !sites.has(site))
      return no("the owner did not sign for this site");
    if (isOver(rules.expiresAtSeconds, nowSeconds)) return no("the policy has expired");
    if (isOver(payee.expiresAtSeconds, nowSeconds)) return no("the payee has expired");
    if (isAbove(rules.dailyLimitAtomic, valueAtomic)) return no("it is above the daily limit");
    if (isAbove(rules.weeklyLimitAtomic, valueAtomic)) return no("it is above the weekly limit");
    if (isAbove(rules.monthlyLimitAtomic, valueAtomic)) return no("it is above the monthly limit");
    if (isAbove(rules.perPaymentLimitAtomic, valueAtomic))
      return no("it is above the limit per payment");
    if (
      isAbove(payee.perPaymentLimitAtomic, valueAtomic) ||
      isAbove(payee.dailyLimitAtomic, valueAtomic)
    )
      return no("it is above the payee's limit");
    return { covered: true };
  };
}

export const covers = (rules: RulesInForce, payment: PaymentFacts): Cover =>
  rules.status === "active"
    ? coverOf(rules)(payment)
    : { covered: false, why: "the agent is paused" };
