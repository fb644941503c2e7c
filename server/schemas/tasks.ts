/** Wire types of tasks: budgets that an agent opens itself, out of its own limits. */
import { Type, type Static } from "typebox";
import {
  Amount,
  Described,
  Nullable,
  OneOf,
  Page,
  pageQuery,
  Strict,
  Timestamp,
} from "./common.ts";

/** Safe in a URL, a file's name and a spreadsheet. */
export const TASK_ID = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$";
export const TaskId = Type.String({
  pattern: TASK_ID,
  description:
    "A task that the agent opened: 1 to 64 letters, digits, `_`, `.` and `-`, and first a letter or a digit",
  examples: ["report-2026-11"],
});
export const taskOfCall = {
  task: Type.Optional(Described(TaskId, "Count the payment in this task, which you opened before")),
};

export const NewTaskBody = Strict(
  {
    id: Type.Optional(
      Described(
        TaskId,
        "Your own id: opening a task again with the same terms changes nothing. Without it the task gets a new id",
      ),
    ),
    limit: Described(Amount, "The most that the payments of this task cost together, in USDC"),
    expiresAt: Type.Optional(
      Nullable(Timestamp, "From then on it pays nothing; null: until it is closed"),
    ),
    name: Type.Optional(
      Nullable(
        Type.String({ minLength: 1, maxLength: 60, pattern: "^[^\\u0000-\\u001f\\u007f]*\\S.*$" }),
      ),
    ),
  },
  { examples: [{ id: "report-2026-11", limit: "0.50" }] },
);
export type NewTaskBody = Static<typeof NewTaskBody>;

export const Task = Type.Object({
  id: TaskId,
  name: Nullable(Type.String()),
  state: OneOf(["open", "ended", "closed"]),
  limit: Amount,
  spent: Described(
    Amount,
    "Settled. Through a payment channel: what was signed, as with every limit",
  ),
  reserved: Described(Amount, "Counted, and not final: it comes back if the payment fails"),
  left: Described(Amount, "What the task may still cost. The agent's own limits may allow less"),
  payments: Type.Integer({ description: "Settled or reserved" }),
  expiresAt: Nullable(Timestamp),
  closedAt: Nullable(Timestamp),
  createdAt: Timestamp,
});
export type Task = Static<typeof Task>;
export const TaskPage = Page(Task);

export const TaskQuery = Strict({
  ...pageQuery,
  state: Type.Optional(Type.Enum(["open", "all"], { description: "Default: all" })),
});
export const TaskParams = Strict({ id: TaskId });
