// One payment that every rule allows, and for each rule the fact that makes it refuse.
import type { DenialCode, RuleName, Snapshot } from "../../server/plugins/guardrails/types.ts";

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
};

/** For each rule one wrong fact, in the order of the rules; each exceeds its limit by the smallest step. */
export const FAULTS: {
  rule: RuleName;
  code: DenialCode;
  wrong: Partial<Snapshot>;
  detailPattern: RegExp;
}[] = [
  {
    rule: "pause_after_failures",
    code: "paused_by_rule",
    wrong: { pausedBy: "pause_after_failures", failures: 3n },
    detailPattern: /3 payments failed or were refused in an hour/,
  },
  {
    rule: "pause_at_rate",
    code: "paused_by_rule",
    wrong: { pausedBy: "pause_at_rate", pauseAtRate: 2n, usualDay: USDC, rateSum: 2n * USDC + 1n },
    detailPattern: /2\.000001 USDC in 24 hours is more than 2 times its usual day of 1 USDC/,
  },
  { rule: "status", code: "agent_paused", wrong: { status: "paused" }, detailPattern: /is paused/ },
  { rule: "expiry", code: "agent_expired", wrong: { expired: true }, detailPattern: /has expired/ },
  {
    rule: "pay_times",
    code: "outside_pay_times",
    wrong: { closed: true, opensAt: "2026-12-01T08:00:00.000Z" },
    detailPattern: /pays only at 08:00-18:00 UTC on mon,tue/,
  },
  {
    rule: "target",
    code: "listing_mismatch",
    wrong: { refusal: "listing_mismatch" },
    detailPattern: /differ from the listing/,
  },
  {
    rule: "target",
    code: "origin_not_allowed",
    wrong: { refusal: "origin_not_allowed", confined: true, site: "https://a.example" },
    detailPattern: /fetch only from its payees' sites, and https:\/\/a\.example is not one/,
  },
  {
    rule: "target",
    code: "challenge_already_used",
    wrong: { refusal: "challenge_already_used" },
    detailPattern: /already answered this challenge/,
  },
  {
    rule: "target",
    code: "channel_distrusted",
    wrong: { refusal: "channel_distrusted" },
    detailPattern: /broke the rules of an earlier payment channel/,
  },
  {
    rule: "max_amount",
    code: "price_exceeds_max",
    wrong: { maxAmount: USDC - 1n },
    detailPattern: /^1 USDC requested; maxAmount is 0\.999999 USDC\.$/,
  },
  {
    rule: "allowlist",
    code: "site_payee_changed",
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
    wrong: { allowed: false, payeeSites: ["https://a.example", "https://b.example"] },
    detailPattern: /only through x402-fetch at https:\/\/a\.example, https:\/\/b\.example\.$/,
  },
  {
    rule: "allowlist",
    code: "recipient_not_allowed",
    wrong: { allowed: false },
    detailPattern: /not on the agent's allowlist/,
  },
  {
    rule: "payee_expiry",
    code: "payee_expired",
    wrong: { payeeExpired: true },
    detailPattern: /entry on the allowlist has expired/,
  },
  {
    rule: "channels",
    code: "channel_not_allowed",
    wrong: { channelLimit: 0n, channelHeld: 0n, channelDeposit: 0n },
    detailPattern: /^The owner allows no payment channels\.$/,
  },
  {
    rule: "channels",
    code: "channel_not_allowed",
    wrong: { payeeChannelLimit: 0n, payeeChannelHeld: 0n, channelDeposit: 0n },
    detailPattern: /^The owner allows no payment channel to this recipient\.$/,
  },
  {
    rule: "channels",
    code: "channel_not_allowed",
    wrong: { channelDelay: 90_000n },
    detailPattern: /^The channel returns money within 25 hours; the owner allows at most 1 day\.$/,
  },
  {
    rule: "channels",
    code: "channel_limit_exceeded",
    wrong: { channelLimit: 4n * USDC - 1n },
    detailPattern: /^1 USDC to deposit; 3 USDC of 3\.999999 USDC held in payment channels\.$/,
  },
  {
    rule: "channels",
    code: "payee_channel_limit_exceeded",
    wrong: { payeeChannelLimit: 2n * USDC - 1n },
    detailPattern:
      /^1 USDC to deposit; 1 USDC of 1\.999999 USDC held in payment channels to this recipient\.$/,
  },
  {
    rule: "per_payment_limit",
    code: "per_payment_limit_exceeded",
    wrong: { perPaymentLimit: USDC - 1n },
    detailPattern: /^1 USDC requested; the per-payment limit is 0\.999999 USDC\.$/,
  },
  {
    rule: "payee_per_payment_limit",
    code: "payee_per_payment_limit_exceeded",
    wrong: { payeePerPaymentLimit: USDC - 1n },
    detailPattern:
      /^1 USDC requested; the limit for one payment to this recipient is 0\.999999 USDC\.$/,
  },
  {
    rule: "payments_per_hour",
    code: "payment_rate_exceeded",
    wrong: { hourlyLimit: 4n },
    detailPattern: /^4 payments of 4 made in the last hour\.$/,
  },
  {
    rule: "payee_limit",
    code: "payee_limit_exceeded",
    wrong: { payeeLimit: 2n * USDC - 1n },
    detailPattern:
      /^1 USDC requested; 1 USDC of 1\.999999 USDC used in the last 24 hours for this recipient\.$/,
  },
  {
    rule: "daily_limit",
    code: "daily_limit_exceeded",
    wrong: { limit: 5n * USDC - 1n },
    detailPattern: /^1 USDC requested; 4 USDC of 4\.999999 USDC used in the last 24 hours\.$/,
  },
  {
    rule: "weekly_limit",
    code: "weekly_limit_exceeded",
    wrong: { weeklyLimit: 9n * USDC - 1n },
    detailPattern: /^1 USDC requested; 8 USDC of 8\.999999 USDC used in the last 7 days\.$/,
  },
  {
    rule: "monthly_limit",
    code: "monthly_limit_exceeded",
    wrong: { monthlyLimit: 20n * USDC - 1n },
    detailPattern: /^1 USDC requested; 19 USDC of 19\.999999 USDC used in the last 30 days\.$/,
  },
  {
    rule: "budget",
    code: "budget_exceeded",
    wrong: { budgetLimit: 30n * USDC - 1n, budgetOthers: 28n * USDC },
    detailPattern:
      /^1 USDC requested; 29 USDC of 29\.999999 USDC used in the last 7 days by all agents of the budget "Research"\.$/,
  },
  {
    rule: "balance",
    code: "insufficient_funds",
    wrong: { balance: 2n * USDC - 1n },
    detailPattern:
      /^1 USDC to deposit; the wallet has 1\.999999 USDC, and 1 USDC of it is already reserved\.$/,
  },
  {
    rule: "floor",
    code: "amount_below_floor",
    wrong: { floor: USDC + 1n },
    detailPattern: /^1 USDC requested; the smallest payment is 1\.000001 USDC\.$/,
  },
  {
    rule: "gas",
    code: "gas_budget_exhausted",
    wrong: { gasShort: "owner", gasLimit: 10n ** 18n, gasLeft: 10n ** 14n },
    detailPattern:
      /^The gas budget of this owner's agents is used up: 0\.0001 of 1 USDC a day left\.$/,
  },
];
