// The facts of the rules, for all unit tests: one payment that every rule allows, and for each rule what makes it refuse.
import * as fc from "fast-check";
import type { DenialCode, RuleName, Snapshot } from "../../server/plugins/guardrails/rules.ts";

export const USDC = 1_000_000n;

/** No limit but the daily one, and no facts about the payee. */
export const bare: Snapshot = {
  status: "active",
  expired: false,
  refusal: null,
  requested: 1n * USDC,
  maxAmount: null,
  allowed: true,
  perPaymentLimit: null,
  limit: 5n * USDC,
  spent: 3n * USDC,
  reserved: 1n * USDC,
  balance: 2n * USDC,
  outstanding: 1n * USDC,
  floor: 1n * USDC,
  gasHold: 10n ** 15n,
};

/** A payment that every rule allows, exactly at each limit. */
export const fine: Snapshot = {
  ...bare,
  maxAmount: 1n * USDC,
  payHours: "08:00-18:00",
  payDays: "mon,tue",
  closed: false,
  payeeExpired: false,
  price: 1n * USDC,
  channelDeposit: 1n * USDC,
  channelHeld: 3n * USDC,
  channelLimit: 4n * USDC,
  channelDelay: 86_400n,
  channelLongestDelay: 86_400n,
  payeeChannelHeld: 1n * USDC,
  payeeChannelLimit: 2n * USDC,
  perPaymentLimit: 1n * USDC,
  payeePerPaymentLimit: 1n * USDC,
  hourlyLimit: 5n,
  hourlySpent: 3n,
  hourlyReserved: 1n,
  payeeLimit: 2n * USDC,
  payeeSpent: 0n,
  payeeReserved: 1n * USDC,
  weeklyLimit: 9n * USDC,
  weeklySpent: 7n * USDC,
  weeklyReserved: 1n * USDC,
  monthlyLimit: 20n * USDC,
  monthlySpent: 18n * USDC,
  monthlyReserved: 1n * USDC,
  budgetId: "bud_1",
  budgetName: "Research",
  budgetHours: 168,
  budgetLimit: 30n * USDC,
  budgetUsed: 29n * USDC,
  taskId: "report-1",
  taskState: "open",
  taskCeiling: 40n * USDC,
  taskSpent: 38n * USDC,
  taskReserved: 1n * USDC,
};

/** A simple description of a refusal, written here a second time. */
interface Fault {
  rule: RuleName;
  code: DenialCode;
  /** Refuses it, whatever the other facts are. */
  when(facts: Snapshot): boolean;
  /** The owner can lift it for one payment. */
  liftable?: true;
  wrong: Partial<Snapshot>;
  /** `wrong` refuses any amount, so random mixtures need nothing else. */
  alone?: true;
  detailPattern: RegExp;
}

const priceOf = ({ price, requested }: Snapshot): bigint => price ?? requested;
const isOver = (most: bigint | undefined, spent = 0n, reserved = 0n, more = 0n): boolean =>
  most !== undefined && spent + reserved + more > most;

export function channelRefusal(f: Snapshot): DenialCode | undefined {
  const { channelDeposit: deposit, channelHeld = 0n, channelDelay = 0n } = f;
  if (deposit === undefined) return undefined;
  const limits = [f.channelLimit, f.payeeChannelLimit];
  if (limits.includes(0n) || channelDelay > (f.channelLongestDelay ?? 0n))
    return "channel_not_allowed";
  if (deposit === 0n) return undefined;
  if (isOver(f.channelLimit, channelHeld, 0n, deposit)) return "channel_limit_exceeded";
  return isOver(f.payeeChannelLimit, f.payeeChannelHeld, 0n, deposit)
    ? "payee_channel_limit_exceeded"
    : undefined;
}

