// Goal: the agents of a budget never spend more than it together, not by one unit, and can use all of it: whatever is paid, fails,
// moves or is lowered at the same time, in any number of processes.
import { fork } from "node:child_process";
import { once } from "node:events";
import * as fc from "fast-check";
import t, { type Test } from "tap";
import { newId } from "../../server/core/ids.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { reserve, voidUnsigned } from "../../server/plugins/guardrails/store.ts";
import { childScript } from "../helpers/child-script.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { runsOf } from "../helpers/tier.ts";
import {
  passTime,
  reserveRequest,
  seedAgent,
  seedBudget,
  setBudgets,
  type SeededAgent,
} from "./guardrails-sql.helper.ts";

const database = await testDatabase(t);
const pool = createPool(database.url, { maxConnections: 12 });
t.teardown(() => pool.end());
// Small sums, so that few payments fill several levels.
await pool.query(
  "CREATE OR REPLACE FUNCTION purser_sum_size() RETURNS INTEGER LANGUAGE sql IMMUTABLE AS 'SELECT 3'",
);

const PLENTY = 10n ** 12n;
const pay = async (agent: SeededAgent, amountAtomic: bigint, more: object = {}) => {
  const paymentId = newId("pay");
  const request = { ...reserveRequest(agent, amountAtomic, more), paymentId, dryRun: false };
  return { ...(await reserve(pool, request)), paymentId };
};

/** The used amounts by budget and hours, as the database says. */
async function usedOf(budgetIds: readonly string[]): Promise<Record<string, bigint>> {
  const { rows } = await pool.query<{ id: string; hours: number; used: bigint }>(
    "SELECT budget_id AS id, hours, used FROM purser_budget_limits($1, clock_timestamp())",
    [budgetIds],
  );
  return Object.fromEntries(rows.map(({ id, hours, used }) => [`${id} ${hours}`, used]));
}

async function team(size: number, limits: Parameters<typeof seedBudget>[2]) {
  const agents: SeededAgent[] = [];
  for (let index = 0; index < size; index += 1)
    agents.push(await seedAgent(pool, { dailyLimit: PLENTY }));
  const budget = await seedBudget(pool, agents[0]?.ownerId ?? "", limits);
  for (const { agentId } of agents) await setBudgets(pool, agentId, [budget]);
  return { agents, budget };
}

t.test("four processes and ten agents use all of a budget, and not one unit more", async (t) => {
  const { agents, budget } = await team(10, { daily: 20n, monthly: 35n });
  const processes = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const child = fork(childScript("test/spending/budget-payer.child.ts"));
      t.teardown(() => child.kill());
      await once(child, "message");
      return child;
    }),
  );
  const outcomes = await Promise.all(
    processes.map(async (child) => {
      const done = once(child, "message") as Promise<[string[]]>;
      child.send({ url: database.url, agents, payments: 13 });
      return (await done)[0];
    }),
  );
  const count = (outcome: string): number =>
    outcomes.flat().filter((one) => one === outcome).length;
  t.equal(count("reserved"), 20);
  t.equal(count("budget_exceeded"), 32, outcomes.flat().join(" "));
  t.same(await usedOf([budget]), { [`${budget} 24`]: 20n, [`${budget} 720`]: 20n });
});

interface Entry {
  paymentId: string;
  agent: number;
  budgets: number[];
  /** In hours of the model. */
  at: number;
  amount: bigint;
  isCounted: boolean;
}

const WINDOWS = ["daily", "weekly", "monthly"] as const;
const HOURS = { daily: 24, weekly: 168, monthly: 720 };
type Limits = Record<(typeof WINDOWS)[number], bigint | null>;

const AGENTS = 3;
const BUDGETS = 3;
const some = fc.nat({ max: AGENTS - 1 });
const amount = fc.bigInt({ min: 1n, max: 4n });
const limit = fc.option(fc.bigInt({ min: 0n, max: 12n }));
const operation = fc.oneof(
  { weight: 6, arbitrary: fc.record({ type: fc.constant("pay" as const), agent: some, amount }) },
  {
    weight: 2,
    arbitrary: fc.record({ type: fc.constant("maximum" as const), agent: some, amount }),
  },
  { weight: 2, arbitrary: fc.record({ type: fc.constant("void" as const), which: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant("again" as const), which: fc.nat() }) },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constant("move" as const),
      agent: some,
      budgets: fc.subarray([0, 1, 2]),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constant("limit" as const),
      budget: some,
      limits: fc.record({ daily: limit, weekly: limit, monthly: fc.bigInt({ min: 0n, max: 20n }) }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      type: fc.constant("wait" as const),
      hours: fc.constantFrom(1, 5, 12, 24, 100, 168, 700),
    }),
  },
);

