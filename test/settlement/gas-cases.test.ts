// Goal: each gas account is charged and released by exactly the right amount, and a budget refuses at its exact last unit.
import t from "tap";
import {
  account,
  AGENT,
  CHAIN,
  h,
  OWNER,
  rowChanges,
  settlementRow,
  type ChangedRows,
  type Row,
} from "./changed-rows.ts";

const inRows = await rowChanges(t);
/** A unit of a budget of this size comes back in one second. */
const DAY = 86_400;
type Work = (rows: ChangedRows) => Promise<unknown>;

/** Budgets of a day for these names, and accounts: seconds until each is full again, and what is reserved. */
const budgets =
  (
    perDay: Record<string, number>,
    accounts: Record<string, [fullInSeconds: number, held: number]> = {},
  ): Work =>
  async (rows) => {
    // Other chains have their own, and so has another owner. They are first in the tables.
    const empty = { full_at: new Date(rows.nowMs + 10 * DAY * 1_000).toISOString(), held: 99 };
    for (const account of ["owner:o", "agents", `owner:${OWNER}`, "strangers"])
      await rows.insert("gas_accounts", { chain_id: 1, account, ...empty });
    await rows.insert("gas_accounts", { chain_id: CHAIN, account: "owner:another", ...empty });
    for (const [name, per_day] of Object.entries(perDay))
      await rows.insert("gas_limits", { chain_id: CHAIN, name, per_day });
    for (const [account, [seconds, held]] of Object.entries(accounts))
      await rows.insert("gas_accounts", {
        chain_id: CHAIN,
        account,
        full_at: new Date(rows.nowMs + seconds * 1_000).toISOString(),
        held,
        used: 2,
        used_on: "2026-01-01",
      });
    await rows.insert("gas_limits", { chain_id: 1, name: "owner", per_day: 1 });
    await rows.insert("gas_limits", { chain_id: 1, name: "agents", per_day: 1 });
  };

async function check(what: string, prepare: Work, call: Work, expected: string[]) {
  await t.test(what, async (t) => {
    await inRows(async (rows) => {
      await prepare(rows);
      let result: unknown;
      const lines = await rows.changesOf(async () => {
        result = await call(rows);
      });
      t.same([...(result === undefined ? [] : [rows.shown(result)]), ...lines], expected);
    });
  });
}

const valueOf =
  (text: string, values: unknown[] = []): Work =>
  async (rows) => {
    const { rows: found } = await rows.query<{ result: unknown }>(
      `SELECT to_jsonb(${text}) AS result`,
      values,
    );
    return { result: found[0]?.result };
  };

const take = (cost: number, dryRun = false): Work =>
  valueOf("purser_gas_take($1, 'owner:o', $2, $3)", [CHAIN, cost, dryRun]);
const owner = { owner: DAY };

await check("the first charge of an account", budgets(owner), take(10), [
  "result null",
  "gas_accounts owner:o: full_at +10 s, held 10, used 0, used_on today",
]);
await check("a full account", budgets(owner, { "owner:o": [-500, 5] }), take(10), [
  "result null",
  "gas_accounts owner:o: full_at +10 s, held 15, used_on today",
]);
await check("exactly what is left", budgets(owner, { "owner:o": [DAY - 10, 5] }), take(10), [
  "result null",
  "gas_accounts owner:o: full_at +86400 s, held 15, used_on today",
]);
await check("one unit more", budgets(owner, { "owner:o": [DAY - 10, 5] }), take(11), [
  "result +1 s",
]);
await check("more than a day's budget", budgets(owner), take(DAY + 1), ["result infinity"]);
await check("exactly a day's budget", budgets(owner), take(DAY), [
  "result null",
  "gas_accounts owner:o: full_at +86400 s, held 86400, used 0, used_on today",
]);
await check("no budget is set: it is counted", budgets({}), take(10 * DAY), [
  "result null",
  "gas_accounts owner:o: full_at now, held 864000, used 0, used_on today",
]);
await check("a budget of zero", budgets({ owner: 0 }), take(2), ["result infinity"]);
await check("asked only: it fits", budgets(owner, { "owner:o": [DAY - 10, 5] }), take(10, true), [
  "result null",
]);
await check(
  "asked only: one unit more",
  budgets(owner, { "owner:o": [DAY - 10, 5] }),
  take(11, true),
  ["result +1 s"],
);
await check("asked only: an account that was never charged", budgets(owner), take(10, true), [
  "result null",
]);
await check("asked only: more than a day's budget", budgets(owner), take(DAY + 1, true), [
  "result infinity",
]);

