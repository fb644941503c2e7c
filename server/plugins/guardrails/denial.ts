/** Turns a refusal into the error an agent can act on: why, by which numbers, and when to try again. */
import { ApiError, ERRORS } from "../../errors.ts";
import { policyOf } from "./explain.ts";
import { RULES } from "./rules/index.ts";
import type { Moment } from "./rules/rule.ts";
import type { DenialCode, RuleName, Snapshot } from "./types.ts";

export interface Denial extends Moment {
  code: DenialCode;
  rule: RuleName;
  snapshot: Snapshot;
  paymentId: string | null;
  /** The sentence of the rule that refused. */
  detail: string;
}

export function denialError(denial: Denial): ApiError {
  const { code, rule, snapshot } = denial;
  const advice = RULES.find(({ name }) => name === rule)?.advise?.(snapshot, denial);
  return new ApiError(code, {
    detail: denial.detail,
    extra: {
      blocked: true,
      retryable: advice?.retryable ?? ERRORS[code].retryable,
      suggestion: advice?.suggestion ?? ERRORS[code].help,
      paymentId: denial.paymentId,
      policy: policyOf(snapshot, rule),
      ...advice?.extra,
    },
  });
}
