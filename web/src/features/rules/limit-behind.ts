import { atomic } from "../../lib/money.ts";
import type { Agent, AgentChanges, Payment } from "../../lib/wire.ts";
import { allowPayee, changeRules } from "./api.ts";
import { type AllowlistDraft, entryFor } from "./rules.ts";

interface LimitBehind {
  name: string;
  /** Null: the limit was removed meanwhile. */
  now: bigint | null;
  /** The limit at which the payment would be allowed. */
  needed: bigint;
  raise: (to: string) => Promise<unknown>;
}

interface Used {
  limit: string;
  spent: string;
  reserved: string;
}

/** The limit that refused a payment, with its current value; undefined where another rule refused it. */
export function limitBehind(agent: Agent, payment: Payment): LimitBehind | undefined {
  const amount = atomic(payment.amount);
  // Through a payment channel the price may be above the amount.
  const price = payment.denial ? atomic(payment.denial.policy.requested) : amount;
  const money = (limit: string | null): bigint | null => (limit === null ? null : atomic(limit));
  const title = "Raise the limit";
  const ofAgent = (
    name: string,
    field: keyof AgentChanges,
    now: string | null,
    used: Used | null = null,
  ): LimitBehind => ({
    name,
    now: money(now),
    needed: used === null ? price : amount + atomic(used.spent) + atomic(used.reserved),
    raise: (to) => changeRules(agent, { [field]: to }, { title }),
  });
  const entry = entryFor(agent, payment);
  const ofPayee = (
    name: string,
    field: "dailyLimit" | "perPaymentLimit",
    used: Used | undefined,
  ): LimitBehind | undefined =>
    entry && {
      name,
      now: money(entry[field]),
      needed: used ? amount + atomic(used.spent) + atomic(used.reserved) : price,
      raise: (to) => {
        const { address, label, site } = entry;
        const payee: AllowlistDraft = { address, label, site, [field]: to };
        return allowPayee(agent, payee, title);
      },
    };
  const { limits } = agent;
  switch (payment.denial?.code) {
    case "daily_limit_exceeded":
      return ofAgent("daily limit", "dailyLimit", agent.dailyLimit, limits);
    case "weekly_limit_exceeded":
      return ofAgent("weekly limit", "weeklyLimit", agent.weeklyLimit, limits.weekly);
    case "monthly_limit_exceeded":
      return ofAgent("monthly limit", "monthlyLimit", agent.monthlyLimit, limits.monthly);
    case "per_payment_limit_exceeded":
      return ofAgent("limit per payment", "perPaymentLimit", agent.perPaymentLimit);
    case "payee_limit_exceeded":
      return ofPayee("daily limit of this payee", "dailyLimit", entry?.limits);
    case "payee_per_payment_limit_exceeded":
      return ofPayee("limit per payment to this payee", "perPaymentLimit", undefined);
    default:
      return undefined;
  }
}