const move = (accounts: string[], held: number[], used: number[]): Work =>
  valueOf("purser_gas_move($1, $2, $3, $4)::text", [CHAIN, accounts, held, used]);
await check(
  "moved: reserved, used, and the same account twice",
  budgets({ ...owner, agents: DAY }, { "owner:o": [100, 5], agents: [-100, 5] }),
  move(["owner:o", "agents", "owner:o", "owner:new", "else"], [10, -3, 1, 4, 2], [0, 1, 7, 0, 1]),
  [
    "result null",
    "gas_accounts agents: full_at -2 s, held 2, used 3, used_on today",
    "gas_accounts else: full_at now, held 2, used 1, used_on today",
    "gas_accounts owner:new: full_at +4 s, held 4, used 0, used_on today",
    "gas_accounts owner:o: full_at +118 s, held 16, used 9, used_on today",
  ],
);
await check(
  "moved beyond any budget, and back: at most ten years",
  budgets({ owner: 1, agents: 1 }),
  move(["owner:o", "agents"], [9_999, -9_999], [0, 0]),
  [
    "result null",
    "gas_accounts agents: full_at another day, held -9999, used 0, used_on today",
    "gas_accounts owner:o: full_at another day, held 9999, used 0, used_on today",
  ],
);
t.test("the part of a day that a cost takes", async (t) => {
  const days = async (cost: number, perDay: number | null) =>
    inRows(async (rows) => {
      const { rows: found } = await rows.query<{ days: number }>(
        "SELECT extract(epoch FROM purser_gas_refill($1, $2))::float8 / 86400 AS days",
        [cost, perDay],
      );
      return found[0]?.days;
    });
  t.equal(await days(1, 4), 0.25);
  t.equal(await days(-1, 4), -0.25);
  t.equal(await days(9_999, 1), 3_650);
  t.equal(await days(-9_999, 1), -3_650);
  t.equal(await days(3, 0), 3, "a budget of zero counts as one unit");
  t.equal(await days(3, null), 0, "no budget");
});

// An agent's payment, or an owner's withdrawal, is decided.

const reserve = ({ hold = 10, amount = 100, floor = 50, dryRun = false } = {}): Work =>
  valueOf("purser_gas_reserve($1, 'agents', 'owner:o', $2, $3, $4, $5)", [
    CHAIN,
    hold,
    amount,
    floor,
    dryRun,
  ]);
const both = { owner: DAY, agents: 2 * DAY };
await check(
  "a payment that fits: the owner is charged, the share of all only asked",
  budgets(both),
  reserve(),
  [
    "result (floor 50, gasHold 10)",
    "gas_accounts owner:o: full_at +10 s, held 10, used 0, used_on today",
  ],
);
await check("asked only", budgets(both), reserve({ dryRun: true }), [
  "result (floor 50, gasHold 10)",
]);
await check("exactly the floor", budgets(both), reserve({ amount: 50 }), [
  "result (floor 50, gasHold 10)",
  "gas_accounts owner:o: full_at +10 s, held 10, used 0, used_on today",
]);
await check("below the floor", budgets(both), reserve({ amount: 49 }), [
  "result (code amount_below_floor, floor 50)",
]);
await check("the owner has too little", budgets(both, { "owner:o": [DAY - 4, 30] }), reserve(), [
  "result (code gas_budget_exhausted, floor 50, gasAvailableAt +6 s, gasHeld 30, gasHold 10, gasLeft 4, gasLimit 86400, gasShort owner)",
]);
await check(
  "all agents have too little: the owner is not charged",
  budgets(both, { agents: [DAY - 2, 30], "owner:o": [0, 1] }),
  reserve(),
  [
    "result (code gas_budget_exhausted, floor 50, gasAvailableAt +3 s, gasHeld 30, gasHold 10, gasLeft 4, gasLimit 172800, gasShort agents)",
  ],
);
await check("the owner is in debt", budgets(both, { "owner:o": [DAY + 100, 30] }), reserve(), [
  "result (code gas_budget_exhausted, floor 50, gasAvailableAt +110 s, gasHeld 30, gasHold 10, gasLeft 0, gasLimit 86400, gasShort owner)",
]);
await check("never enough", budgets(both), reserve({ hold: DAY + 1 }), [
  "result (code gas_budget_exhausted, floor 50, gasAvailableAt null, gasHeld 0, gasHold 86401, gasLeft 86400, gasLimit 86400, gasShort owner)",
]);
await check(
  "never enough, and the account was full long ago",
  budgets(both, { "owner:o": [-100, 30] }),
  reserve({ hold: DAY + 1 }),
  [
    "result (code gas_budget_exhausted, floor 50, gasAvailableAt null, gasHeld 30, gasHold 86401, gasLeft 86400, gasLimit 86400, gasShort owner)",
  ],
);