type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

/** Each outcome once, whatever the seed. */
const EVERYTHING: Operation[] = [
  { type: "pay", agent: 0, amount: 4n },
  { type: "maximum", agent: 1, amount: 4n },
  { type: "pay", agent: 2, amount: 1n },
  { type: "void", which: 0 },
  { type: "again", which: 1 },
  { type: "pay", agent: 2, amount: 3n },
  { type: "again", which: 0 },
  { type: "wait", hours: 24 },
  { type: "void", which: 1 },
  { type: "limit", budget: 0, limits: { daily: 0n, weekly: null, monthly: 20n } },
  { type: "pay", agent: 0, amount: 1n },
  { type: "move", agent: 0, budgets: [1, 2] },
  { type: "pay", agent: 0, amount: 1n },
];

/** What the database should say, computed from a plain list. */
class Model {
  now = 0;
  readonly entries: Entry[] = [];
  readonly members: number[][] = Array.from({ length: AGENTS }, () => [0, 1]);
  readonly limits: Limits[] = Array.from({ length: BUDGETS }, () => ({
    daily: 8n,
    weekly: 12n,
    monthly: 18n,
  }));

  counted(budget: number): Entry[] {
    return this.entries.filter(({ isCounted, budgets }) => isCounted && budgets.includes(budget));
  }

  /** What counts in a window after waiting so long. */
  used(budget: number, hours: number, wait = 0): bigint {
    return this.counted(budget)
      .filter(({ at }) => this.now + wait - at < hours)
      .reduce((sum, { amount }) => sum + amount, 0n);
  }

  windows(budget: number): { hours: number; most: bigint }[] {
    return WINDOWS.flatMap((name) => {
      const most = this.limits[budget]?.[name];
      return most == null ? [] : [{ hours: HOURS[name], most }];
    });
  }

  /** The wait in hours until every budget of the agent has room; undefined: it never has. */
  waitFor(agent: number, amount: bigint): number | undefined {
    const all = (this.members[agent] ?? []).flatMap((budget) =>
      this.windows(budget).map((window) => ({ budget, ...window })),
    );
    if (all.some(({ most }) => amount > most)) return undefined;
    const fits = (wait: number): boolean =>
      all.every(({ budget, hours, most }) => this.used(budget, hours, wait) + amount <= most);
    const waits = this.entries.flatMap(({ at }) => all.map(({ hours }) => at + hours - this.now));
    return [0, ...waits].filter((wait) => wait >= 0 && fits(wait)).toSorted((a, b) => a - b)[0];
  }
}

t.test("whatever happens, each window is what a plain list says", async (t) => {
  const seen = new Set<string>();
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { minLength: 20, maxLength: 45 }), (operations) =>
      compare(operations, seen),
    ),
    { numRuns: runsOf(6), examples: [[EVERYTHING]] },
  );
  for (const one of ["reserved", "budget_exceeded", "voided", "again", "waited", "never"])
    t.ok(seen.has(one), `${one} happened`);
});

