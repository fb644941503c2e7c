// Goal: the payments of a task never cost more than its ceiling together, not by one unit, and can use all of it: whatever is paid,
// fails, is charged less or counts again, and when the task is closed or ends, in any number of processes.
import { fork } from "node:child_process";
import { once } from "node:events";
import * as fc from "fast-check";
import t from "tap";
import { newId } from "../../server/core/ids.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { reserve, voidUnsigned } from "../../server/plugins/guardrails/store.ts";
import { closeTask, findTask } from "../../server/plugins/tasks/store.ts";
import { MOST_OPEN_TASKS, openTask } from "../../server/plugins/tasks/tasks.ts";
import { childScript } from "../helpers/child-script.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { runsOf } from "../helpers/tier.ts";
import { reserveRequest, seedAgent, seedTask, type SeededAgent } from "./guardrails-sql.helper.ts";

const database = await testDatabase(t);
const pool = createPool(database.url, { maxConnections: 12 });
const prisma = createPrisma(pool);
t.teardown(async () => {
  await prisma.$disconnect();
  await pool.end();
});

const PLENTY = 10n ** 12n;
const pay = async (agent: SeededAgent, amountAtomic: bigint, more: object = {}) => {
  const paymentId = newId("pay");
  const request = { ...reserveRequest(agent, amountAtomic, more), paymentId, dryRun: false };
  return { ...(await reserve(pool, request)), paymentId };
};
const fresh = (dailyLimit = PLENTY) => seedAgent(pool, { dailyLimit });

async function usedOf({ agentId }: SeededAgent, id: string) {
  const task = await findTask(prisma, agentId, id);
  return task && { used: task.usedAtomic, reserved: task.reservedAtomic, payments: task.payments };
}

t.test("four processes use all of a task, and not one unit more", async (t) => {
  const agent = await fresh();
  await seedTask(pool, agent.agentId, "job", 20n);
  const outcomes = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const child = fork(childScript("test/spending/budget-payer.child.ts"));
      t.teardown(() => child.kill());
      await once(child, "message");
      const done = once(child, "message") as Promise<[string[]]>;
      child.send({ url: database.url, agents: [agent], payments: 8, task: "job" });
      return (await done)[0];
    }),
  );
  const count = (outcome: string): number =>
    outcomes.flat().filter((one) => one === outcome).length;
  t.equal(count("reserved"), 20);
  t.equal(count("task_ceiling_exceeded"), 12, outcomes.flat().join(" "));
  t.same(await usedOf(agent, "job"), { used: 20n, reserved: 20n, payments: 20 });
});

t.test("a task's name shows every character, and opens the same task again", async (t) => {
  const { agentId } = await fresh();
  const open = () =>
    openTask(prisma, agentId, { id: "named", limit: "1", name: " report\u202e \u200bfor Q4 " });
  t.match(await open(), { isNew: true, task: { name: "report for Q4" } });
  t.match(await open(), { isNew: false, task: { name: "report for Q4" } });
});

const TASKS = ["a", "b"] as const;
const task = fc.constantFrom(...TASKS);
const amount = fc.bigInt({ min: 1n, max: 4n });
const which = fc.nat();
const operation = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      type: fc.constantFrom("pay", "pay", "maximum"),
      task: fc.constantFrom("a", "a", "b", "none", "missing"),
      amount,
    }),
  },
  { weight: 3, arbitrary: fc.record({ type: fc.constantFrom("void", "again", "less"), which }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constantFrom("close", "end"), task }) },
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

/** Each outcome once, whatever the seed. */
const EVERYTHING: Operation[] = [
  { type: "maximum", task: "a", amount: 4n },
  { type: "pay", task: "a", amount: 4n },
  { type: "pay", task: "a", amount: 3n },
  { type: "pay", task: "missing", amount: 1n },
  { type: "less", which: 0 },
  { type: "pay", task: "a", amount: 3n },
  { type: "void", which: 1 },
  { type: "pay", task: "a", amount: 4n },
  { type: "again", which: 1 },
  { type: "pay", task: "a", amount: 1n },
  { type: "close", task: "a" },
  { type: "void", which: 0 },
  { type: "pay", task: "a", amount: 1n },
  { type: "end", task: "b" },
  { type: "pay", task: "b", amount: 1n },
  { type: "pay", task: "none", amount: 4n },
];

