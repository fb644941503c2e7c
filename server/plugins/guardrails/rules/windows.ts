/** Rolling limits: amounts per day, week and 30 days, and the number of payments per hour. */
import { formatAtomic } from "../../../core/money.ts";
import type { ErrorCode } from "../../../errors.ts";
import {
  usdc,
  type Finding,
  type FormField,
  type Moment,
  type PolicyNumbers,
  type Rule,
} from "./rule.ts";

/** The settled and the outstanding part of a window, and the limit of their sum. */
export interface Used {
  limit: bigint;
  spent: bigint;
  reserved: bigint;
}

/** If the limit was lowered below the spent amount, nothing remains, not a negative amount. */
export function remainingOf(limit: bigint, used: bigint): bigint {
  return limit > used ? limit - used : 0n;
}

const numbersOf = (
  { limit, spent, reserved }: Used,
  window: string,
  text: (number: bigint) => string,
): PolicyNumbers => ({
  window,
  limit: text(limit),
  spent: text(spent),
  reserved: text(reserved),
  remaining: text(remainingOf(limit, spent + reserved)),
});

interface Requested {
  requested: bigint;
}

/** Amounts in USDC, or numbers of payments if `counts` is set. */
interface WindowRule<Name extends string, Code extends ErrorCode, Facts> {
  name: Name;
  code: Code;
  /** `window` as in `policy`; `during` and `called` name the window and the limit in sentences. */
  window: string;
  during: string;
  called: string;
  counts?: true;
  /** Null: the limit is not set. */
  used(facts: Facts): Used | null;
  field: FormField;
}

/**
 * Creates a rule with a rolling window: the used and the requested amount together must not exceed the limit.
 */
export function windowRule<Name extends string, Code extends ErrorCode, Facts extends Requested>(
  rule: WindowRule<Name, Code, Facts>,
) {
  const requestedOf = ({ requested }: Facts): bigint => (rule.counts ? 1n : requested);
  const text = (number: bigint): string => (rule.counts ? `${number}` : formatAtomic(number));
  const withUnit = (number: bigint): string =>
    rule.counts ? `${number} ${number === 1n ? "payment" : "payments"}` : usdc(number);
  return {
    name: rule.name,
    codes: [rule.code] as const,
    check(facts: Facts): Finding<Code> | null {
      const used = rule.used(facts);
      if (used === null) return null;
      const { limit, spent, reserved } = used;
      return {
        refusal: spent + reserved + requestedOf(facts) > limit ? rule.code : null,
        detail: rule.counts
          ? `${withUnit(spent + reserved)} of ${text(limit)} made in ${rule.during}.`
          : `${withUnit(requestedOf(facts))} requested; ${withUnit(spent + reserved)} of ${withUnit(limit)} used in ${rule.during}.`,
      };
    },
    most(facts: Facts): bigint | null {
      const used = rule.used(facts);
      return used && !rule.counts ? remainingOf(used.limit, used.spent + used.reserved) : null;
    },
    policy(facts: Facts): PolicyNumbers | null {
      const used = rule.used(facts);
      return used && numbersOf(used, rule.window, text);
    },
    advise(facts: Facts, { availableAt, nextReleaseAt }: Moment) {
      const limit = rule.used(facts)?.limit ?? 0n;
      return {
        retryable: availableAt !== null,
        suggestion:
          availableAt !== null
            ? `Wait until ${availableAt.toISOString()}, ${rule.counts ? "" : "pay less, "}or ask the owner to raise the limit. Do not split the payment.`
            : requestedOf(facts) > limit
              ? `This ${rule.counts ? "payment" : "amount"} is above the whole ${rule.called} of ${withUnit(limit)}: ask the owner to raise it. Do not split the payment.`
              : "This amount is above another limit: ask the owner to raise it. Do not split the payment.",
        extra: {
          nextReleaseAt: nextReleaseAt?.toISOString() ?? null,
          availableAt: availableAt?.toISOString() ?? null,
        },
      };
    },
    liftable: true,
    rolling: true,
    field: rule.field,
  } as const satisfies Rule<Facts, Code>;
}

/**
 * The facts of an optional limit. They are missing if the limit is not set, or did not exist yet when a stored
 * payment was decided.
 */
export function usedIf(
  limit: bigint | null | undefined,
  spent: bigint | undefined,
  reserved: bigint | undefined,
): Used | null {
  return limit == null ? null : { limit, spent: spent ?? 0n, reserved: reserved ?? 0n };
}

export interface DailyLimitFacts extends Requested, Used {}

export const dailyLimit = windowRule({
  name: "daily_limit",
  code: "daily_limit_exceeded",
  window: "24h",
  during: "the last 24 hours",
  called: "daily limit",
  used: ({ limit, spent, reserved }: DailyLimitFacts) => ({ limit, spent, reserved }),
  field: { name: "dailyLimit", label: "Daily limit", help: "In any 24 hours, rolling" },
});

/** The policy that a rule without its own numbers reports. */
export const dailyNumbers = (facts: DailyLimitFacts): PolicyNumbers =>
  numbersOf(facts, "24h", formatAtomic);

export interface WeeklyLimitFacts extends Requested {
  weeklyLimit?: bigint;
  weeklySpent?: bigint;
  weeklyReserved?: bigint;
}

export const weeklyLimit = windowRule({
  name: "weekly_limit",
  code: "weekly_limit_exceeded",
  window: "7d",
  during: "the last 7 days",
  called: "weekly limit",
  used: (facts: WeeklyLimitFacts) =>
    usedIf(facts.weeklyLimit, facts.weeklySpent, facts.weeklyReserved),
  field: { name: "weeklyLimit", label: "Weekly limit", help: "Optional. In any 7 days, rolling" },
});

export interface MonthlyLimitFacts extends Requested {
  monthlyLimit?: bigint;
  monthlySpent?: bigint;
  monthlyReserved?: bigint;
}

export const monthlyLimit = windowRule({
  name: "monthly_limit",
  code: "monthly_limit_exceeded",
  window: "30d",
  during: "the last 30 days",
  called: "monthly limit",
  used: (facts: MonthlyLimitFacts) =>
    usedIf(facts.monthlyLimit, facts.monthlySpent, facts.monthlyReserved),
  field: {
    name: "monthlyLimit",
    label: "Monthly limit",
    help: "Optional. In any 30 days, rolling",
  },
});

export interface PaymentsPerHourFacts extends Requested {
  hourlyLimit?: bigint;
  hourlySpent?: bigint;
  hourlyReserved?: bigint;
}

/** A payment that was voided, since nothing was signed or it can never settle, is not counted. */
export const paymentsPerHour = windowRule({
  name: "payments_per_hour",
  code: "payment_rate_exceeded",
  window: "1h",
  during: "the last hour",
  called: "limit of payments per hour",
  counts: true,
  used: (facts: PaymentsPerHourFacts) =>
    usedIf(facts.hourlyLimit, facts.hourlySpent, facts.hourlyReserved),
  field: {
    name: "paymentsPerHour",
    label: "Payments per hour",
    help: "Optional. In any hour, rolling",
  },
});
