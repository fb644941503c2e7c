/**
 * An agent's spending rules, and the two comparisons on which everything depends: whether a change loosens them, and
 * whether they cover a payment.
 */
import {
  AGENT_FIELDS,
  PAYEE_FIELDS,
  valueIn,
  type AgentSettings,
  type Field,
  type PayeeSettings,
} from "./fields.ts";
import type { PaymentMoment } from "./kinds.ts";

export type Address = `0x${string}`;

export type Payee = PayeeSettings & {
  address: Address;
  label: string;
  /** "", or the one origin at which it may be paid, by x402-fetch only. */
  site: string;
};

/** An agent's rules, with payees sorted by address and site. */
export type Rules = AgentSettings & { payees: readonly Payee[] };

/** The rules in force: the signed ones, narrowed by the owner's later restrictions. */
export type RulesInForce = Rules & { status: "active" | "paused" | "archived" };

type Place = Pick<Payee, "site"> & { address: string };

/** The key of a payee entry: a payee has at most one entry per site, and one for all other places. */
export const payeeKey = ({ address, site }: Place): string => `${address.toLowerCase()} ${site}`;

export const sortPayees = <T extends Place>(payees: readonly T[]): T[] =>
  payees.toSorted((left, right) => (payeeKey(left) < payeeKey(right) ? -1 : 1));

/** The terms for paying an address at a site: its entry for the site, otherwise its entry for everywhere. */
function termsAt(payees: readonly Payee[]): (place: Place) => Payee | undefined {
  const listed = new Map(payees.map((payee) => [payeeKey(payee), payee]));
  return (place) => listed.get(payeeKey(place)) ?? listed.get(payeeKey({ ...place, site: "" }));
}

const sitesOf = (payees: readonly Payee[]): Set<string> =>
  new Set(payees.map(({ site }) => site).filter((site) => site !== ""));

const allowsMore = (fields: readonly Field[], wanted: object, current: object): boolean =>
  fields.some((field) => field.kind.allowsMore(valueIn(wanted, field), valueIn(current, field)));

/** Whether the change allows anything that the current rules do not. Names and labels allow nothing. */
export function loosens(current: RulesInForce, wanted: RulesInForce): boolean {
  if (current.status !== "active" && wanted.status === "active") return true;
  if (current.status === "archived" && wanted.status !== "archived") return true;
  const reachable = sitesOf(current.payees);
  if (current.fetch === "sites" && wanted.payees.some(({ site }) => site && !reachable.has(site)))
    return true;
  const before = termsAt(current.payees);
  const after = termsAt(wanted.payees);
  return (
    allowsMore(AGENT_FIELDS, wanted, current) ||
    // An entry may also loosen by its removal: without its own terms, a site has those for everywhere.
    [...current.payees, ...wanted.payees].some((place) => payeeLoosens(before(place), after(place)))
  );
}

function payeeLoosens(current: Payee | undefined, wanted: Payee | undefined): boolean {
  if (wanted === undefined) return false;
  return current === undefined || allowsMore(PAYEE_FIELDS, wanted, current);
}

/** The payment to be signed: `site` is the origin of an x402 payment. */
export interface PaymentFacts extends PaymentMoment {
  payee: Address;
  site?: string;
}

type Cover = { covered: true } | { covered: false; why: string };

const refusalOf = (
  fields: readonly Field[],
  settings: object,
  payment: PaymentMoment,
): string | undefined =>
  fields.find((field) => field.kind.refuses?.(valueIn(settings, field), payment))?.refusal;

/** For many payments under the same rules: payees and sites are indexed. */
export function coverOf(rules: Rules): (payment: PaymentFacts) => Cover {
  const terms = termsAt(rules.payees);
  const addresses = new Set(rules.payees.map(({ address }) => address.toLowerCase()));
  const sites = sitesOf(rules.payees);
  const no = (why: string): Cover => ({ covered: false, why });
  return (payment) => {
    const { payee: address, site } = payment;
    const payee = terms({ address, site: site ?? "" });
    if (!payee && addresses.has(address.toLowerCase()))
      return no("the owner signed this payee for a different site, or not for direct payments");
    if (!payee) return no("the owner did not sign for this payee");
    if (site !== undefined && rules.fetch === "sites" && !sites.has(site))
      return no("the owner did not sign for this site");
    const why = refusalOf(AGENT_FIELDS, rules, payment) ?? refusalOf(PAYEE_FIELDS, payee, payment);
    return why === undefined ? { covered: true } : no(why);
  };
}

/** Whether a setting that the owner's approval does not lift refuses the payment. */
export const refusesApproved = (rules: Rules, payment: PaymentMoment): boolean =>
  refusalOf(
    AGENT_FIELDS.filter(({ approvable }) => approvable !== true),
    rules,
    payment,
  ) !== undefined;

/** The most that may be spent in a day, by all limits over time. */
export function mostOfDay(rules: Rules): bigint {
  const limits = AGENT_FIELDS.filter(({ window, kind }) => window && kind.name === "amount")
    .map((field) => valueIn(rules, field))
    .filter((limit) => typeof limit === "bigint");
  return limits.reduce((least, limit) => (limit < least ? limit : least));
}