interface Entry {
  paymentId: string;
  task: string;
  amount: bigint;
  isMaximum: boolean;
  isCounted: boolean;
}

const CEILING = 10n;

/** What the database should say, computed from a plain list. */
class Model {
  readonly entries: Entry[] = [];
  readonly ended = new Set<string>();

  used(task: string): bigint {
    return this.entries
      .filter((one) => one.task === task && one.isCounted)
      .reduce((sum, one) => sum + one.amount, 0n);
  }

  outcome(task: string, amount: bigint): string {
    if (task === "none") return "reserved";
    if (task === "missing") return "task_not_found";
    if (this.ended.has(task)) return "task_ended";
    return this.used(task) + amount > CEILING ? "task_ceiling_exceeded" : "reserved";
  }
}

t.test("whatever happens, each task has what a plain list says", async (t) => {
  const seen = new Set<string>();
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { minLength: 15, maxLength: 40 }), (operations) =>
      compare(operations, seen),
    ),
    { numRuns: runsOf(10), examples: [[EVERYTHING]] },
  );
  t.same([...seen].toSorted(), [
    "again",
    "less",
    "reserved",
    "task_ceiling_exceeded",
    "task_ended",
    "task_not_found",
    "void",
  ]);
});

async function compare(operations: readonly Operation[], seen: Set<string>): Promise<void> {
  const agent = await fresh();
  const { agentId } = agent;
  const model = new Model();
  for (const id of TASKS) await seedTask(pool, agentId, id, CEILING);
  for (const step of operations) {
    if ("which" in step) {
      const entry = model.entries[step.which % Math.max(model.entries.length, 1)];
      if (entry) await change(agentId, entry, step.type, seen);
    } else if ("amount" in step) {
      const isMaximum = step.type === "maximum";
      const row = await pay(agent, step.amount, {
        ...(isMaximum && { isMaximum }),
        ...(step.task !== "none" && { task: step.task }),
      });
      const outcome = row.code ?? row.outcome;
      const expected = model.outcome(step.task, step.amount);
      if (outcome !== expected) throw new Error(`${outcome}, not ${expected}`);
      seen.add(outcome);
      const entry = { paymentId: row.paymentId, task: step.task, amount: step.amount, isMaximum };
      if (outcome === "reserved") model.entries.push({ ...entry, isCounted: true });
    } else {
      model.ended.add(step.task);
      if (step.type === "close") await closeTask(prisma, agentId, step.task);
      else
        await pool.query("UPDATE tasks SET ends_at = now() WHERE agent_id = $1 AND id = $2", [
          agentId,
          step.task,
        ]);
    }
    const { rows } = await pool.query<{ id: string; used: bigint }>(
      "SELECT id, used FROM tasks WHERE agent_id = $1",
      [agentId],
    );
    for (const { id, used } of rows)
      if (used !== model.used(id))
        throw new Error(`after ${step.type}: ${id} has ${used}, not ${model.used(id)}`);
  }
}

/** A payment fails, is charged less than its maximum, or counts after all: the chain corrected an outcome. */
async function change(
  agentId: string,
  entry: Entry,
  type: string,
  seen: Set<string>,
): Promise<void> {
  const { paymentId } = entry;
  if (type === "void" && entry.isCounted) {
    entry.isCounted = !(await voidUnsigned(pool, { agentId, paymentId, code: "x", detail: "x" }));
    seen.add(type);
  } else if (type === "again" && !entry.isCounted) {
    await pool.query("UPDATE payments SET status = 'reserved' WHERE agent_id = $1 AND id = $2", [
      agentId,
      paymentId,
    ]);
    await pool.query("SELECT purser_count_payment($1, $2, 1)", [agentId, paymentId]);
    entry.isCounted = true;
    seen.add(type);
  } else if (type === "less" && entry.isMaximum && entry.amount > 1n) {
    entry.amount -= 1n;
    await pool.query("SELECT purser_payment_amount($1, $2, $3)", [
      agentId,
      paymentId,
      String(entry.amount),
    ]);
    seen.add(type);
  }
}

