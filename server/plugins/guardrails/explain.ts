/**
 * Evaluates the rules as a pure function, with the order and comparisons of the SQL function
 * purser_first_refusal, which decides about real payments. This one explains decisions: for dry runs, and for
 * the trace that an owner sees.
 */
import { getAddress, type Address } from "viem";
import { formatAtomic } from "../../core/money.ts";
import { ApiError, ERRORS } from "../../errors.ts";
import type { GeneralRule } from "../../schemas/agents.ts";
import type { Available } from "./available.ts";
import {
  BUDGET_WINDOWS,
  dailyNumbers,
  remainingOf,
  RULES,
  type BudgetLimit,
  type Moment,
  type DenialCode,
  type Limits,
  type RuleName,
  type Snapshot,
  type WindowLimits,
} from "./rules.ts";
import type { Evaluation, Policy, RuleVerdict } from "./types.ts";

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
        detail: "Not checked: an earlier rule refused the payment.",
      });
      continue;
    }
    if (refusal !== null && rule.liftable && snapshot.approval) {
      const lifted = `${detail} The owner's approval ${snapshot.approval.id} allows it once.`;
      trace.push({ rule: rule.name, passed: true, detail: lifted });
      continue;
    }
    const mayBeLifted = refusal !== null && rule.liftable === true;
    trace.push({
      rule: rule.name,
      passed: refusal === null,
      detail,
      ...(mayBeLifted && { liftable: true }),
    });
    if (refusal !== null) refused = { code: refusal, rule: rule.name, detail };
  }
  return refused === undefined ? { allowed: true, trace } : { allowed: false, ...refused, trace };
}

/** Whether the owner may approve a payment that this rule refuses. */
const isLiftable = (name: RuleName): boolean =>
  RULES.some((rule) => rule.name === name && rule.liftable === true);

/** The numbers that the refusing rule compared. */
export function policyOf(snapshot: Snapshot, rule: RuleName): Policy {
  const judge = RULES.find(({ name }) => name === rule);
  return {
    rule,
    ...(judge?.policy?.(snapshot) ?? dailyNumbers(snapshot)),
    requested: formatAtomic(judge?.compared?.(snapshot) ?? snapshot.requested),
  };
}

interface WindowOnWire {
  limit: string;
  spent: string;
  reserved: string;
  remaining: string;
  nextReleaseAt: string | null;
}

interface LimitsOnWire extends WindowOnWire {
  available: string | null;
  boundBy: GeneralRule | null;
  weekly: WindowOnWire | null;
  monthly: WindowOnWire | null;
  /** Numbers of payments, not amounts. */
  hourly:
    | ({ [Number in keyof Omit<WindowOnWire, "nextReleaseAt">]: number } & Pick<
        WindowOnWire,
        "nextReleaseAt"
      >)
    | null;
  budgets: {
    id: string;
    name: string;
    window: string;
    limit: string;
    available: string;
    availableAt?: string;
  }[];
}

export function windowOnWire(window: WindowLimits): WindowOnWire {
  return {
    limit: formatAtomic(window.limitAtomic),
    spent: formatAtomic(window.spentAtomic),
    reserved: formatAtomic(window.reservedAtomic),
    remaining: formatAtomic(window.remainingAtomic),
    nextReleaseAt: window.nextReleaseAt?.toISOString() ?? null,
  };
}

export const budgetOnWire = ({ hours, limitAtomic, usedAtomic, availableAt }: BudgetLimit) => ({
  window: BUDGET_WINDOWS[hours]?.window ?? "",
  limit: formatAtomic(limitAtomic),
  available: formatAtomic(remainingOf(limitAtomic, usedAtomic)),
  ...(availableAt && { availableAt: availableAt.toISOString() }),
});

export function limitsOnWire(
  { weekly, monthly, hourly, budgets = [], ...daily }: Limits,
  available: Available | null,
): LimitsOnWire {
  return {
    ...windowOnWire(daily),
    available: available && formatAtomic(available.atomic),
    boundBy: available?.boundBy ?? null,
    weekly: weekly && windowOnWire(weekly),
    monthly: monthly && windowOnWire(monthly),
    hourly: hourly && {
      limit: Number(hourly.limitAtomic),
      spent: Number(hourly.spentAtomic),
      reserved: Number(hourly.reservedAtomic),
      remaining: Number(hourly.remainingAtomic),
      nextReleaseAt: hourly.nextReleaseAt?.toISOString() ?? null,
    },
    budgets: budgets.map((budget) => ({
      id: budget.id,
      name: budget.name,
      ...budgetOnWire(budget),
    })),
  };
}

/** Turns a refusal into an error that an agent can act on: why, by which numbers, and when to retry. */

export interface Denial extends Moment {
  code: DenialCode;
  rule: RuleName;
  snapshot: Snapshot;
  paymentId: string | null;
  /** The sentence of the rule that refused. */
  detail: string;
  /** The payee, and the origin that was fetched. */
  payTo?: Address | null;
  site?: string;
}

/** The payee that the owner would have to allow, and for which site. */
function whomToAllow({ payTo, site, code, rule }: Denial): Record<string, unknown> {
  if (rule !== "allowlist" || !payTo) return {};
  const address = getAddress(payTo);
  const where = site === undefined ? "" : `, for ${site} or for all sites`;
  return {
    payTo: address,
    site: site ?? null,
    ...(code === "recipient_not_allowed" && {
      suggestion: `Ask the owner to allow ${address}${where}.`,
    }),
  };
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
      ...whomToAllow(denial),
      ...advice?.extra,
      ...(isLiftable(rule) && { approvable: true }),
    },
  });
}
