/** Templates of the form for a new agent. They fill the form, where every value is visible and can be changed. */
import { isSamePayee } from "../../lib/orders/terms.ts";
import { type AllowlistDraft, EMPTY_RULES, type RulesDraft } from "./rules.ts";

export interface Template {
  id: string;
  title: string;
  lead: string;
  name: string;
  /** Settings as typed; those that are missing are not set. */
  settings: Partial<Omit<RulesDraft, "name" | "allowlist">>;
  /** Ticks the sellers of this service itself. A third party's seller needs a tick of the owner's own. */
  withOwnSellers: boolean;
}

export const TEMPLATES: readonly Template[] = [
  {
    id: "research",
    title: "Research agent",
    lead: "Buys cheap pages: at most 0.10 USDC each and 2 USDC a day.",
    name: "Research agent",
    settings: { dailyLimit: "2", perPaymentLimit: "0.1", paymentsPerHour: "60", fetch: "any" },
    withOwnSellers: true,
  },
  {
    id: "data",
    title: "Data buyer",
    lead: "Buys data for up to 5 USDC each, also through payment channels.",
    name: "Data buyer",
    settings: {
      dailyLimit: "25",
      perPaymentLimit: "5",
      monthlyLimit: "250",
      channelHeld: "5",
      channelDelay: "86400",
    },
    withOwnSellers: true,
  },
  {
    id: "shop",
    title: "Shop assistant",
    lead: "Pays nothing by itself. It asks you before each payment.",
    name: "Shop assistant",
    settings: { dailyLimit: "0" },
    withOwnSellers: false,
  },
];

/** A payee that the form suggests, with what a tick adds. */
export interface SuggestedPayee {
  address: string;
  site: string;
  /** The names that the seller gave to what it sells. */
  names: string[];
  lowest: string;
  /** The highest price, which becomes its limit per payment. */
  highest: string;
  /** A call may cost less than its price. */
  isByUse: boolean;
  /** Paid fetches by agents of this service. */
  uses: number;
  isOwn: boolean;
}

export const entryOf = ({ address, site, highest }: SuggestedPayee): AllowlistDraft => ({
  address,
  site,
  label: new URL(site).host.slice(0, 80),
  perPaymentLimit: highest,
});

const SETTINGS = Object.keys(EMPTY_RULES).filter(
  (name) => name !== "name" && name !== "allowlist",
) as (keyof Template["settings"])[];

const valuesOf = (template: Template | undefined): RulesDraft => ({
  ...EMPTY_RULES,
  ...template?.settings,
});

/** The template whose settings the form shows; `null` if it shows those of none. */
export const templateIn = (draft: RulesDraft): Template | "empty" | null =>
  [...TEMPLATES, undefined]
    .filter((one) => SETTINGS.every((name) => valuesOf(one)[name] === draft[name]))
    .map((one) => one ?? ("empty" as const))[0] ?? null;

const isTemplateName = (name: string): boolean => TEMPLATES.some((one) => one.name === name);
/** Whether the owner left the entry as a template or a tick added it. */
const isAsAdded = (entry: AllowlistDraft, own: AllowlistDraft): boolean =>
  isSamePayee(entry, own) &&
  entry.label === own.label &&
  entry.perPaymentLimit === own.perPaymentLimit;

/** Ticks the sellers of this service, or takes back what another template ticked. Payees that were chosen stay. */
export function tickSellers(
  draft: RulesDraft,
  template: Template | undefined,
  suggested: readonly SuggestedPayee[],
): RulesDraft {
  const own = suggested.filter(({ isOwn }) => isOwn).map(entryOf);
  const chosen = draft.allowlist.filter((entry) => !own.some((one) => isAsAdded(entry, one)));
  const missing = own.filter((one) => !chosen.some((entry) => isSamePayee(entry, one)));
  return {
    ...draft,
    allowlist: template?.withOwnSellers === true ? [...missing, ...chosen] : chosen,
  };
}

/** Fills the settings. A name that was typed and payees that were chosen stay. */
export function fill(
  draft: RulesDraft,
  template: Template | undefined,
  suggested: readonly SuggestedPayee[],
): RulesDraft {
  const name = draft.name.trim();
  const filled = {
    ...valuesOf(template),
    name: name === "" || isTemplateName(name) ? (template?.name ?? "") : draft.name,
    allowlist: draft.allowlist,
  };
  return tickSellers(filled, template, suggested);
}
