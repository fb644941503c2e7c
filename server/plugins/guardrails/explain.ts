/**
 * The rules applied as a pure function, in the order and with the comparisons of the SQL function
 * purser_first_refusal, which decides when money is at stake. This one explains: dry runs, and the
 * trace an owner sees.
 */
import { formatAtomic } from "../../core/money.ts";
import { ApiError, ERRORS } from "../../errors.ts";
import { dailyLimit } from "./rules/daily-limit.ts";
import { RULES } from "./rules/index.ts";
import type { Moment } from "./rules/rule.ts";
import type {
  DenialCode,
  Evaluation,
  Limits,
  Policy,
  RuleName,
  RuleVerdict,
  Snapshot,
} from "./types.ts";

export { remainingOf } from "./rules/daily-limit.ts";

export function evaluate(snapshot: Snapshot): Evaluation {
  const trace: RuleVerdict[] = [];
  let refused: Omit<Extract<Evaluation, { allowed: false }>, "allowed" | "trace"> | undefined;
  for (const rule of RULES) {
    const found = rule.check(snapshot);
    if (found === null) continue;
    const { refusal, detail } = found;
    if (refused !== undefined) {
      trace.push({
        rule: rule.name,
        passed: null,
        detail: "Not looked at: an earlier rule refused.",
      });
      continue;
    }
    trace.push({ rule: rule.name, passed: refusal === null, detail });
    if (refusal !== null) refused = { code: refusal, rule: rule.name, detail };
  }
  return refused === undefined ? { allowed: true, trace } : { allowed: false, ...refused, trace };
}

/** The numbers the rule that refused was judged on. */
export function policyOf(snapshot: Snapshot, rule: RuleName): Policy {
  const judge = RULES.find(({ name }) => name === rule);
  return {
    rule,
    ...(judge?.policy?.(snapshot) ?? dailyLimit.policy(snapshot)),
    requested: formatAtomic(snapshot.requested),
  };
}

export interface LimitsOnWire {
  limit: string;
  spent: string;
  reserved: string;
  remaining: string;
  nextReleaseAt: string | null;
}

export function limitsOnWire(limits: Limits): LimitsOnWire {
  return {
    limit: formatAtomic(limits.limitAtomic),
    spent: formatAtomic(limits.spentAtomic),
    reserved: formatAtomic(limits.reservedAtomic),
    remaining: formatAtomic(limits.remainingAtomic),
    nextReleaseAt: limits.nextReleaseAt?.toISOString() ?? null,
  };
}

/** Turns a refusal into the error an agent can act on: why, by which numbers, and when to try again. */

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
