import type { ErrorCode } from "../../../errors.ts";
import type { Rule } from "./rule.ts";

export type TargetCode =
  | "listing_mismatch"
  | "url_blocked"
  | "origin_not_allowed"
  | "challenge_already_used";

export interface TargetFacts {
  /** A problem with the target: a listing whose terms changed, or a site that the agent may not fetch from. */
  refusal: ErrorCode | null;
  /** The agent may fetch only from its payees' sites. Missing if it may fetch from anywhere. */
  confined?: boolean;
  /** The origin of the fetch; missing unless another fact concerns it. */
  site?: string;
}

export const target = {
  name: "target",
  codes: ["listing_mismatch", "url_blocked", "origin_not_allowed", "challenge_already_used"],
  check: ({ refusal, confined, site }) => {
    switch (refusal) {
      case null:
        return confined ? { refusal, detail: `${site} is a site of the agent's payees.` } : null;
      case "listing_mismatch":
        return { refusal, detail: "The current terms differ from the listing." };
      case "challenge_already_used":
        return { refusal, detail: "A payment has already answered this challenge." };
      case "origin_not_allowed":
        return { refusal, detail: notAmongSites(site) };
      default:
        return { refusal: "url_blocked", detail: "The agent may not pay this target." };
    }
  },
  advise: ({ refusal, site }) =>
    refusal === "origin_not_allowed"
      ? {
          suggestion: "Fetch from a site on the allowlist, or ask the owner to allow this site.",
          extra: { site },
        }
      : {},
  field: {
    name: "fetch",
    label: "Sites it may fetch from",
    help: "Any site, or only the sites of its payees. Also applies to free responses",
  },
} as const satisfies Rule<TargetFacts, TargetCode>;

const notAmongSites = (site = "This site"): string =>
  `The agent may fetch only from its payees' sites, and ${site} is not one of them.`;
