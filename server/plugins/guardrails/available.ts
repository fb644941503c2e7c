/**
 * How much an agent may pay now: its limits as they are returned, and the largest payment that passes the rules that do
 * not depend on the payee.
 */
import { formatAtomic } from "../../core/money.ts";
import { GENERAL_RULES, type GeneralRule } from "../../schemas/agents.ts";
import {
  BUDGET_WINDOWS,
  remainingOf,
  RULES,
  type AgentState,
  type BudgetLimit,
  type Limits,
  type Snapshot,
  type WindowLimits,
} from "./rules.ts";

export interface Available {
  /** The largest payment that passes; 0 if none does. */
  atomic: bigint;
  /** The rule that refuses any larger payment. */
  boundBy: GeneralRule;
}

/** The facts for the balance, floor and gas rules. */
export type WalletFacts = Pick<Snapshot, "outstanding" | "floor" | "gasShort"> & {
  balance: bigint;
  /** The database is behind the chain: its sums may lack payments, and nothing is paid meanwhile. */
  isBehind: boolean;
};

const UNLIMITED = { balance: 2n ** 256n, outstanding: 0n };

const isGeneral = (name: string): name is GeneralRule =>
  (GENERAL_RULES as readonly string[]).includes(name);

const GENERAL = RULES.flatMap((rule) => {
  const { name } = rule;
  return isGeneral(name) ? [{ ...rule, name }] : [];
});

/** Without the wallet's facts only 0 is certain. Null: it depends on data that cannot be read now. */
export function availableOf(agent: AgentState, wallet: WalletFacts | undefined): Available | null {
  const isKnown = wallet !== undefined && !wallet.isBehind;
  const ofAgent = Object.assign({}, ...RULES.map((rule) => rule.factsOf?.(agent))) as Omit<
    Snapshot,
    "requested" | "balance" | "outstanding"
  >;
  const found = largestPayment({ ...ofAgent, ...(isKnown ? wallet : UNLIMITED) });
  return isKnown || found.atomic === 0n ? found : null;
}

/** Takes those facts of a decision that are the same for every payee. */
export function largestPayment(facts: Omit<Snapshot, "requested">): Available {
  const refusing = (requested: bigint) =>
    GENERAL.find((rule) => rule.check({ ...facts, requested })?.refusal)?.name;
  const most = GENERAL.flatMap((rule) => rule.most?.({ ...facts, requested: 0n }) ?? []).reduce(
    (least, one) => (one < least ? one : least),
  );
  const stops = refusing(most === 0n ? 1n : most);
  const boundBy = stops ?? refusing(most + 1n);
  if (boundBy === undefined) throw new Error("no rule limits a payment");
  return { atomic: stops === undefined ? most : 0n, boundBy };
}

interface WindowOnWire {
  limit: string;
  spent: string;
  reserved: string;
  remaining: string;
  nextReleaseAt: string | null;
}

interface LimitsOnWire extends WindowOnWire {
  available: string | null;
  boundBy: GeneralRule | null;
  weekly: WindowOnWire | null;
  monthly: WindowOnWire | null;
  /** Numbers of payments, not amounts. */
  hourly:
    | ({ [Number in keyof Omit<WindowOnWire, "nextReleaseAt">]: number } & Pick<
        WindowOnWire,
        "nextReleaseAt"
      >)
    | null;
  budgets: {
    id: string;
    name: string;
    window: string;
    limit: string;
    available: string;
    availableAt?: string;
  }[];
}

export function windowOnWire(window: WindowLimits): WindowOnWire {
  return {
    limit: formatAtomic(window.limitAtomic),
    spent: formatAtomic(window.spentAtomic),
    reserved: formatAtomic(window.reservedAtomic),
    remaining: formatAtomic(window.remainingAtomic),
    nextReleaseAt: window.nextReleaseAt?.toISOString() ?? null,
  };
}

export const budgetOnWire = ({ hours, limitAtomic, usedAtomic, availableAt }: BudgetLimit) => ({
  window: BUDGET_WINDOWS[hours]?.window ?? "",
  limit: formatAtomic(limitAtomic),
  available: formatAtomic(remainingOf(limitAtomic, usedAtomic)),
  ...(availableAt && { availableAt: availableAt.toISOString() }),
});

export function limitsOnWire(
  { weekly, monthly, hourly, budgets = [], ...daily }: Limits,
  available: Available | null,
): LimitsOnWire {
  return {
    ...windowOnWire(daily),
    available: available && formatAtomic(available.atomic),
    boundBy: available?.boundBy ?? null,
    weekly: weekly && windowOnWire(weekly),
    monthly: monthly && windowOnWire(monthly),
    hourly: hourly && {
      limit: Number(hourly.limitAtomic),
      spent: Number(hourly.spentAtomic),
      reserved: Number(hourly.reservedAtomic),
      remaining: Number(hourly.remainingAtomic),
      nextReleaseAt: hourly.nextReleaseAt?.toISOString() ?? null,
    },
    budgets: budgets.map((budget) => ({
      id: budget.id,
      name: budget.name,
      ...budgetOnWire(budget),
    })),
  };
}
