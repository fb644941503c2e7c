import { getAddress } from "viem";
import type { Rule } from "./rule.ts";

export interface AllowlistFacts {
  /** The payee is on the agent's list, for everywhere or for the site of the fetch. */
  allowed: boolean;
  /** Set for a fetch. */
  site?: string;
  /** The payee that the list expects at the site, and the payee that the site names instead. */
  expectedPayee?: string;
  seenPayee?: string;
  /** Where the payee may be paid instead: some of its sites. */
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

/** A site that names another address than the owner signed: what the owner needs to sign the new one. */
export function siteChange({ allowed, site, expectedPayee, seenPayee }: AllowlistFacts) {
  if (allowed || site === undefined || !expectedPayee || !seenPayee) return undefined;
  return { site, expectedPayee: getAddress(expectedPayee), seenPayee: getAddress(seenPayee) };
}
