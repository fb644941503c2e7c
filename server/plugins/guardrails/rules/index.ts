/**
 * The rules in the order in which they are checked; the first that refuses decides.
 * The order is that of the SQL function purser_first_refusal, and a property test compares the two. Floor and
 * gas, which concern our own costs, come last (purser_gas_reserve).
 */
import type { Hex } from "viem";
import { allowlist, type AllowlistFacts } from "./allowlist.ts";
import { balance, type BalanceFacts } from "./balance.ts";
import { expiry, type ExpiryFacts } from "./expiry.ts";
import { floor, type FloorFacts } from "./floor.ts";
import { gas, type GasFacts } from "./gas.ts";
import { maxAmount, type MaxAmountFacts } from "./max-amount.ts";
import {
  payeeExpiry,
  payeeLimit,
  payeePerPaymentLimit,
  type PayeeExpiryFacts,
  type PayeeLimitFacts,
  type PayeePerPaymentLimitFacts,
} from "./payee.ts";
import { perPaymentLimit, type PerPaymentLimitFacts } from "./per-payment-limit.ts";
import type { Rule } from "./rule.ts";
import { status, type StatusFacts } from "./status.ts";
import { target, type TargetFacts } from "./target.ts";
import {
  dailyLimit,
  monthlyLimit,
  paymentsPerHour,
  weeklyLimit,
  type DailyLimitFacts,
  type MonthlyLimitFacts,
  type PaymentsPerHourFacts,
  type WeeklyLimitFacts,
} from "./windows.ts";

const ORDERED = [
  status,
  expiry,
  target,
  maxAmount,
  allowlist,
  payeeExpiry,
  perPaymentLimit,
  payeePerPaymentLimit,
  paymentsPerHour,
  payeeLimit,
  dailyLimit,
  weeklyLimit,
  monthlyLimit,
  balance,
  floor,
  gas,
] as const;

/** All facts of a decision, read under one lock. Amounts in atomic units. */
export interface Snapshot
  extends
    StatusFacts,
    ExpiryFacts,
    TargetFacts,
    MaxAmountFacts,
    AllowlistFacts,
    PayeeExpiryFacts,
    PerPaymentLimitFacts,
    PayeePerPaymentLimitFacts,
    PaymentsPerHourFacts,
    PayeeLimitFacts,
    DailyLimitFacts,
    WeeklyLimitFacts,
    MonthlyLimitFacts,
    BalanceFacts,
    FloorFacts,
    GasFacts {
  /** The owner's approval of this one call: rules that it lifts do not refuse. */
  approval?: { id: string; nonce: Hex };
}

export type RuleName = (typeof ORDERED)[number]["name"];
export type DenialCode = (typeof ORDERED)[number]["codes"][number];

export const RULES: readonly (Rule<Snapshot, DenialCode> & { name: RuleName })[] = ORDERED;

export const DENIAL_CODES: readonly DenialCode[] = ORDERED.flatMap(({ codes }) => codes);

/**
 * Parses the facts as SQL returns them and as the policy column stores them: integers are strings there,
 * because JSON numbers would lose digits. A fact that was introduced after a stored payment is missing.
 */
export const readFacts = (stored: object): Snapshot =>
  Object.fromEntries(
    Object.entries(stored).map(([name, value]: [string, unknown]) => [
      name,
      typeof value === "string" && /^-?\d+$/.test(value) ? BigInt(value) : value,
    ]),
  ) as unknown as Snapshot;