// Settlements are accepted.

const ALLOWANCE = { scheme: "allowance", count: "0" };
type Wanted = [id: string, hold: number, accounts: string[], row?: Row];
const accept =
  (...wanted: Wanted[]): Work =>
  async (rows) => {
    const columns = { agent_id: null, kind: "facilitated", terms: null };
    const list = wanted.map(([id, gas_hold, gas_accounts, row]) =>
      settlementRow(id, {
        ...columns,
        from_address: h(id).slice(0, 42),
        gas_hold,
        gas_accounts,
        ...row,
      }),
    );
    try {
      await rows.query("SAVEPOINT before");
      await rows.insert("settlements", ...(list as [Row]));
      await rows.query("DELETE FROM settlements");
      return undefined;
    } catch (error) {
      await rows.query("ROLLBACK TO before");
      const { code, detail } = error as { code: string; detail: string };
      return code === "PU005"
        ? { refused: JSON.parse(detail) as object }
        : { error: String(error) };
    }
  };
const third = { strangers: DAY, payer: DAY / 2 };
await check("nothing to reserve", budgets(third), accept(["a", 0, ["strangers"]]), []);
await check(
  "two payments of third parties",
  budgets(third, { "payer:1": [100, 5] }),
  accept(["a", 7, ["strangers", "payer:1"]], ["b", 3, ["strangers", "payer:2"]]),
  [
    "gas_accounts payer:1: full_at +114 s, held 12, used_on today",
    "gas_accounts payer:2: full_at +6 s, held 3, used 0, used_on today",
    "gas_accounts strangers: full_at +10 s, held 10, used 0, used_on today",
  ],
);
await check(
  "exactly what is left",
  budgets(third, { strangers: [DAY - 10, 5] }),
  accept(["a", 7, ["strangers"]], ["b", 3, ["strangers"]]),
  ["gas_accounts strangers: full_at +86400 s, held 15, used_on today"],
);
await check(
  "the second one does not fit, and when it will",
  budgets(third, { strangers: [DAY - 10, 5] }),
  accept(["a", 7, ["strangers", "payer:1"]], ["b", 4, ["strangers"]]),
  ["refused ([accounts ([strangers]), id b, retryMs 1000])"],
);
await check(
  "a smaller one after it fits",
  budgets(third, { strangers: [DAY - 10, 5] }),
  accept(["a", 7, ["strangers"]], ["b", 4, ["strangers"]], ["c", 3, ["strangers"]]),
  ["refused ([accounts ([strangers]), id b, retryMs 1000])"],
);
await check(
  "one payer has too little, others of the same group fit",
  budgets(third, { "payer:1": [DAY - 6, 5] }),
  accept(
    ["a", 4, ["strangers", "payer:1"]],
    ["b", 4, ["strangers", "payer:2"]],
    ["c", 2, ["strangers", "payer:1"]],
  ),
  ["refused ([accounts ([payer:1]), id a, retryMs 2000])"],
);
await check(
  "short of both: the longer wait",
  budgets(third, { "payer:1": [DAY - 2, 5], strangers: [DAY - 1, 5] }),
  accept(["a", 4, ["strangers", "payer:1"]]),
  ["refused ([accounts ([strangers, payer:1]), id a, retryMs 6000])"],
);
await check("never enough", budgets(third), accept(["a", DAY + 1, ["strangers"]]), [
  "refused ([accounts ([strangers]), id a, retryMs null])",
]);
await check("exactly a day's budget", budgets(third), accept(["a", DAY, ["strangers"]]), [
  "gas_accounts strangers: full_at +86400 s, held 86400, used 0, used_on today",
]);
await check(
  "exactly a day's budget, when the account is full again",
  budgets(third, { strangers: [5, 5] }),
  accept(["a", DAY, ["strangers"]]),
  ["refused ([accounts ([strangers]), id a, retryMs 5000])"],
);
await check(
  "in debt: what needs no gas is accepted, and one unit is not",
  budgets(third, { strangers: [DAY + 3, 5] }),
  accept(["a", 0, ["strangers"]], ["b", 1, ["strangers"]]),
  ["refused ([accounts ([strangers]), id b, retryMs 4000])"],
);
await check(
  "one that fits takes from each of its accounts before the next is decided",
  budgets(third, { "payer:1": [DAY - 6, 5], strangers: [DAY - 4, 5] }),
  accept(
    ["a", 2, ["strangers", "payer:1"]],
    ["b", 2, ["strangers", "payer:2"]],
    ["c", 2, ["strangers", "payer:1"]],
  ),
  ["refused ([accounts ([strangers, payer:1]), id c, retryMs 2000])"],
);
const withPayment =
  (perDay: Record<string, number>, accounts = {}): Work =>
  async (rows) => {
    await budgets(perDay, accounts)(rows);
    await rows.agent();
    await rows.payment("p", { gas_hold: 7 });
  };
