import { Type, type Static } from "typebox";
import {
  AddressOutput,
  Amount,
  Described,
  Digits,
  Hex32,
  Id,
  Nullable,
  OneOf,
  Page,
  Strict,
  Timestamp,
} from "./common.ts";
import { authorizationOf, problemWith } from "./orders.ts";

const Name = Type.String({ minLength: 1, maxLength: 60, pattern: "\\S" });
const limits = {
  dailyLimit: Nullable(Amount, "USDC in any 24 hours; null: no such limit"),
  weeklyLimit: Nullable(Amount, "USDC in any 7 days; null: no such limit"),
  monthlyLimit: Nullable(Amount, "USDC in any 30 days; null: no such limit"),
};
const wantedLimits = {
  dailyLimit: Type.Optional(limits.dailyLimit),
  weeklyLimit: Type.Optional(limits.weeklyLimit),
  monthlyLimit: Type.Optional(limits.monthlyLimit),
};
const AgentIds = (maxItems: number) => Type.Array(Id, { maxItems });

const Limit = Type.String({
  pattern: "^(0|[1-9][0-9]{0,77})$",
  description: "Atomic units; 2^256-1: no such limit",
});
export const BudgetOrder = Strict({
  owner: AddressOutput,
  budgetId: Id,
  version: Digits,
  name: Name,
  dailyLimit: Limit,
  weeklyLimit: Limit,
  monthlyLimit: Limit,
  status: OneOf(["active", "archived"], "After this change"),
  agentsOut: Type.String({
    maxLength: 4_000,
    description: "The ids of the agents that are taken out, sorted, separated by `, `",
  }),
  nonce: Hex32,
  deadline: Digits,
});
const BudgetAuthorization = authorizationOf(BudgetOrder);
export type BudgetAuthorization = Static<typeof BudgetAuthorization>;

export const NewBudgetBody = Strict(
  { name: Name, ...wantedLimits, agents: Type.Optional(AgentIds(1_000)) },
  { examples: [{ name: "Research", dailyLimit: "25" }] },
);
export type NewBudgetBody = Static<typeof NewBudgetBody>;

export const ChangeBudgetBody = Strict(
  {
    name: Type.Optional(Name),
    ...wantedLimits,
    agents: Type.Optional(
      Described(AgentIds(1_000), "All agents that it is to have, in place of the next two"),
    ),
    addAgents: Type.Optional(AgentIds(1_000)),
    removeAgents: Type.Optional(AgentIds(100)),
    authorization: BudgetAuthorization,
  },
  { minProperties: 1, examples: [{ dailyLimit: "10" }] },
);
export type ChangeBudgetBody = Static<typeof ChangeBudgetBody>;

export const ArchiveBudgetBody = Strict({ authorization: BudgetAuthorization });

export const BudgetProblem = problemWith(BudgetOrder);
export const budgetRefusals = { 403: BudgetProblem, 409: BudgetProblem };

export const Budget = Type.Object({
  id: Id,
  name: Type.String(),
  ...limits,
  version: Type.Integer({ description: "One more with each change; an order names the next one" }),
  agents: Described(AgentIds(1_000), "The ids of the agents in it, at most 1,000 of them"),
  agentCount: Type.Integer({ description: "How many agents are in it" }),
  windows: Type.Array(
    Type.Object({
      window: Type.String({ examples: ["24h"] }),
      limit: Amount,
      used: Described(Amount, "By all agents, reserved amounts included"),
      available: Amount,
      availableAt: Type.Optional(
        Described(Timestamp, "If nothing is available: when something is again"),
      ),
    }),
    { description: "One for each limit" },
  ),
  createdAt: Timestamp,
  updatedAt: Timestamp,
  archivedAt: Nullable(Timestamp),
});
export type Budget = Static<typeof Budget>;
export const BudgetPage = Page(Budget);

export const BudgetAgent = Type.Object({
  id: Id,
  name: Type.String(),
  status: OneOf(["active", "paused", "archived"]),
});
export const BudgetAgentPage = Page(BudgetAgent);
