/**
 * The guardrail rules: what each one compares, its sentence and its numbers, and the order in which they are checked;
 * the first that refuses decides. SQL decides about real payments (purser_first_refusal) in the same order; a property
 * test compares the two. Floor and gas, which concern our own costs, come last (purser_gas_reserve).
 */
import { getAddress, type Address, type Hex } from "viem";
import type { Denial } from "../../../packages/rules/src/denials.ts";
import {
  AGENT,
  PAYEE,
  type AgentFieldName,
  type AgentSettings,
  type PayeeFieldName,
} from "../../../packages/rules/src/fields.ts";
import { DAYS, durationText, HOURS, SIGNED } from "../../../packages/rules/src/kinds.ts";
import { formatGas } from "../../core/gas.ts";
import { formatAtomic } from "../../core/money.ts";
import { shownDenied } from "../../core/site.ts";
import type { ErrorCode } from "../../errors.ts";

interface Rule<Facts, Code extends Denial = Denial> {
  name: string;
  /** The error codes of its refusals. */
  codes: readonly Code[];
  /** Null: the rule is not set (no limit per payment, no maxAmount). */
  check(facts: Facts): Finding<Code> | null;
  /** The largest payment it allows, if it depends on the amount; null: no limit is set. */
  most?(facts: Facts): bigint | null;
  /** The numbers it compares; without it, those of the daily limit are reported. */
  policy?(facts: Facts): PolicyNumbers | null;
  /** The amount that it compares, if that is not what is requested. */
  compared?(facts: Facts): bigint;
  /** Specific advice, if the general advice of the code does not fit this refusal, or further numbers. */
  advise?(facts: Facts, moment: Moment): Advice;
  /** The owner may approve a payment that it refuses (plugins/approvals). */
  liftable?: true;
  /** A rolling limit: listed in purser_limits under the rule's name, and a refusal shows when it ends. */
  rolling?: true;
  /** The form field where the owner sets it; rules about the request or the chain have none. */
  field?: FormField;
  /** The further fields of a rule with several settings. */
  otherFields?: readonly FormField[];
  /** The facts that are the same for every payee, from which `limits.available` is computed. */
  factsOf?(agent: AgentState): Partial<Facts>;
}

/** The numbers of one window: payments for the hourly limit, amounts for all others. */
export interface WindowLimits {
  limitAtomic: bigint;
  spentAtomic: bigint;
  reservedAtomic: bigint;
  remainingAtomic: bigint;
  nextReleaseAt: Date | null;
}

/** One limit of a budget, over all its agents. */
export interface BudgetLimit {
  id: string;
  name: string;
  hours: number;
  limitAtomic: bigint;
  usedAtomic: bigint;
  /** If nothing is left: when the smallest amount fits; null: it fits now, or never. */
  availableAt: Date | null;
}

/** By payeeKey: payees with their own limit. All payments to the address count. */
export type PayeeLimits = Map<string, WindowLimits>;

/** The daily window, and every other window with a limit. */
export interface Limits extends WindowLimits {
  weekly: WindowLimits | null;
  monthly: WindowLimits | null;
  hourly: WindowLimits | null;
  /** Of the budgets that the agent is in; missing where it is in none. */
  budgets?: readonly BudgetLimit[];
  /** Empty unless requested. */
  payees: PayeeLimits;
}

/** An agent with its settings, as they were read. */
export type AgentState = Partial<AgentSettings> & {
  status: string;
  expired: boolean;
  /** What paused it, and when it was read. */
  pausedBy?: string | null;
  readAt?: Date;
  hasPayees: boolean;
  limits: Limits;
};

interface Finding<Code extends Denial = Denial> {
  /** Null: the payment is allowed. */
  refusal: Code | null;
  /** What it compared, in a sentence for agent and owner. */
  detail: string;
}

/** The numbers of a rule in their wire format. */
export interface PolicyNumbers {
  window: string;
  limit: string;
  spent: string;
  reserved: string;
  remaining: string;
  /** What the owner never pays: the address or the site that refused. */
  denied?: string;
  /** Set if a budget refused: `spent` is then what all its agents have used, reserved amounts included. */
  budget?: { id: string; name: string; usedByOthers: string };
}

/** The times that the database returned besides the facts, and the wallet. */
export interface Moment {
  /** When the same amount will fit; null: never. */
  availableAt: Date | null;
  nextReleaseAt: Date | null;
  walletAddress: Address;
}

interface Advice {
  retryable?: boolean;
  suggestion?: string;
  /** Further members of the problem object. */
  extra?: Record<string, unknown>;
}

/** A field of the owner's form, and of the request body that creates or changes an agent or adds a payee. */
export interface FormField {
  name: string;
  /** Set for a payee's entry; undefined for the agent. */
  of?: "payee";
  label: string;
  help: string;
}

const ofAgent = (name: AgentFieldName): FormField => {
  const { label, help } = AGENT[name];
  return { name, label, help };
};
const ofPayee = (name: PayeeFieldName): FormField => {
  const { label, help } = PAYEE[name];
  return { name, of: "payee", label, help };
};

const usdc = (atomic: bigint): string => `${formatAtomic(atomic)} USDC`;