await check(
  "an agent's payment: its owner was charged before, and the share of all may be exceeded",
  withPayment(both, { agents: [DAY, 5] }),
  accept(["p", 0, [], { agent_id: AGENT, kind: "spend" }]),
  ["gas_accounts agents: full_at +86403.5 s, held 12, used_on today"],
);
await check(
  "an allowance reserves its own, from its owner too",
  withPayment(both),
  accept(["n", 7, [], { agent_id: AGENT, kind: "allowance", terms: ALLOWANCE }]),
  [
    "gas_accounts agents: full_at +3.5 s, held 7, used 0, used_on today",
    `gas_accounts owner:${OWNER}: full_at +7 s, held 7, used 0, used_on today`,
  ],
);
await check(
  "an allowance must fit",
  withPayment(both, { [`owner:${OWNER}`]: [DAY - 6, 5] }),
  accept(["n", 7, [], { agent_id: AGENT, kind: "allowance", terms: ALLOWANCE }]),
  [`refused ([accounts ([owner:${OWNER}]), id n, retryMs 1000])`],
);
const besideAllowance = accept(
  ["p", 0, [], { agent_id: AGENT, kind: "spend" }],
  ["n", 7, [], { agent_id: AGENT, kind: "allowance", terms: ALLOWANCE }],
);
await check(
  "an allowance beside an agent's payment: only the allowance must fit",
  withPayment(both, { agents: [DAY - 3, 5] }),
  besideAllowance,
  ["refused ([accounts ([agents]), id n, retryMs 500])"],
);
await check(
  "an allowance that fits beside an agent's payment that exceeds the share of all",
  withPayment(both, { agents: [DAY - 4, 5] }),
  besideAllowance,
  [
    "gas_accounts agents: full_at +86403 s, held 19, used_on today",
    `gas_accounts owner:${OWNER}: full_at +7 s, held 7, used 0, used_on today`,
  ],
);
await check(
  "two chains at once",
  async (rows) => {
    await budgets(third)(rows);
    await rows.insert("gas_limits", { chain_id: 1, name: "strangers", per_day: 1 });
  },
  accept(["a", 7, ["strangers"]], ["b", 4, ["strangers"], { chain_id: 1 }]),
  ["refused ([accounts ([strangers]), id b, retryMs null])"],
);

t.test(
  "the gas of a settlement is charged to its owner, also where it is no payment",
  async (t) => {
    await inRows(async (rows) => {
      await rows.agent();
      const accountsOf = async (id: string, row: Row) => {
        await rows.insert("settlements", settlementRow(id, { agent_id: AGENT, ...row }));
        const { rows: found } = await rows.query<{ gas_accounts: string[]; gas_hold: number }>(
          "SELECT gas_accounts, gas_hold::int FROM settlements WHERE id = $1",
          [id],
        );
        return found[0];
      };
      const withdrawal = {
        kind: "withdrawal",
        nonce: `channel:${h("a")}`,
        signature: Buffer.from(""),
      };
      const terms = { scheme: "channel-withdraw", step: "begin", facilitator: account("signer") };
      t.same(
        await accountsOf("from a channel", { ...withdrawal, terms }),
        { gas_accounts: ["withdrawals", `withdrawer:${OWNER}`], gas_hold: 0 },
        "a withdrawal from a channel has no payment",
      );
      await rows.payment("p", { status: "reserved", gas_hold: 7 });
      t.same(await accountsOf("p", {}), {
        gas_accounts: ["agents", `owner:${OWNER}`],
        gas_hold: 7,
      });
      t.same(
        await accountsOf("third party's", { agent_id: null }),
        { gas_accounts: [], gas_hold: 0 },
        "without an agent it is charged to those that it names",
      );
    });
  },
);