/** In the order of the rules; each wrong fact exceeds its limit by the smallest step. */
export const FAULTS: Fault[] = [
  {
    rule: "pause_after_failures",
    code: "paused_by_rule",
    when: ({ pausedBy }) => pausedBy === "pause_after_failures",
    alone: true,
    wrong: { pausedBy: "pause_after_failures", failures: 3n },
    detailPattern: /3 payments failed or were refused in an hour/,
  },
  {
    rule: "pause_at_rate",
    code: "paused_by_rule",
    when: ({ pausedBy }) => pausedBy === "pause_at_rate",
    alone: true,
    wrong: { pausedBy: "pause_at_rate", pauseAtRate: 2n, usualDay: USDC, rateSum: 2n * USDC + 1n },
    detailPattern: /2\.000001 USDC in 24 hours is more than 2 times its usual day of 1 USDC/,
  },
  {
    rule: "pause_on_price_jump",
    code: "paused_by_rule",
    when: ({ pausedBy }) => pausedBy === "pause_on_price_jump",
    alone: true,
    wrong: {
      pausedBy: "pause_on_price_jump",
      pauseOnPriceJump: 5n,
      jumpSite: "https://a.example",
      jumpPrice: 5n * USDC + 1n,
      priceBefore: USDC,
    },
    detailPattern:
      /https:\/\/a\.example asks 5\.000001 USDC, more than 5 times its highest price before, 1 USDC/,
  },
  {
    rule: "status",
    code: "agent_paused",
    when: ({ status }) => status !== "active",
    alone: true,
    wrong: { status: "paused", pausedBy: "stop" },
    detailPattern: /stopped everything/,
  },
  {
    rule: "status",
    code: "agent_paused",
    when: ({ status }) => status !== "active",
    alone: true,
    wrong: { status: "paused" },
    detailPattern: /is paused/,
  },
  {
    rule: "expiry",
    code: "agent_expired",
    when: ({ expired }) => expired,
    alone: true,
    wrong: { expired: true },
    detailPattern: /has expired/,
  },
  {
    rule: "pay_times",
    code: "outside_pay_times",
    when: ({ closed }) => closed === true,
    alone: true,
    wrong: { closed: true, opensAt: "2026-12-01T08:00:00.000Z" },
    detailPattern: /pays only at 08:00-18:00 UTC on mon,tue/,
  },
  {
    rule: "denied_payee",
    code: "payee_denied",
    when: ({ denied }) => denied !== undefined,
    alone: true,
    wrong: { denied: "https://a.example" },
    detailPattern: /never pays anything at https:\/\/a\.example, from any agent/,
  },
  {
    rule: "target",
    code: "listing_mismatch",
    when: ({ refusal }) => refusal === "listing_mismatch",
    alone: true,
    wrong: { refusal: "listing_mismatch" },
    detailPattern: /differ from the listing/,
  },
  {
    rule: "target",
    code: "payee_screened",
    when: ({ refusal }) => refusal === "payee_screened",
    alone: true,
    wrong: { refusal: "payee_screened" },
    detailPattern: /^This service does not pay this address\.$/,
  },
  {
    rule: "target",
    code: "account_screened",
    when: ({ refusal }) => refusal === "account_screened",
    alone: true,
    wrong: { refusal: "account_screened" },
    detailPattern: /lets the agent's owner read and withdraw, and nothing else/,
  },
  {
    rule: "target",
    code: "url_blocked",
    when: ({ refusal }) => refusal === "url_blocked",
    alone: true,
    wrong: { refusal: "url_blocked" },
    detailPattern: /may not pay this target/,
  },
  {
    rule: "target",
    code: "origin_not_allowed",
    when: ({ refusal }) => refusal === "origin_not_allowed",
    alone: true,
    wrong: { refusal: "origin_not_allowed", confined: true, site: "https://a.example" },
    detailPattern: /fetch only from its payees' sites, and https:\/\/a\.example is not one/,
  },
  {
    rule: "target",
    code: "challenge_already_used",
    when: ({ refusal }) => refusal === "challenge_already_used",
    alone: true,
    wrong: { refusal: "challenge_already_used" },
    detailPattern: /already answered this challenge/,
  },
  {
    rule: "target",
    code: "channel_distrusted",
    when: ({ refusal }) => refusal === "channel_distrusted",
    alone: true,
    wrong: { refusal: "channel_distrusted" },
    detailPattern: /broke the rules of an earlier payment channel/,
  },
  {
    rule: "max_amount",
    code: "price_exceeds_max",
    when: (f) => f.maxAmount !== null && priceOf(f) > f.maxAmount,
    wrong: { maxAmount: USDC - 1n },
    detailPattern: /^1 USDC requested; maxAmount is 0\.999999 USDC\.$/,
  },
  {
    rule: "allowlist",
    code: "site_payee_changed",
    when: (f) => !f.allowed && !!f.site && !!f.expectedPayee && !!f.seenPayee,
    liftable: true,
    wrong: {
      allowed: false,
      site: "https://a.example",
      expectedPayee: "0x70997970c51812dc3a010c7d01b50e0d17dc79c8",
      seenPayee: "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc",
    },
    detailPattern:
      /^https:\/\/a\.example requests payment to 0x3C44.*, but the owner allowed 0x7099.* there\.$/,
  },
  {
    rule: "allowlist",
    code: "payee_bound_to_site",
    when: ({ allowed, payeeSites }) => !allowed && payeeSites !== undefined,
    liftable: true,
    wrong: { allowed: false, payeeSites: ["https://a.example", "https://b.example"] },
    detailPattern: /only through x402-fetch at https:\/\/a\.example, https:\/\/b\.example\.$/,
  },
  {
    rule: "allowlist",
    code: "recipient_not_allowed",
    when: ({ allowed }) => !allowed,
    liftable: true,
    wrong: { allowed: false },
    detailPattern: /not on the agent's allowlist/,
  },
  {
    rule: "payee_expiry",
    code: "payee_expired",
    when: ({ payeeExpired }) => payeeExpired === true,
    liftable: true,
    wrong: { payeeExpired: true },
    detailPattern: /entry on the allowlist has expired/,
  },
  {
    rule: "channels",
    code: "channel_not_allowed",
    when: (f) => channelRefusal(f) === "channel_not_allowed",
    wrong: { channelLimit: 0n, channelHeld: 0n, channelDeposit: 0n },
    detailPattern: /^The owner allows no payment channels\.$/,
  },
  {
    rule: "channels",
    code: "channel_not_allowed",
    when: (f) => channelRefusal(f) === "channel_not_allowed",
    wrong: { payeeChannelLimit: 0n, payeeChannelHeld: 0n, channelDeposit: 0n },
    detailPattern: /^The owner allows no payment channel to this recipient\.$/,
  },
  {
    rule: "channels",
    code: "channel_not_allowed",
    when: (f) => channelRefusal(f) === "channel_not_allowed",
    wrong: { channelDelay: 90_000n },
    detailPattern: /^The channel returns money within 25 hours; the owner allows at most 1 day\.$/,
  },
  {
    rule: "channels",
    code: "channel_limit_exceeded",
    when: (f) => channelRefusal(f) === "channel_limit_exceeded",
    wrong: { channelLimit: 4n * USDC - 1n },
    detailPattern: /^1 USDC to deposit; 3 USDC of 3\.999999 USDC held in payment channels\.$/,
  },
  {
    rule: "channels",
    code: "payee_channel_limit_exceeded",
    when: (f) => channelRefusal(f) === "payee_channel_limit_exceeded",
    wrong: { payeeChannelLimit: 2n * USDC - 1n },
    detailPattern:
      /^1 USDC to deposit; 1 USDC of 1\.999999 USDC held in payment channels to this recipient\.$/,
  },
  {
    rule: "per_payment_limit",
    code: "per_payment_limit_exceeded",
    when: (f) => f.perPaymentLimit !== null && priceOf(f) > f.perPaymentLimit,
    liftable: true,
    wrong: { perPaymentLimit: USDC - 1n },
    detailPattern: /^1 USDC requested; the per-payment limit is 0\.999999 USDC\.$/,
  },
  {
    rule: "payee_per_payment_limit",
    code: "payee_per_payment_limit_exceeded",
    when: (f) => isOver(f.payeePerPaymentLimit, priceOf(f)),
    liftable: true,
    wrong: { payeePerPaymentLimit: USDC - 1n },
    detailPattern:
      /^1 USDC requested; the limit for one payment to this recipient is 0\.999999 USDC\.$/,
  },
  {
    rule: "payments_per_hour",
    code: "payment_rate_exceeded",
    when: (f) => isOver(f.hourlyLimit, f.hourlySpent, f.hourlyReserved, 1n),
    liftable: true,
    wrong: { hourlyLimit: 4n },
    detailPattern: /^4 payments of 4 made in the last hour\.$/,
  },
  {
    rule: "payee_limit",
    code: "payee_limit_exceeded",
    when: (f) => isOver(f.payeeLimit, f.payeeSpent, f.payeeReserved, f.requested),
    liftable: true,
    wrong: { payeeLimit: 2n * USDC - 1n },
    detailPattern:
      /^1 USDC requested; 1 USDC of 1\.999999 USDC used in the last 24 hours for this recipient\.$/,
  },
  {
    rule: "daily_limit",
    code: "daily_limit_exceeded",
    when: (f) => isOver(f.limit, f.spent, f.reserved, f.requested),
    liftable: true,
    wrong: { limit: 5n * USDC - 1n },
    detailPattern: /^1 USDC requested; 4 USDC of 4\.999999 USDC used in the last 24 hours\.$/,
  },
  {
    rule: "weekly_limit",
    code: "weekly_limit_exceeded",
    when: (f) => isOver(f.weeklyLimit, f.weeklySpent, f.weeklyReserved, f.requested),
    liftable: true,
    wrong: { weeklyLimit: 9n * USDC - 1n },
    detailPattern: /^1 USDC requested; 8 USDC of 8\.999999 USDC used in the last 7 days\.$/,
  },
  {
    rule: "monthly_limit",
    code: "monthly_limit_exceeded",
    when: (f) => isOver(f.monthlyLimit, f.monthlySpent, f.monthlyReserved, f.requested),
    liftable: true,
    wrong: { monthlyLimit: 20n * USDC - 1n },
    detailPattern: /^1 USDC requested; 19 USDC of 19\.999999 USDC used in the last 30 days\.$/,
  },
  {
    rule: "budget",
    code: "budget_exceeded",
    when: (f) => isOver(f.budgetLimit, f.budgetUsed, 0n, f.requested),
    liftable: true,
    wrong: { budgetLimit: 30n * USDC - 1n, budgetOthers: 28n * USDC },
    detailPattern:
      /^1 USDC requested; 29 USDC of 29\.999999 USDC used in the last 7 days by all agents of the budget "Research"\.$/,
  },
  {
    rule: "task",
    code: "task_not_found",
    when: ({ taskState }) => taskState === "missing",
    alone: true,
    wrong: {
      taskId: "report-2",
      taskState: "missing",
      taskCeiling: undefined,
      taskSpent: undefined,
      taskReserved: undefined,
    },
    detailPattern: /^The agent has no task "report-2"\.$/,
  },
  {
    rule: "task",
    code: "task_ended",
    when: ({ taskState }) => taskState === "closed" || taskState === "ended",
    alone: true,
    wrong: { taskId: "report-1", taskState: "closed", taskCeiling: USDC, taskSpent: 0n },
    detailPattern: /^The task "report-1" was closed\.$/,
  },
  {
    rule: "task",
    code: "task_ended",
    when: ({ taskState }) => taskState === "closed" || taskState === "ended",
    wrong: { taskState: "ended" },
    detailPattern: /^The task "report-1" has ended\.$/,
  },
  {
    rule: "task",
    code: "task_ceiling_exceeded",
    when: (f) =>
      f.taskState === "open" && isOver(f.taskCeiling, f.taskSpent, f.taskReserved, f.requested),
    wrong: { taskCeiling: 40n * USDC - 1n },
    detailPattern: /^1 USDC requested; 39 USDC of 39\.999999 USDC used by the task "report-1"\.$/,
  },
  {
    rule: "balance",
    code: "insufficient_funds",
    when: (f) =>
      f.balance !== null && isOver(f.balance, f.outstanding, f.channelDeposit ?? f.requested),
    wrong: { balance: 2n * USDC - 1n },
    detailPattern:
      /^1 USDC to deposit; the wallet has 1\.999999 USDC, and 1 USDC of it is already reserved\.$/,
  },
  {
    rule: "floor",
    code: "amount_below_floor",
    when: ({ floor, requested }) => floor != null && requested < floor,
    wrong: { floor: USDC + 1n },
    detailPattern: /^1 USDC requested; the smallest payment is 1\.000001 USDC\.$/,
  },
  {
    rule: "gas",
    code: "gas_budget_exhausted",
    when: ({ gasShort }) => gasShort !== undefined,
    wrong: { gasShort: "owner", gasLimit: 10n ** 18n, gasLeft: 10n ** 14n },
    detailPattern:
      /^The gas budget of this owner's agents is used up: 0\.0001 of 1 USDC a day left\.$/,
  },
];

/** The rules that pause an agent. */
export const PAUSING = FAULTS.filter(({ code }) => code === "paused_by_rule").map(
  ({ rule }) => rule,
);

/** Mostly nothing, sometimes one or two facts that refuse any amount; only of these rules, if they are given. */
export function switches(rules?: readonly string[]): fc.Arbitrary<Partial<Snapshot>> {
  const wrong = FAULTS.filter(({ alone, rule }) => alone && (!rules || rules.includes(rule))).map(
    (fault) => fault.wrong,
  );
  const some = fc.array(fc.constantFrom(...wrong), { minLength: 1, maxLength: 2 });
  return fc
    .oneof({ weight: 4, arbitrary: fc.constant([]) }, some)
    .map((chosen) => Object.assign({}, ...chosen) as Partial<Snapshot>);
}