/** The settled and the outstanding part of a window, and the limit of their sum. */
interface Used {
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

interface Priced extends Requested {
  /** Through a payment channel: the price of this call. `requested` is the growth of the signed ceiling, which may be less. */
  price?: bigint;
}

const priceOf = ({ price, requested }: Priced): bigint => price ?? requested;

/** Amounts in USDC, or numbers of payments if `counts` is set. */
interface WindowRule<Name extends string, Code extends Denial, Facts> {
  name: Name;
  code: Code;
  /** `window` as in `policy`; `during` and `called` name the window and the limit in sentences. */
  window: string;
  during: string;
  called: string;
  counts?: true;
  /** Null: the limit is not set. */
  used(facts: Facts): Used | null;
  field?: FormField;
  factsOf?(agent: AgentState): Partial<Facts>;
}

/**
 * Creates a rule with a rolling window: the used and the requested amount together must not exceed the limit.
 */
function windowRule<Name extends string, Code extends Denial, Facts extends Requested>(
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
    ...(rule.field && { field: rule.field }),
    ...(rule.factsOf && { factsOf: (agent: AgentState) => rule.factsOf?.(agent) ?? {} }),
  } as const satisfies Rule<Facts, Code>;
}

/**
 * The facts of an optional limit. They are missing if the limit is not set, or did not exist yet when a stored
 * payment was decided.
 */
function usedIf(
  limit: bigint | null | undefined,
  spent: bigint | undefined,
  reserved: bigint | undefined,
): Used | null {
  return limit == null ? null : { limit, spent: spent ?? 0n, reserved: reserved ?? 0n };
}

interface DailyLimitFacts extends Requested, Used {}

const dailyLimit = windowRule({
  name: "daily_limit",
  code: "daily_limit_exceeded",
  window: "24h",
  during: "the last 24 hours",
  called: "daily limit",
  used: ({ limit, spent, reserved }: DailyLimitFacts) => ({ limit, spent, reserved }),
  field: ofAgent("dailyLimit"),
  factsOf: ({ limits }) => ({
    limit: limits.limitAtomic,
    spent: limits.spentAtomic,
    reserved: limits.reservedAtomic,
  }),
});

/** The policy that a rule without its own numbers reports. */
export const dailyNumbers = (facts: DailyLimitFacts): PolicyNumbers =>
  numbersOf(facts, "24h", formatAtomic);

interface WeeklyLimitFacts extends Requested {
  weeklyLimit?: bigint;
  weeklySpent?: bigint;
  weeklyReserved?: bigint;
}

const weeklyLimit = windowRule({
  name: "weekly_limit",
  code: "weekly_limit_exceeded",
  window: "7d",
  during: "the last 7 days",
  called: "weekly limit",
  used: (facts: WeeklyLimitFacts) =>
    usedIf(facts.weeklyLimit, facts.weeklySpent, facts.weeklyReserved),
  field: ofAgent("weeklyLimit"),
  factsOf: ({ limits: { weekly } }) =>
    weekly === null
      ? {}
      : {
          weeklyLimit: weekly.limitAtomic,
          weeklySpent: weekly.spentAtomic,
          weeklyReserved: weekly.reservedAtomic,
        },
});

interface MonthlyLimitFacts extends Requested {
  monthlyLimit?: bigint;
  monthlySpent?: bigint;
  monthlyReserved?: bigint;
}

const monthlyLimit = windowRule({
  name: "monthly_limit",
  code: "monthly_limit_exceeded",
  window: "30d",
  during: "the last 30 days",
  called: "monthly limit",
  used: (facts: MonthlyLimitFacts) =>
    usedIf(facts.monthlyLimit, facts.monthlySpent, facts.monthlyReserved),
  field: ofAgent("monthlyLimit"),
  factsOf: ({ limits: { monthly } }) =>
    monthly === null
      ? {}
      : {
          monthlyLimit: monthly.limitAtomic,
          monthlySpent: monthly.spentAtomic,
          monthlyReserved: monthly.reservedAtomic,
        },
});

/** Of the budget and the window with the least left; missing where the agent is in no budget. */
interface BudgetFacts extends Requested {
  budgetId?: string;
  budgetName?: string;
  budgetHours?: number;
  budgetLimit?: bigint;
  budgetUsed?: bigint;
  /** Used by other agents. Only of a refusal. */
  budgetOthers?: bigint;
}

/** The windows of a budget, by their hours. */
export const BUDGET_WINDOWS: Readonly<Record<number, { window: string; during: string }>> = {
  24: { window: "24h", during: "the last 24 hours" },
  168: { window: "7d", during: "the last 7 days" },
  720: { window: "30d", during: "the last 30 days" },
};

function budgetWindow({ budgetName, budgetHours = 0 }: BudgetFacts) {
  const { window = "", during = "" } = BUDGET_WINDOWS[budgetHours] ?? {};
  return windowRule({
    name: "budget",
    code: "budget_exceeded",
    window,
    during: `${during} by all agents of the budget "${budgetName}"`,
    called: `budget "${budgetName}"`,
    used: (facts: BudgetFacts) => usedIf(facts.budgetLimit, facts.budgetUsed, 0n),
  });
}

