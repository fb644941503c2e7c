import { getAddress } from "viem";
import type { Rule } from "./rule.ts";

export interface AllowlistFacts {
  /** The payee is on the agent's list, for all sites or for the site of the fetch. */
  allowed: boolean;
  /** Set for a fetch. */
  site?: string;
  /** The payee that the list contains for the site, and the different payee that the site requested. */
  expectedPayee?: string;
  seenPayee?: string;
  /** Some of the sites where the payee may be paid instead. */
  payeeSites?: string[];
}

type Codes = "recipient_not_allowed" | "site_payee_changed" | "payee_bound_to_site";

export const allowlist = {
  name: "allowlist",
  codes: ["recipient_not_allowed", "site_payee_changed", "payee_bound_to_site"],
  check: (facts) => {
    if (facts.allowed) return { refusal: null, detail: "The recipient is on the allowlist." };
    const change = siteChange(facts);
    if (change)
      return {
        refusal: "site_payee_changed",
        detail: `${change.site} requests payment to ${change.seenPayee}, but the owner allowed ${change.expectedPayee} there.`,
      };
    const { payeeSites: sites } = facts;
    if (sites)
      return {
        refusal: "payee_bound_to_site",
        detail: `The agent may pay this recipient only through x402-fetch at ${sites.join(", ")}.`,
      };
    return {
      refusal: "recipient_not_allowed",
      detail: "The recipient is not on the agent's allowlist.",
    };
  },
  advise: (facts) => ({ extra: siteChange(facts) }),
  liftable: true,
  field: {
    name: "allowlist",
    label: "Allowed payees",
    help: "The agent can pay only these payees.",
  },
} as const satisfies Rule<AllowlistFacts, Codes>;

/**
 * For a site that requests payment to another address than the owner allowed: what the owner needs to allow the
 * new one.
 */
export function siteChange({ allowed, site, expectedPayee, seenPayee }: AllowlistFacts) {
  if (allowed || site === undefined || !expectedPayee || !seenPayee) return undefined;
  return { site, expectedPayee: getAddress(expectedPayee), seenPayee: getAddress(seenPayee) };
}
