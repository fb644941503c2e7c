/** What an owner's audit says about budgets: no entry loosens one without the order of the entry before it. */
import {
  agentsText,
  BUDGET_FIELDS,
  loosensBudget,
  type BudgetLimits,
} from "../../../packages/rules/src/budgets.ts";
import type { BudgetOrder } from "../../core/orders.ts";

type Facts = Record<string, unknown>;
interface Entry {
  action: string;
  before: Facts | null;
  after: Facts | null;
}

const OTHER = "differs from its signed order";
const UNFOUNDED = "does not follow from the budget in force before it";

/** Throws if a limit cannot be read. */
function limitsIn(facts: Facts): BudgetLimits {
  return Object.fromEntries(
    BUDGET_FIELDS.map(({ name, kind }) => {
      const read = kind.readWire(facts[name] as string | null);
      if (!read.ok) throw new RangeError(`${name} ${read.reason}`);
      return [name, read.value];
    }),
  ) as BudgetLimits;
}

const isSame = (left: BudgetLimits, right: BudgetLimits): boolean =>
  BUDGET_FIELDS.every(({ name }) => left[name] === right[name]);

/** Whether the entry is what the order says; the order names the agents that leave, the entry may count them. */
function isSigned(after: Facts, order: BudgetOrder): boolean {
  const removed = (after["removed"] ?? []) as string[] | number;
  const out = order.agentsOut === "" ? 0 : order.agentsOut.split(", ").length;
  return (
    after["budgetId"] === order.budgetId &&
    after["name"] === order.name &&
    String(after["version"]) === order.version &&
    (Array.isArray(removed) ? agentsText(removed) === order.agentsOut : removed === out) &&
    BUDGET_FIELDS.every(({ name, kind }) => kind.sign(limitsIn(after)[name]) === order[name])
  );
}

export class BudgetFacts {
  readonly #limits = new Map<string, BudgetLimits>();
  /** Agents and budgets came from another owner, whose audit has their history. */
  #isReceived = false;

  moved(action: string): void {
    if (action === "owner.received") this.#isReceived = true;
    else this.#limits.clear();
  }

  faultOf({ action, before, after }: Entry, order: BudgetOrder | undefined): string | undefined {
    const facts = after ?? {};
    const id = String(facts["budgetId"]);
    const known = this.#limits.get(id);
    const wanted = limitsIn(facts);
    if (action === "budget.created") {
      if (known) return UNFOUNDED;
      this.#limits.set(id, wanted);
      return undefined;
    }
    // The entry itself says what was in force, but not for a budget that is known.
    const current = known ?? (this.#isReceived && before !== null ? limitsIn(before) : undefined);
    if (current === undefined || (before !== null && !isSame(limitsIn(before), current)))
      return UNFOUNDED;
    this.#limits.set(id, wanted);
    if (order) return order.status === "active" && isSigned(facts, order) ? undefined : OTHER;
    return loosensBudget(current, wanted) || "removed" in facts
      ? `is ${action} without a signed order, and it loosens the budget`
      : undefined;
  }

  /** It needs the order, which the caller has checked. */
  archivedFault({ after }: Entry, order: BudgetOrder): string | undefined {
    this.#limits.delete(order.budgetId);
    return order.status === "archived" && isSigned(after ?? {}, order) ? undefined : OTHER;
  }
}