const budget = {
  name: "budget",
  codes: ["budget_exceeded"],
  check: (facts) => budgetWindow(facts).check(facts),
  most: (facts) => budgetWindow(facts).most(facts),
  policy(facts) {
    const numbers = budgetWindow(facts).policy(facts);
    const { budgetId: id = "", budgetName: name = "", budgetOthers } = facts;
    if (numbers === null || budgetOthers === undefined) return numbers;
    return { ...numbers, budget: { id, name, usedByOthers: formatAtomic(budgetOthers) } };
  },
  advise: (facts, moment) => budgetWindow(facts).advise(facts, moment),
  liftable: true,
  rolling: true,
  factsOf({ limits: { budgets = [] } }) {
    const left = (one: BudgetLimit): bigint => one.limitAtomic - one.usedAtomic;
    const [least, ...others] = budgets;
    if (least === undefined) return {};
    const tightest = others.reduce((found, one) => (left(one) < left(found) ? one : found), least);
    return {
      budgetId: tightest.id,
      budgetName: tightest.name,
      budgetHours: tightest.hours,
      budgetLimit: tightest.limitAtomic,
      budgetUsed: tightest.usedAtomic,
    };
  },
} as const satisfies Rule<BudgetFacts, "budget_exceeded">;

/** Of the task that the call names; missing where it names none. */
interface TaskFacts extends Requested {
  taskId?: string;
  taskState?: "open" | "ended" | "closed" | "missing";
  taskCeiling?: bigint;
  taskSpent?: bigint;
  taskReserved?: bigint;
}

const taskUsed = ({ taskCeiling: limit, taskSpent = 0n, taskReserved = 0n }: TaskFacts) =>
  usedIf(limit, taskSpent, taskReserved);

/** The agent opened the task itself, so the owner's approval does not lift it. */
const task = {
  name: "task",
  codes: ["task_not_found", "task_ended", "task_ceiling_exceeded"],
  check(facts) {
    const { taskId, taskState, requested } = facts;
    const used = taskUsed(facts);
    if (taskState === "missing")
      return { refusal: "task_not_found", detail: `The agent has no task "${taskId}".` };
    if (used === null) return null;
    if (taskState !== "open")
      return {
        refusal: "task_ended",
        detail: `The task "${taskId}" ${taskState === "closed" ? "was closed" : "has ended"}.`,
      };
    const sum = used.spent + used.reserved;
    return {
      refusal: sum + requested > used.limit ? "task_ceiling_exceeded" : null,
      detail: `${usdc(requested)} requested; ${usdc(sum)} of ${usdc(used.limit)} used by the task "${taskId}".`,
    };
  },
  policy(facts) {
    const used = taskUsed(facts);
    return used && numbersOf(used, "task", formatAtomic);
  },
  advise(facts) {
    const { limit, spent, reserved } = taskUsed(facts) ?? { limit: 0n, spent: 0n, reserved: 0n };
    // Something reserved may come back: when, nobody knows.
    const mayFit = facts.taskState === "open" && reserved > 0n && spent + facts.requested <= limit;
    return {
      retryable: mayFit,
      ...(mayFit && {
        suggestion: `${usdc(reserved)} of the task is reserved and comes back if those payments fail: wait for them, pay less, or open another task. The owner cannot lift it.`,
      }),
      extra: { nextReleaseAt: null, availableAt: null },
    };
  },
} as const satisfies Rule<TaskFacts, "task_not_found" | "task_ended" | "task_ceiling_exceeded">;

interface PaymentsPerHourFacts extends Requested {
  hourlyLimit?: bigint;
  hourlySpent?: bigint;
  hourlyReserved?: bigint;
}

/** A payment that was voided, since nothing was signed or it can never settle, is not counted. */
const paymentsPerHour = windowRule({
  name: "payments_per_hour",
  code: "payment_rate_exceeded",
  window: "1h",
  during: "the last hour",
  called: "limit of payments per hour",
  counts: true,
  used: (facts: PaymentsPerHourFacts) =>
    usedIf(facts.hourlyLimit, facts.hourlySpent, facts.hourlyReserved),
  field: ofAgent("paymentsPerHour"),
  factsOf: ({ limits: { hourly } }) =>
    hourly === null
      ? {}
      : {
          hourlyLimit: hourly.limitAtomic,
          hourlySpent: hourly.spentAtomic,
          hourlyReserved: hourly.reservedAtomic,
        },
});

interface StatusFacts {
  status: string;
  /** "stop", or the rule that paused the agent; missing if its owner did. */
  pausedBy?: string;
}

const status = {
  name: "status",
  codes: ["agent_paused"],
  check: ({ status, pausedBy }) => ({
    refusal: status === "active" ? null : "agent_paused",
    detail:
      pausedBy === "stop"
        ? "The owner stopped everything, so no agent can pay."
        : `The agent is ${status}.`,
  }),
  factsOf: ({ status, pausedBy }) => ({ status, ...(pausedBy != null && { pausedBy }) }),
} as const satisfies Rule<StatusFacts, "agent_paused">;

const PAUSED_BY_RULE = "paused_by_rule";

/** A rule that pauses the agent. What it compared is missing where it did not pause it. */
const pausingRule = <Name extends string, Facts>(
  name: Name,
  rule: {
    field: FormField;
    why(facts: Facts): string;
    /** The facts in responses, amounts as decimals; as purser_pause_by_rule writes them. */
    shown(facts: Facts): Record<string, string>;
  },
) =>
  ({
    name,
    codes: [PAUSED_BY_RULE],
    check: (facts) =>
      facts.pausedBy === name
        ? { refusal: PAUSED_BY_RULE, detail: `A rule paused the agent: ${rule.why(facts)}.` }
        : null,
    advise: (facts) => ({
      extra: { nextReleaseAt: null, availableAt: null, pausedBy: name, ...rule.shown(facts) },
    }),
    field: rule.field,
    factsOf: ({ pausedBy }) =>
      (pausedBy == null ? {} : { pausedBy }) as Partial<Facts & Pick<StatusFacts, "pausedBy">>,
  }) as const satisfies Rule<Facts & Pick<StatusFacts, "pausedBy">, typeof PAUSED_BY_RULE>;

