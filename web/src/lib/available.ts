/** What an agent can pay at this moment, and the rule that allows no more, in plain words. */
import { atomic, formatUsdc } from "./money.ts";
import type { Agent, Limits } from "./wire.ts";

type Rule = NonNullable<Limits["boundBy"]>;

const REASONS: Record<Exclude<Rule, "status">, string> = {
  expiry: "expired",
  allowlist: "nobody may be paid yet",
  per_payment_limit: "held back by the limit per payment",
  payments_per_hour: "held back by the limit of payments per hour",
  daily_limit: "held back by the daily limit",
  weekly_limit: "held back by the weekly limit",
  monthly_limit: "held back by the monthly limit",
  balance: "held back by the balance",
  floor: "less is left than the smallest payment",
  gas: "the gas budget is used up",
};

type Stands = Pick<Agent, "status" | "limits">;

/** Why it is not more. */
export function heldBackBy({ status, limits: { boundBy } }: Stands): string {
  if (boundBy === null) return "not known just now";
  return boundBy === "status" ? status : REASONS[boundBy];
}

export function availableNow(agent: Stands): string {
  const { available } = agent.limits;
  const reason = heldBackBy(agent);
  if (available === null) return `What it can pay is ${reason}`;
  if (atomic(available) === 0n) return `Pays nothing now: ${reason}`;
  return `Can pay ${formatUsdc(available)} USDC now, ${reason}`;
}
