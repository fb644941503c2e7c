import type { ErrorCode } from "../../../errors.ts";
import type { Rule } from "./rule.ts";

export type TargetCode = "listing_mismatch" | "url_blocked";

export interface TargetFacts {
  /** What the caller had already found wrong with the target (a listing whose terms changed). */
  refusal: ErrorCode | null;
}

export const target = {
  name: "target",
  codes: ["listing_mismatch", "url_blocked"],
  check: ({ refusal }) => {
    if (refusal === null) return null;
    return refusal === "listing_mismatch"
      ? { refusal, detail: "The live terms differ from the listing." }
      : { refusal: "url_blocked", detail: "The target may not be paid." };
  },
} as const satisfies Rule<TargetFacts, TargetCode>;
