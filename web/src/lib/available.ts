/** What an agent can pay now, and a description of the rule that sets this limit. */
import { atomic, formatUsdc } from "./money.ts";
import type { Agent, Limits } from "./wire.ts";

type Rule = NonNullable<Limits["boundBy"]>;

const REASONS: Record<Exclude<Rule, "status">, string> = {
  expiry: "expired",
  allowlist: "no payee is allowed yet",
  per_payment_limit: "capped by the limit per payment",
  payments_per_hour: "capped by the limit of payments per hour",
  daily_limit: "capped by the daily limit",
  weekly_limit: "capped by the weekly limit",
  monthly_limit: "capped by the monthly limit",
  balance: "capped by the balance",
  floor: "less is left than the smallest possible payment",
  gas: "the gas budget is used up",
};

type AgentState = Pick<Agent, "status" | "limits">;

/** The reason why it is not more. */
export function limitingRule({ status, limits: { boundBy } }: AgentState): string {
  if (boundBy === null) return "not known right now";
  return boundBy === "status" ? status : REASONS[boundBy];
}

export function availableNow(agent: AgentState): string {
  const { available } = agent.limits;
  const reason = limitingRule(agent);
  if (available === null) return `The amount it can pay is ${reason}`;
  if (atomic(available) === 0n) return `Cannot pay now: ${reason}`;
  return `Can pay ${formatUsdc(available)} USDC now, ${reason}`;
}
