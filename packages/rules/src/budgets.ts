/** Budgets over several agents: their limits, and which change loosens them. */
import { OPTIONAL_AMOUNT } from "./kinds.ts";

/** A limit that is not set is null. */
export const BUDGET_FIELDS = [
  { name: "dailyLimit", kind: OPTIONAL_AMOUNT, hours: 24, label: "In any 24 hours" },
  { name: "weeklyLimit", kind: OPTIONAL_AMOUNT, hours: 168, label: "In any 7 days" },
  { name: "monthlyLimit", kind: OPTIONAL_AMOUNT, hours: 720, label: "In any 30 days" },
] as const;

export type BudgetLimits = Record<(typeof BUDGET_FIELDS)[number]["name"], bigint | null>;

/** Whether a limit is raised or dropped. */
export const loosensBudget = (current: BudgetLimits, wanted: BudgetLimits): boolean =>
  BUDGET_FIELDS.some(({ name, kind }) => kind.allowsMore(wanted[name], current[name]));

/** The agents that an order takes out, as it names them. */
export const agentsText = (ids: readonly string[]): string => ids.toSorted().join(", ");