t.test("a payment that settles is spent, and no longer reserved", async (t) => {
  const agent = await fresh();
  await seedTask(pool, agent.agentId, "job", 10n);
  const { paymentId } = await pay(agent, 3n, { task: "job" });
  await pay(agent, 4n, { task: "job" });
  await pool.query(
    "SELECT purser_payments_settled(ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[1]::bigint[], ARRAY[now()])",
    [agent.agentId, paymentId, `0x${"1".repeat(64)}`],
  );
  t.same(await usedOf(agent, "job"), { used: 7n, reserved: 4n, payments: 2 });
  const refused = await pay(agent, 4n, { task: "job" });
  t.match(refused, {
    code: "task_ceiling_exceeded",
    availableAt: null,
    snapshot: { taskId: "job", taskCeiling: 10n, taskSpent: 3n, taskReserved: 4n },
  });
});

t.test("the agent's own limits stay, and are checked first", async (t) => {
  const agent = await fresh(5n);
  await seedTask(pool, agent.agentId, "job", 100n);
  t.equal((await pay(agent, 6n, { task: "job" })).code, "daily_limit_exceeded");
  t.equal((await pay(agent, 6n, { task: "missing" })).code, "daily_limit_exceeded");
  t.equal((await pay(agent, 5n, { task: "job" })).outcome, "reserved");
  t.equal((await pay(agent, 1n, { task: "job" })).code, "daily_limit_exceeded");
});

t.test("a task of another agent is not known", async (t) => {
  const [agent, other] = [await fresh(), await fresh()];
  await seedTask(pool, other.agentId, "job", 100n);
  t.equal((await pay(agent, 1n, { task: "job" })).code, "task_not_found");
  t.same(await usedOf(other, "job"), { used: 0n, reserved: 0n, payments: 0 });
});

t.test("nothing is reserved once a close was answered", async (t) => {
  const agent = await fresh();
  await seedTask(pool, agent.agentId, "job", 1_000n);
  let isClosed = false;
  const late: string[] = [];
  const spend = async (): Promise<void> => {
    // Some before the close, and two after it, however slow the close is.
    for (let afterClose = 0; afterClose < 2;) {
      const wasClosed = isClosed;
      if (wasClosed) afterClose += 1;
      const { code, outcome } = await pay(agent, 1n, { task: "job" });
      if (wasClosed) late.push(code ?? outcome);
    }
  };
  const close = async (): Promise<void> => {
    await closeTask(prisma, agent.agentId, "job");
    isClosed = true;
  };
  await Promise.all([spend(), spend(), spend(), close()]);
  t.same(new Set(late), new Set(["task_ended"]));
});

t.test("many processes open at most 1,000 tasks, and a closed one makes room", async (t) => {
  const { agentId } = await fresh();
  await pool.query(
    `INSERT INTO tasks (agent_id, id, ceiling) SELECT $1, 'many-' || n, 1 FROM generate_series(1, $2::int) n`,
    [agentId, MOST_OPEN_TASKS - 2],
  );
  const open = (id: string) =>
    openTask(prisma, agentId, { id, limit: "1" }).then(
      ({ isNew }) => String(isNew),
      (error: { code?: string }) => String(error.code),
    );
  const opened = await Promise.all(["x1", "x2", "x3", "x4"].map(open));
  t.same(opened.toSorted(), ["too_many_tasks", "too_many_tasks", "true", "true"]);
  t.equal(await open("many-1"), "task_exists", "it has another ceiling");
  await closeTask(prisma, agentId, "many-1");
  t.equal(await open("x5"), "true");
});

t.test("old tasks that never paid are deleted, and those that paid are kept", async (t) => {
  const agent = await fresh();
  const { agentId } = agent;
  for (const id of ["paid", "unused", "voided", "open", "recent"])
    await seedTask(pool, agentId, id, 10n);
  await pay(agent, 1n, { task: "paid" });
  const { paymentId } = await pay(agent, 1n, { task: "voided" });
  await voidUnsigned(pool, { agentId, paymentId, code: "x", detail: "x" });
  await pool.query(
    `UPDATE tasks SET closed_at = now() - CASE id WHEN 'recent' THEN interval '1 hour' ELSE interval '30 days' END
      WHERE agent_id = $1 AND id <> 'open'`,
    [agentId],
  );
  const days = { blockedDays: 30, bytesDays: 30, facilitatedDays: 30, statisticsDays: 30 };
  t.equal((await deleteOldRows(pool, days))["unusedTasks"], 1);
  const { rows } = await pool.query<{ id: string }>(
    "SELECT id FROM tasks WHERE agent_id = $1 ORDER BY id",
    [agentId],
  );
  t.same(
    rows.map(({ id }) => id),
    ["open", "paid", "recent", "voided"],
  );
});