async function compare(operations: readonly Operation[], seen: Set<string>): Promise<void> {
  const model = new Model();
  const agents: SeededAgent[] = [];
  while (agents.length < AGENTS) agents.push(await seedAgent(pool, { dailyLimit: PLENTY }));
  const agentOf = (index: number): SeededAgent => agents[index] as SeededAgent;
  const ids: string[] = [];
  while (ids.length < BUDGETS)
    ids.push(await seedBudget(pool, agentOf(0).ownerId, { daily: 8n, weekly: 12n, monthly: 18n }));
  ids.sort();
  const join = (agent: number) =>
    setBudgets(
      pool,
      agentOf(agent).agentId,
      (model.members[agent] ?? []).map((budget) => ids[budget] as string),
    );
  for (const agent of agents.keys()) await join(agent);

  for (const step of operations) {
    switch (step.type) {
      case "pay":
      case "maximum": {
        const { agent } = step;
        const wait = model.waitFor(agent, step.amount);
        const more = step.type === "maximum" ? { isMaximum: true } : {};
        const row = await pay(agentOf(agent), step.amount, more);
        const outcome = row.code ?? row.outcome;
        seen.add(outcome);
        const expected = wait === 0 ? "reserved" : "budget_exceeded";
        if (outcome !== expected) throw new Error(`${outcome}, not ${expected}`);
        if (wait === 0) {
          const budgets = model.members[agent] ?? [];
          const entry = { paymentId: row.paymentId, agent, budgets, at: model.now };
          model.entries.push({ ...entry, amount: step.amount, isCounted: true });
          break;
        }
        seen.add(wait === undefined ? "never" : "waited");
        expectWait(row.availableAt, wait, row.decidedAtMicros);
        break;
      }
      case "void":
      case "again": {
        const entry = model.entries[step.which % Math.max(model.entries.length, 1)];
        if (entry) await end(entry, step.type, agentOf(entry.agent), seen);
        break;
      }
      case "move":
        model.members[step.agent] = step.budgets;
        await join(step.agent);
        break;
      case "limit":
        model.limits[step.budget] = step.limits;
        await pool.query(
          "UPDATE budgets SET daily_limit = $2, weekly_limit = $3, monthly_limit = $4 WHERE id = $1",
          [ids[step.budget], ...WINDOWS.map((name) => step.limits[name]?.toString() ?? null)],
        );
        break;
      case "wait":
        model.now += step.hours;
        for (const id of [...ids, ...agents.map(({ agentId }) => agentId)])
          await passTime(pool, id, `${step.hours} hours`);
    }
    const expected = Object.fromEntries(
      ids.flatMap((id, budget) =>
        model.windows(budget).map(({ hours }) => [`${id} ${hours}`, model.used(budget, hours)]),
      ),
    );
    const found = await usedOf(ids);
    for (const [window, used] of Object.entries(expected))
      if (found[window] !== used)
        throw new Error(`after ${step.type}: ${window} is ${found[window]}, not ${used}`);
  }
}

/** A payment fails; or it is known to have been charged less than its maximum, or to count after all. */
async function end(
  entry: Entry,
  type: "void" | "again",
  { agentId }: SeededAgent,
  seen: Set<string>,
): Promise<void> {
  const { paymentId } = entry;
  if (type === "void" && entry.isCounted) {
    entry.isCounted = !(await voidUnsigned(pool, { agentId, paymentId, code: "x", detail: "x" }));
    seen.add("voided");
    return;
  }
  const less = entry.amount > 1n ? entry.amount - 1n : entry.amount;
  const { rows } = await pool.query<{ maximum: bigint | null }>(
    "SELECT maximum FROM payments WHERE agent_id = $1 AND id = $2",
    [agentId, paymentId],
  );
  if (rows[0]?.maximum != null) {
    await pool.query("SELECT purser_payment_amount($1, $2, $3)", [
      agentId,
      paymentId,
      String(less),
    ]);
    entry.amount = less;
  }
  if (entry.isCounted) return;
  seen.add("again");
  await pool.query(
    "UPDATE payments SET status = 'reserved' WHERE agent_id = $1 AND id = $2 AND status = 'voided'",
    [agentId, paymentId],
  );
  await pool.query("SELECT purser_count_payment($1, $2, 1)", [agentId, paymentId]);
  entry.isCounted = true;
}

function expectWait(at: Date | null, wait: number | undefined, decidedAtMicros: bigint): void {
  const hours = at && (at.getTime() - Number(decidedAtMicros / 1000n)) / 3_600_000;
  const isSame = wait === undefined ? hours === null : hours !== null && wait - hours < 0.1;
  if (!isSame || (hours ?? 0) > (wait ?? 0) + 0.1)
    throw new Error(`available in ${hours} hours, not ${wait}`);
}