interface FailuresFacts {
  failures?: bigint;
}

const pauseAfterFailures = pausingRule("pause_after_failures", {
  field: ofAgent("pauseAfterFailures"),
  why: ({ failures = 0n }: FailuresFacts) =>
    `${failures} payments failed or were refused in an hour`,
  shown: ({ failures = 0n }) => ({ failures: String(failures) }),
});

interface RateFacts {
  pauseAtRate?: bigint;
  usualDay?: bigint;
  /** The last 24 hours with the payment that was refused. */
  rateSum?: bigint;
}

const pauseAtRate = pausingRule("pause_at_rate", {
  field: ofAgent("pauseAtRate"),
  why: ({ pauseAtRate: factor = 0n, usualDay = 0n, rateSum = 0n }: RateFacts) =>
    `${usdc(rateSum)} in 24 hours is more than ${factor} times its usual day of ${usdc(usualDay)}`,
  shown: ({ pauseAtRate: factor = 0n, usualDay = 0n, rateSum = 0n }) => ({
    pauseAtRate: String(factor),
    usualDay: formatAtomic(usualDay),
    rateSum: formatAtomic(rateSum),
  }),
});

interface PriceJumpFacts {
  pauseOnPriceJump?: bigint;
  /** The site that asked, its price, and its highest price before. */
  jumpSite?: string;
  jumpPrice?: bigint;
  priceBefore?: bigint;
}

const pauseOnPriceJump = pausingRule("pause_on_price_jump", {
  field: ofAgent("pauseOnPriceJump"),
  why: ({
    pauseOnPriceJump: factor = 0n,
    jumpSite,
    jumpPrice = 0n,
    priceBefore = 0n,
  }: PriceJumpFacts) =>
    `${jumpSite} asks ${usdc(jumpPrice)}, more than ${factor} times its highest price before, ${usdc(priceBefore)}`,
  shown: ({ pauseOnPriceJump: factor = 0n, jumpSite = "", jumpPrice = 0n, priceBefore = 0n }) => ({
    pauseOnPriceJump: String(factor),
    jumpSite,
    jumpPrice: formatAtomic(jumpPrice),
    priceBefore: formatAtomic(priceBefore),
  }),
});

interface PayTimesFacts {
  /** Missing where it is not set. */
  payHours?: string;
  payDays?: string;
  closed?: boolean;
  /** When it pays again. */
  opensAt?: string;
}

const payTimes = {
  name: "pay_times",
  codes: ["outside_pay_times"],
  check({ payHours = null, payDays = null, closed }) {
    if (closed === undefined) return null;
    const when = [payHours && HOURS.text(payHours, SIGNED), payDays].filter(Boolean).join(" on ");
    return {
      refusal: closed ? "outside_pay_times" : null,
      detail: `The agent pays only ${payHours === null ? "on" : "at"} ${when}${payHours === null ? " (UTC)" : ""}.`,
    };
  },
  advise: ({ opensAt = null }) => ({
    retryable: true,
    suggestion: `Wait until ${opensAt}, or ask the owner to allow other hours or days.`,
    extra: { nextReleaseAt: null, availableAt: opensAt },
  }),
  field: ofAgent("payHours"),
  otherFields: [ofAgent("payDays")],
  factsOf({ payHours = null, payDays = null, readAt }) {
    if (readAt === undefined || (payHours === null && payDays === null)) return {};
    const moment = { valueAtomic: 0n, nowSeconds: BigInt(Math.floor(readAt.getTime() / 1000)) };
    const closed = HOURS.refuses?.(payHours, moment) || DAYS.refuses?.(payDays, moment) || false;
    return { closed };
  },
} as const satisfies Rule<PayTimesFacts, "outside_pay_times">;

interface ExpiryFacts {
  expired: boolean;
}

const expiry = {
  name: "expiry",
  codes: ["agent_expired"],
  check: ({ expired }) =>
    expired
      ? { refusal: "agent_expired", detail: "The agent has expired." }
      : { refusal: null, detail: "The agent has not expired." },
  field: ofAgent("expiresAt"),
  factsOf: ({ expired }) => ({ expired }),
} as const satisfies Rule<ExpiryFacts, "agent_expired">;

interface DeniedPayeeFacts extends DailyLimitFacts {
  /** The owner's entry that denies the payee or the site; missing if none does. */
  denied?: string;
}

const deniedPayee = {
  name: "denied_payee",
  codes: ["payee_denied"],
  check: ({ denied }) =>
    denied === undefined
      ? null
      : {
          refusal: "payee_denied",
          detail: denied.startsWith("0x")
            ? `The owner never pays ${shownDenied(denied)}, from any agent.`
            : `The owner never pays anything at ${denied}, from any agent.`,
        },
  policy: (facts) =>
    facts.denied === undefined
      ? null
      : { ...dailyNumbers(facts), denied: shownDenied(facts.denied) },
  // Waiting does not help.
  advise: () => ({ extra: { nextReleaseAt: null, availableAt: null } }),
} as const satisfies Rule<DeniedPayeeFacts, "payee_denied">;

