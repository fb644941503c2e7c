/** What an agent can pay now, and a description of the rule that sets this limit. */
import { GENERAL_RULES } from "../../../packages/rules/src/fields.ts";
import { atomic, formatUsdc } from "./money.ts";
import type { Agent } from "./wire.ts";

type AgentState = Pick<Agent, "status" | "limits">;

/** The reason why it is not more. */
export function limitingRule({ status, limits: { boundBy } }: AgentState): string {
  if (boundBy === null) return "not known right now";
  return boundBy === "status" ? status : GENERAL_RULES[boundBy];
}

export function availableNow(agent: AgentState): string {
  const { available } = agent.limits;
  const reason = limitingRule(agent);
  if (available === null) return `The amount it can pay is ${reason}`;
  if (atomic(available) === 0n) return `Cannot pay now: ${reason}`;
  return `Can pay ${formatUsdc(available)} USDC now, ${reason}`;
}