t.test("a limit is lowered, and agents move, while payments are decided", async (t) => {
  const { agents, budget } = await team(6, { daily: 1_000n });
  const other = await seedBudget(pool, agents[0]?.ownerId ?? "", { daily: 7n });
  const outcomes: string[] = [];
  const spend = async (agent: SeededAgent, times: number): Promise<void> => {
    for (let one = 0; one < times; one += 1) {
      const { code, outcome } = await pay(agent, 1n);
      outcomes.push(code ?? outcome);
    }
  };
  const lower = pool.query("UPDATE budgets SET daily_limit = 5 WHERE id = $1", [budget]);
  const move = (async () => {
    for (let turn = 0; turn < 6; turn += 1)
      for (const { agentId } of agents.slice(0, 3))
        await setBudgets(pool, agentId, turn % 2 === 0 ? [other] : [budget, other]);
  })();
  await Promise.all([...agents.map((agent) => spend(agent, 8)), lower, move]);
  t.ok(outcomes.every((one) => one === "reserved" || one === "budget_exceeded"));
  const { rows } = await pool.query<{ id: string; used: bigint }>(
    "SELECT budget_id AS id, sum(amount)::bigint AS used FROM budget_payments WHERE budget_id = ANY($1) AND counted GROUP BY 1",
    [[budget, other]],
  );
  const counted = Object.fromEntries(rows.map(({ id, used }) => [id, used]));
  const used = await usedOf([budget, other]);
  t.equal(used[`${budget} 24`], counted[budget] ?? 0n, "the window is the sum of its payments");
  t.ok((counted[other] ?? 0n) <= 7n, "never above the other");
  const before = counted[budget] ?? 0n;
  const last = agents.at(-1) as SeededAgent;
  const { outcome } = await pay(last, 1n);
  t.equal(outcome, before < 5n ? "reserved" : "blocked", "nothing new above the lowered limit");
});

t.test("outcomes of several agents are written while all of them pay", async (t) => {
  await neverStuck(t, 5);
});

/** One transaction gives back amounts of several agents, and so holds their budgets, while the agents reserve. */
async function neverStuck(t: Test, rounds: number): Promise<void> {
  const { agents, budget } = await team(4, { daily: 100_000n });
  const second = await seedBudget(pool, agents[0]?.ownerId ?? "", { weekly: 100_000n });
  for (const { agentId } of agents) await setBudgets(pool, agentId, [budget, second]);
  for (let round = 0; round < rounds; round += 1) {
    const made = await Promise.all(agents.map((agent) => pay(agent, 3n)));
    const outcomes = await Promise.all([
      giveBack(
        agents,
        made.map(({ paymentId }) => paymentId),
      ),
      ...agents.map((agent) => pay(agent, 1n).then(({ outcome }) => outcome)),
    ]);
    t.same(new Set(outcomes), new Set(["written", "reserved"]));
  }
  const used = await usedOf([budget, second]);
  t.same(Object.values(used), [BigInt(4 * rounds), BigInt(4 * rounds)]);
}

/** As purser_settlements_finalize does it, without settlements. */
async function giveBack(agents: readonly SeededAgent[], paymentIds: string[]): Promise<string> {
  const agentIds = agents.map(({ agentId }) => agentId);
  await pool.query(
    `SELECT CASE WHEN l IS NOT NULL THEN purser_payment_voided(p.agent_id, p.id, 'x', 'x') END
       FROM (SELECT purser_budgets_lock($1, $2)::text AS l) l, unnest($1::text[], $2::text[]) AS p (agent_id, id)`,
    [agentIds, paymentIds],
  );
  return "written";
}

t.test("a refusal says what the others used, and when it fits", async (t) => {
  const { agents, budget } = await team(2, { daily: 10n, weekly: 30n });
  const [own, other] = agents as [SeededAgent, SeededAgent];
  await pay(own, 3n);
  await passTime(pool, budget, "1 hour");
  await pay(other, 4n);
  const refused = await pay(own, 4n);
  t.equal(refused.code, "budget_exceeded");
  t.match(refused.snapshot, {
    budgetId: budget,
    budgetHours: 24,
    budgetLimit: 10n,
    budgetUsed: 7n,
    budgetOthers: 4n,
  });
  const hours = ((refused.availableAt?.getTime() ?? 0) - Date.now()) / 3_600_000;
  t.ok(Math.abs(hours - 23) < 0.1, `in ${hours} hours`);
});
