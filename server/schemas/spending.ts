/** Wire types of what an owner's agents spent together: sums, search, saved filters and exports. */
import { Type, type Static } from "typebox";
import {
  AddressInput,
  Amount,
  Described,
  Id,
  Nullable,
  pageQuery,
  Strict,
  Timestamp,
} from "./common.ts";
import { paymentFilters } from "./payments.ts";

const { Optional } = Type;
const { status, kind, task } = paymentFilters;

/** What a payment may be found by, across the agents of an owner. */
const found = {
  search: Optional(
    Type.String({
      minLength: 1,
      maxLength: 200,
      pattern: "^[^\\u0000]*$",
      description:
        "A payee's address, a transaction hash, a payment's id, an amount, or words that are in the memo or the URL",
    }),
  ),
  agentId: Optional(Type.String({ minLength: 1, maxLength: 64, description: "Only this agent" })),
  task,
  payee: Optional(Described(AddressInput, "Only payments to, or from, this address")),
  site: Optional(
    Type.String({
      minLength: 1,
      maxLength: 300,
      pattern: "^[^\\u0000]*$",
      description: "A host such as api.example.com, or an origin such as https://api.example.com",
    }),
  ),
  amount: Optional(Described(Amount, "Exactly this amount")),
  minAmount: Optional(Described(Amount, "This amount or more")),
  maxAmount: Optional(Described(Amount, "This amount or less")),
};

export const OwnerPaymentFilters = Strict({ ...paymentFilters, ...found });
export type OwnerPaymentFilters = Static<typeof OwnerPaymentFilters>;

const movedBetween = {
  from: Optional(
    Type.String({ maxLength: 40, description: "Paid at or after: a time, or a date (UTC)" }),
  ),
  to: Optional(Type.String({ maxLength: 40, description: "Paid before: a time, or a date (UTC)" })),
};

const GROUPS = ["payee", "site", "agent", "task", "day"] as const;
export type SpendingGroup = (typeof GROUPS)[number];

export const SpendingQuery = Strict({
  by: Type.Enum(GROUPS, { description: "What the sums are of. Days are UTC" }),
  ...movedBetween,
  ...found,
  ...pageQuery,
});
export type SpendingQuery = Static<typeof SpendingQuery>;

const sums = {
  charged: Described(Amount, "What was paid: settled, and through a channel what was charged"),
  refunded: Described(Amount, "What sellers refunded of it, in this time. Not subtracted"),
  payments: Type.Integer(),
};

export const Spending = Type.Object({
  by: Type.Enum(GROUPS),
  from: Timestamp,
  to: Timestamp,
  total: Type.Object(sums),
  items: Type.Array(
    Type.Object({
      key: Nullable(
        Type.String(),
        "An address, an origin, an agent's id, a task or a date. null: payments without a site or a task",
      ),
      name: Nullable(Type.String(), "The agent's name, or the owner's label of the payee"),
      ...sums,
    }),
    { description: "The largest first; days: the newest first" },
  ),
  others: Nullable(
    Type.Object({ rows: Type.Integer(), ...sums }),
    "The rows after this page, together",
  ),
  open: Type.Object(
    { payments: Type.Integer(), amount: Amount },
    { description: "Requested before `to` and not decided yet: not in the sums" },
  ),
  chargeNotKnown: Type.Integer({
    description:
      "Payments through a channel of which nothing shows what was charged: not in the sums",
  }),
  nextCursor: Nullable(Type.String()),
});
export type Spending = Static<typeof Spending>;

const PERIODS = ["this-month", "last-month", "30-days", "90-days"] as const;
const day = Type.String({ pattern: "^\\d{4}-\\d{2}-\\d{2}$", examples: ["2026-11-01"] });

export const SpendingFilter = Strict(
  {
    ...found,
    status,
    kind,
    period: Optional(Type.Enum(PERIODS, { description: "A time that moves with the calendar" })),
    from: Optional(Described(day, "The first day")),
    to: Optional(Described(day, "The last day")),
  },
  { description: "Stored as it was sent" },
);
export type SpendingFilter = Static<typeof SpendingFilter>;

export const SavedFilterInput = Strict({
  name: Type.String({ minLength: 1, maxLength: 60, pattern: "^[^\\u0000-\\u001f\\u007f]*\\S.*$" }),
  filter: SpendingFilter,
});

export const SavedFilter = Type.Object({
  id: Id,
  name: Type.String(),
  filter: SpendingFilter,
  createdAt: Timestamp,
});
export type SavedFilter = Static<typeof SavedFilter>;
export const SavedFilters = Type.Object({
  items: Type.Array(SavedFilter, { description: "All of them, by name; at most 50" }),
});

const exported = {
  from: Described(day, "The first day (UTC)"),
  to: Described(day, "The day after the last one (UTC)"),
  agentId: found.agentId,
};
export const ExportQuery = Strict(exported);
export type ExportQuery = Static<typeof ExportQuery>;
