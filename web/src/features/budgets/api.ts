import { infiniteQueryOptions, keepPreviousData } from "@tanstack/react-query";
import {
  BUDGET_FIELDS,
  type BudgetLimits,
  loosensBudget,
} from "../../../../packages/rules/src/budgets.ts";
import type { BudgetOrder } from "../../../../packages/rules/src/orders.ts";
import { api } from "../../lib/api.ts";
import { signed } from "../../lib/orders/signed.ts";
import { type Change, SHOW } from "../../lib/orders/terms.ts";
import { budgetToSign, type WantedBudget } from "../../lib/orders/to-sign.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Agent, Budget, BudgetAgent, NetworkInfo } from "../../lib/wire.ts";

/** At most 100, in one page. */
export const budgetsQuery = infiniteQueryOptions({
  ...pagedQuery<Budget>(keys.budgets, "/api/budgets"),
  refetchInterval: 30_000,
});

export const membersQuery = (budgetId: string) =>
  pagedQuery<BudgetAgent>(keys.budgetAgents(budgetId), `/api/budgets/${budgetId}/agents`);

export const candidatesQuery = (search: string) => {
  const filter = { search: search || undefined };
  return {
    ...pagedQuery<Agent>(keys.agents(filter), "/api/agents", filter),
    placeholderData: keepPreviousData,
  };
};

export type Limits = WantedBudget["limits"];
export type Draft = Limits & { name: string };

export const limitsOf = ({ dailyLimit, weeklyLimit, monthlyLimit }: Limits): Limits => ({
  dailyLimit,
  weeklyLimit,
  monthlyLimit,
});

export const createBudget = (draft: Draft): Promise<Budget> => api.post("/api/budgets", draft);

/** The wallet that signs, and for which network. */
export interface Signing {
  owner: string;
  network: NetworkInfo | undefined;
}

export const editBudget = (budget: Budget, draft: Draft, signing: Signing): Promise<Budget> =>
  changed(budget, signing, {
    title: `Change ${budget.name}`,
    wanted: { name: draft.name, limits: limitsOf(draft), status: "active", agentsOut: [] },
    changes: changesOf(budget, draft),
    send: (authorization) => api.patch(`/api/budgets/${budget.id}`, { ...draft, ...authorization }),
  });

export const putIn = (budget: Budget, agentId: string): Promise<Budget> =>
  api.patch(`/api/budgets/${budget.id}`, { addAgents: [agentId] });

export const takeOut = (budget: Budget, agent: BudgetAgent, signing: Signing): Promise<Budget> =>
  changed(budget, signing, {
    title: `Take ${agent.name} out of ${budget.name}`,
    wanted: { ...asItIs(budget), agentsOut: [agent.id] },
    changes: [{ what: agent.name, before: `in ${budget.name}`, after: "not in it" }],
    send: (authorization) =>
      api.patch(`/api/budgets/${budget.id}`, { removeAgents: [agent.id], ...authorization }),
  });

export const archiveBudget = (budget: Budget, signing: Signing): Promise<Budget> =>
  changed(budget, signing, {
    title: `Archive ${budget.name}`,
    wanted: { ...asItIs(budget), status: "archived" },
    changes: [{ what: budget.name, before: "limits its agents", after: "archived" }],
    send: (authorization) => api.delete(`/api/budgets/${budget.id}`, { ...authorization }),
  });

type Wanted = Pick<WantedBudget, "name" | "limits" | "status" | "agentsOut">;

const asItIs = (budget: Budget): Wanted => ({
  name: budget.name,
  limits: limitsOf(budget),
  status: "active",
  agentsOut: [],
});

function changed(
  budget: Budget,
  { owner, network }: Signing,
  {
    title,
    wanted,
    changes,
    send,
  }: {
    title: string;
    wanted: Wanted;
    changes: Change[];
    send: (authorization: object) => Promise<Budget>;
  },
): Promise<Budget> {
  // An owner's orders that concern no single agent are signed for the first network.
  if (!network) throw new Error("The network is not known yet. Try again in a moment.");
  const { chainId } = network;
  const whole = { ...wanted, owner, id: budget.id, version: budget.version + 1 };
  const kind = (order: object) => budgetToSign(order as BudgetOrder, whole, chainId);
  return signed(
    {
      kind,
      title,
      chainId,
      effect: "The limits of each agent stay as they are.",
      read(order) {
        kind(order);
        return Promise.resolve({ changes, hasUnseenChanges: false });
      },
    },
    send,
  );
}

const textOf = (limit: string | null): string => {
  const [{ kind }] = BUDGET_FIELDS;
  const read = kind.readWire(limit);
  return read.ok ? kind.text(read.value, SHOW) : "";
};

function changesOf(budget: Budget, draft: Draft): Change[] {
  const limits = BUDGET_FIELDS.map(({ name, label }) => ({
    what: label,
    before: textOf(budget[name]),
    after: textOf(draft[name]),
  }));
  return [{ what: "Name", before: budget.name, after: draft.name }, ...limits].filter(
    ({ before, after }) => before !== after,
  );
}

/** Undefined if a limit cannot be read. */
function read(limits: Limits): BudgetLimits | undefined {
  const values = BUDGET_FIELDS.map(
    ({ name, kind }) => [name, kind.readWire(limits[name])] as const,
  );
  if (values.some(([, value]) => !value.ok)) return undefined;
  return Object.fromEntries(
    values.map(([name, value]) => [name, value.ok ? value.value : null]),
  ) as BudgetLimits;
}

export const needsSignature = (budget: Budget, draft: Draft): boolean => {
  const [current, wanted] = [read(budget), read(draft)];
  return current !== undefined && wanted !== undefined && loosensBudget(current, wanted);
};