export type TargetCode =
  | "listing_mismatch"
  | "payee_screened"
  | "account_screened"
  | "url_blocked"
  | "origin_not_allowed"
  | "challenge_already_used"
  | "channel_distrusted";

interface TargetFacts {
  /** A problem with the target: a listing whose terms changed, or a site that the agent may not fetch from. */
  refusal: ErrorCode | null;
  /** The agent may fetch only from its payees' sites. Missing if it may fetch from anywhere. */
  confined?: boolean;
  /** The origin of the fetch; missing unless another fact concerns it. */
  site?: string;
}

const target = {
  name: "target",
  codes: [
    "listing_mismatch",
    "payee_screened",
    "account_screened",
    "url_blocked",
    "origin_not_allowed",
    "challenge_already_used",
    "channel_distrusted",
  ],
  check: ({ refusal, confined, site }) => {
    switch (refusal) {
      case null:
        return confined ? { refusal, detail: `${site} is a site of the agent's payees.` } : null;
      case "listing_mismatch":
        return { refusal, detail: "The current terms differ from the listing." };
      case "payee_screened":
        return { refusal, detail: "This service does not pay this address." };
      case "account_screened":
        return {
          refusal,
          detail: "This service lets the agent's owner read and withdraw, and nothing else.",
        };
      case "challenge_already_used":
        return { refusal, detail: "A payment has already answered this challenge." };
      case "channel_distrusted":
        return {
          refusal,
          detail:
            "The seller broke the rules of an earlier payment channel, which is being closed.",
        };
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
  field: ofAgent("fetch"),
  factsOf: () => ({ refusal: null }),
} as const satisfies Rule<TargetFacts, TargetCode>;

const notAmongSites = (site = "This site"): string =>
  `The agent may fetch only from its payees' sites, and ${site} is not one of them.`;

interface MaxAmountFacts extends Priced {
  /** The agent's own limit for this call. */
  maxAmount: bigint | null;
}

const maxAmount = {
  name: "max_amount",
  codes: ["price_exceeds_max"],
  check: (facts) =>
    facts.maxAmount === null
      ? null
      : {
          refusal: priceOf(facts) > facts.maxAmount ? "price_exceeds_max" : null,
          detail: `${usdc(priceOf(facts))} requested; maxAmount is ${usdc(facts.maxAmount)}.`,
        },
  compared: priceOf,
  factsOf: () => ({ maxAmount: null }),
} as const satisfies Rule<MaxAmountFacts, "price_exceeds_max">;

interface AllowlistFacts {
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

type AllowlistCodes = "recipient_not_allowed" | "site_payee_changed" | "payee_bound_to_site";

const allowlist = {
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
  factsOf: ({ hasPayees }) => ({ allowed: hasPayees }),
} as const satisfies Rule<AllowlistFacts, AllowlistCodes>;

/**
 * For a site that requests payment to another address than the owner allowed: what the owner needs to allow the
 * new one.
 */
export function siteChange({ allowed, site, expectedPayee, seenPayee }: AllowlistFacts) {
  if (allowed || site === undefined || !expectedPayee || !seenPayee) return undefined;
  return { site, expectedPayee: getAddress(expectedPayee), seenPayee: getAddress(seenPayee) };
}

interface PayeeExpiryFacts {
  /** Missing if the payee's entry does not expire. */
  payeeExpired?: boolean;
}

const payeeExpiry = {
  name: "payee_expiry",
  codes: ["payee_expired"],
  check: ({ payeeExpired }) =>
    payeeExpired === undefined
      ? null
      : payeeExpired
        ? {
            refusal: "payee_expired",
            detail: "The recipient's entry on the allowlist has expired.",
          }
        : { refusal: null, detail: "The recipient's entry on the allowlist has not expired." },
  liftable: true,
  field: ofPayee("expiresAt"),
} as const satisfies Rule<PayeeExpiryFacts, "payee_expired">;

/** All are missing where the payment goes through no channel. */
interface ChannelFacts {
  /** The least deposit that the payment needs; 0 if the channel has room. */
  channelDeposit?: bigint;
  /** Held in all channels now. */
  channelHeld?: bigint;
  channelLimit?: bigint;
  /** Seconds: of the offered channel, and the longest that the owner allows. */
  channelDelay?: bigint;
  channelLongestDelay?: bigint;
  /** Missing where the payee has no limit of its own. */
  payeeChannelHeld?: bigint;
  payeeChannelLimit?: bigint;
}

type ChannelCodes =
  | "channel_not_allowed"
  | "channel_limit_exceeded"
  | "payee_channel_limit_exceeded";

/** What lies unspent in the agent's channels, or in those to the payee, and the limit. */
interface Held {
  held: bigint;
  limit: bigint;
  where: string;
}
const heldInAll = ({ channelHeld = 0n, channelLimit = 0n }: ChannelFacts): Held => ({
  held: channelHeld,
  limit: channelLimit,
  where: "in payment channels",
});
const heldForPayee = ({ payeeChannelHeld = 0n, payeeChannelLimit: limit }: ChannelFacts) =>
  limit === undefined
    ? undefined
    : { held: payeeChannelHeld, limit, where: "in payment channels to this recipient" };

const hasNoRoom = (deposit: bigint, { held, limit }: Held): boolean =>
  deposit > 0n && held + deposit > limit;
const isTooSlow = ({ channelDelay = 0n, channelLongestDelay = 0n }: ChannelFacts): boolean =>
  channelDelay > channelLongestDelay;

/** Also returns the limit that it compared. Null: the payment goes through no channel. */
function judgeChannel(facts: ChannelFacts): (Finding<ChannelCodes> & { by: Held }) | null {
  const { channelDeposit: deposit, channelDelay = 0n, channelLongestDelay = 0n } = facts;
  if (deposit === undefined) return null;
  const [inAll, forPayee] = [heldInAll(facts), heldForPayee(facts)];
  const refusal = "channel_not_allowed";
  if (inAll.limit === 0n)
    return { refusal, detail: "The owner allows no payment channels.", by: inAll };
  if (forPayee?.limit === 0n)
    return {
      refusal,
      detail: "The owner allows no payment channel to this recipient.",
      by: forPayee,
    };
  if (isTooSlow(facts))
    return {
      refusal,
      detail: `The channel returns money within ${durationText(channelDelay)}; the owner allows at most ${durationText(channelLongestDelay)}.`,
      by: inAll,
    };
  const compared = (by: Held, refusal: ChannelCodes | null) => ({
    refusal,
    detail: `${usdc(deposit)} to deposit; ${usdc(by.held)} of ${usdc(by.limit)} held ${by.where}.`,
    by,
  });
  if (hasNoRoom(deposit, inAll)) return compared(inAll, "channel_limit_exceeded");
  if (forPayee && hasNoRoom(deposit, forPayee))
    return compared(forPayee, "payee_channel_limit_exceeded");
  return compared(inAll, null);
}

/** The least values of the owner's settings with which the channel is allowed. */
export function channelNeeds(facts: ChannelFacts) {
  const { channelDeposit: deposit = 0n, channelDelay = 0n } = facts;
  const needed = (has: Held | undefined): string | undefined => {
    if (has === undefined || (has.limit > 0n && !hasNoRoom(deposit, has))) return undefined;
    const least = has.held + deposit;
    return formatAtomic(least > 0n ? least : 1n);
  };
  const [channelHeld, payeeChannelHeld] = [needed(heldInAll(facts)), needed(heldForPayee(facts))];
  return {
    ...(channelHeld !== undefined && { channelHeld }),
    ...(isTooSlow(facts) && { channelDelay: Number(channelDelay) }),
    ...(payeeChannelHeld !== undefined && { payeeChannelHeld }),
  };
}

const channels = {
  name: "channels",
  codes: ["channel_not_allowed", "channel_limit_exceeded", "payee_channel_limit_exceeded"],
  check: judgeChannel,
  policy(facts) {
    const by = judgeChannel(facts)?.by;
    return by
      ? numbersOf({ limit: by.limit, spent: by.held, reserved: 0n }, "held", formatAtomic)
      : null;
  },
  compared: ({ channelDeposit = 0n }) => channelDeposit,
  // Waiting does not help.
  advise(facts) {
    const needs = channelNeeds(facts);
    const settings = [
      needs.channelHeld && `channelHeld of at least ${needs.channelHeld} USDC`,
      needs.channelDelay && `channelDelay of at least ${needs.channelDelay} seconds`,
      needs.payeeChannelHeld &&
        `channelHeld of at least ${needs.payeeChannelHeld} USDC for this payee`,
    ].filter((setting) => setting !== undefined);
    return {
      suggestion: `Ask the owner to sign ${settings.join(" and ")}.`,
      extra: { nextReleaseAt: null, availableAt: null, needs },
    };
  },
  field: ofAgent("channelHeld"),
  otherFields: [ofAgent("channelDelay"), ofPayee("channelHeld")],
} as const satisfies Rule<ChannelFacts, ChannelCodes>;

interface PayeePerPaymentLimitFacts extends Priced {
  payeePerPaymentLimit?: bigint;
}

const payeePerPaymentLimit = {
  name: "payee_per_payment_limit",
  codes: ["payee_per_payment_limit_exceeded"],
  check: ({ payeePerPaymentLimit: limit, ...priced }) =>
    limit === undefined
      ? null
      : {
          refusal: priceOf(priced) > limit ? "payee_per_payment_limit_exceeded" : null,
          detail: `${usdc(priceOf(priced))} requested; the limit for one payment to this recipient is ${usdc(limit)}.`,
        },
  compared: priceOf,
  policy: ({ payeePerPaymentLimit }) => {
    if (payeePerPaymentLimit === undefined) return null;
    const limit = formatAtomic(payeePerPaymentLimit);
    return { window: "payment", limit, spent: "0", reserved: "0", remaining: limit };
  },
  // Waiting does not help.
  advise: () => ({ extra: { nextReleaseAt: null, availableAt: null } }),
  liftable: true,
  field: ofPayee("perPaymentLimit"),
} as const satisfies Rule<PayeePerPaymentLimitFacts, "payee_per_payment_limit_exceeded">;

interface PayeeLimitFacts {
  requested: bigint;
  payeeLimit?: bigint;
  payeeSpent?: bigint;
  payeeReserved?: bigint;
}

const payeeLimit = windowRule({
  name: "payee_limit",
  code: "payee_limit_exceeded",
  window: "24h",
  during: "the last 24 hours for this recipient",
  called: "daily limit of this recipient",
  used: (facts: PayeeLimitFacts) => usedIf(facts.payeeLimit, facts.payeeSpent, facts.payeeReserved),
  field: ofPayee("dailyLimit"),
});

interface PerPaymentLimitFacts extends Priced {
  perPaymentLimit: bigint | null;
}

const perPaymentLimit = {
  name: "per_payment_limit",
  codes: ["per_payment_limit_exceeded"],
  check: ({ perPaymentLimit: limit, ...priced }) =>
    limit === null
      ? null
      : {
          refusal: priceOf(priced) > limit ? "per_payment_limit_exceeded" : null,
          detail: `${usdc(priceOf(priced))} requested; the per-payment limit is ${usdc(limit)}.`,
        },
  compared: priceOf,
  most: ({ perPaymentLimit }) => perPaymentLimit,
  policy: ({ perPaymentLimit }) => {
    if (perPaymentLimit === null) return null;
    const limit = formatAtomic(perPaymentLimit);
    return { window: "payment", limit, spent: "0", reserved: "0", remaining: limit };
  },
  // Waiting does not help.
  advise: () => ({ extra: { nextReleaseAt: null, availableAt: null } }),
  liftable: true,
  field: ofAgent("perPaymentLimit"),
  factsOf: ({ perPaymentLimitAtomic }) => ({ perPaymentLimit: perPaymentLimitAtomic ?? null }),
} as const satisfies Rule<PerPaymentLimitFacts, "per_payment_limit_exceeded">;

interface BalanceFacts extends Requested, Pick<ChannelFacts, "channelDeposit"> {
  /** Null: not read, because the payment takes nothing from the wallet. */
  balance: bigint | null;
  /** Reserved or sent from this wallet, and not yet subtracted from `balance`. */
  outstanding: bigint;
}

/** A payment through a channel takes only the deposit from the wallet. */
const fromWallet = ({ channelDeposit, requested }: BalanceFacts): bigint =>
  channelDeposit ?? requested;

const balance = {
  name: "balance",
  codes: ["insufficient_funds"],
  check(facts) {
    const { channelDeposit, balance, outstanding } = facts;
    if (balance === null) return null;
    const wanted = `${usdc(fromWallet(facts))} ${channelDeposit === undefined ? "requested" : "to deposit"}`;
    return {
      refusal: fromWallet(facts) > balance - outstanding ? "insufficient_funds" : null,
      detail:
        outstanding === 0n
          ? `${wanted}; the wallet has ${usdc(balance)}.`
          : `${wanted}; the wallet has ${usdc(balance)}, and ${usdc(outstanding)} of it is already reserved.`,
    };
  },
  compared: fromWallet,
  most: ({ balance, outstanding }) => (balance === null ? null : remainingOf(balance, outstanding)),
  advise: (facts, { walletAddress }) => ({
    extra: {
      balance: formatAtomic(facts.balance ?? 0n),
      outstanding: formatAtomic(facts.outstanding),
      required: formatAtomic(fromWallet(facts)),
      fundingAddress: getAddress(walletAddress),
    },
  }),
} as const satisfies Rule<BalanceFacts, "insufficient_funds">;

interface FloorFacts {
  requested: bigint;
  /** Missing if an earlier rule refused, because the floor is checked after them. */
  floor?: bigint | null;
}

const floor = {
  name: "floor",
  codes: ["amount_below_floor"],
  check: ({ requested, floor }) =>
    floor === undefined || floor === null
      ? null
      : {
          refusal: requested < floor ? "amount_below_floor" : null,
          detail: `${usdc(requested)} requested; the smallest payment is ${usdc(floor)}.`,
        },
  // The operator sets the floor, so waiting does not help.
  advise: () => ({ extra: { nextReleaseAt: null, availableAt: null } }),
} as const satisfies Rule<FloorFacts, "amount_below_floor">;

/**
 * The facts are missing if an earlier rule refused, because gas is checked last. Amounts in units of
 * core/gas.ts.
 */
interface GasFacts {
  /** Whose budget is used up: the owner's own, or the one that all agents share. */
  gasShort?: string;
  gasLimit?: bigint;
  gasLeft?: bigint;
  gasHeld?: bigint;
  gasHold?: bigint;
  gasAvailableAt?: string | null;
}

const WHOSE: Record<string, string> = {
  owner: "of this owner's agents",
  agents: "that all agents share",
};

const gas = {
  name: "gas",
  codes: ["gas_budget_exhausted"],
  check: ({ gasShort, gasLimit = 0n, gasLeft = 0n, gasHold }) => {
    if (gasShort !== undefined)
      return {
        refusal: "gas_budget_exhausted",
        detail: `The gas budget ${WHOSE[gasShort] ?? gasShort} is used up: ${formatGas(gasLeft)} of ${formatGas(gasLimit)} USDC a day left.`,
      };
    if (gasHold === undefined) return null;
    return {
      refusal: null,
      detail: `The gas for it costs about ${formatGas(gasHold)} USDC, which is available.`,
    };
  },
  policy: ({ gasShort, gasLimit = 0n, gasLeft = 0n, gasHeld = 0n }) => {
    if (gasShort === undefined) return null;
    const used = gasLimit - gasLeft;
    return {
      window: "24h",
      limit: formatGas(gasLimit),
      spent: formatGas(used > gasHeld ? used - gasHeld : 0n),
      reserved: formatGas(gasHeld),
      remaining: formatGas(gasLeft),
    };
  },
  advise: ({ gasHold = 0n, gasAvailableAt = null }) => ({
    retryable: gasAvailableAt !== null,
    suggestion:
      gasAvailableAt === null
        ? `The gas for this payment costs ${formatGas(gasHold)} USDC, more than the whole daily budget. Ask the operator.`
        : `Wait until ${gasAvailableAt}: the budget refills during the day. Fewer, larger payments need less gas.`,
    extra: { nextReleaseAt: null, availableAt: gasAvailableAt, gas: formatGas(gasHold) },
  }),
} as const satisfies Rule<GasFacts, "gas_budget_exhausted">;

const ORDERED = [
  pauseAfterFailures,
  pauseAtRate,
  pauseOnPriceJump,
  status,
  expiry,
  payTimes,
  deniedPayee,
  target,
  maxAmount,
  allowlist,
  payeeExpiry,
  channels,
  perPaymentLimit,
  payeePerPaymentLimit,
  paymentsPerHour,
  payeeLimit,
  dailyLimit,
  weeklyLimit,
  monthlyLimit,
  budget,
  task,
  balance,
  floor,
  gas,
] as const;

/** All facts of a decision, read under one lock. Amounts in atomic units. */
export interface Snapshot
  extends
    StatusFacts,
    FailuresFacts,
    RateFacts,
    PriceJumpFacts,
    ExpiryFacts,
    PayTimesFacts,
    DeniedPayeeFacts,
    TargetFacts,
    MaxAmountFacts,
    AllowlistFacts,
    PayeeExpiryFacts,
    ChannelFacts,
    PerPaymentLimitFacts,
    PayeePerPaymentLimitFacts,
    PaymentsPerHourFacts,
    PayeeLimitFacts,
    DailyLimitFacts,
    WeeklyLimitFacts,
    MonthlyLimitFacts,
    BudgetFacts,
    TaskFacts,
    BalanceFacts,
    FloorFacts,
    GasFacts {
  /** The owner's approval of this one call: rules that it lifts do not refuse. */
  approval?: { id: string; nonce: Hex };
  /** What an allowed payment through a channel signs. */
  channel?: ReservedChannel;
}

/** As SQL returns it; amounts in atomic units. */
export interface ReservedChannel {
  id: Hex;
  salt: Hex;
  /** In escrow before a deposit that comes with the payment. */
  balance: string;
  /** What the receiver may claim of the channel in all. */
  ceiling: string;
  /** What it has charged so far. */
  charged: string;
  /** The highest ceiling signed so far, with its voucher. */
  before: string;
  voucher?: Hex;
  /** Missing if the channel has enough. */
  deposit?: string;
  depositId?: string;
  /** A deposit before this payment, whose outcome is not known yet. */
  openDepositId?: string;
}

export type RuleName = (typeof ORDERED)[number]["name"];
export type DenialCode = (typeof ORDERED)[number]["codes"][number];

export const RULES: readonly (Rule<Snapshot> & { name: RuleName })[] = ORDERED;

/** Each once: rules that pause share a code. */
export const DENIAL_CODES: readonly DenialCode[] = [
  ...new Set(ORDERED.flatMap(({ codes }) => codes)),
];

type NumberFact = {
  [Fact in keyof Snapshot]-?: bigint extends Snapshot[Fact] ? Fact : never;
}[keyof Snapshot];

/** Every fact that is a number; the compiler refuses a list that lacks one. A text may consist of digits too. */
const NUMBERS: Readonly<Record<NumberFact, null>> = {
  failures: null,
  pauseAtRate: null,
  usualDay: null,
  rateSum: null,
  pauseOnPriceJump: null,
  jumpPrice: null,
  priceBefore: null,
  requested: null,
  price: null,
  maxAmount: null,
  channelDeposit: null,
  channelHeld: null,
  channelLimit: null,
  channelDelay: null,
  channelLongestDelay: null,
  payeeChannelHeld: null,
  payeeChannelLimit: null,
  perPaymentLimit: null,
  payeePerPaymentLimit: null,
  hourlyLimit: null,
  hourlySpent: null,
  hourlyReserved: null,
  payeeLimit: null,
  payeeSpent: null,
  payeeReserved: null,
  limit: null,
  spent: null,
  reserved: null,
  weeklyLimit: null,
  weeklySpent: null,
  weeklyReserved: null,
  monthlyLimit: null,
  monthlySpent: null,
  monthlyReserved: null,
  budgetLimit: null,
  budgetUsed: null,
  budgetOthers: null,
  taskCeiling: null,
  taskSpent: null,
  taskReserved: null,
  balance: null,
  outstanding: null,
  floor: null,
  gasLimit: null,
  gasLeft: null,
  gasHeld: null,
  gasHold: null,
};

/**
 * Parses the facts as SQL returns them and as the policy column stores them: integers are strings there,
 * because JSON numbers would lose digits. A fact that was introduced after a stored payment is missing.
 */
export const readFacts = (stored: object): Snapshot =>
  Object.fromEntries(
    Object.entries(stored).map(([name, value]: [string, unknown]) => [
      name,
      typeof value === "string" && Object.hasOwn(NUMBERS, name) ? BigInt(value) : value,
    ]),
  ) as unknown as Snapshot;
