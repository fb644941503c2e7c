// Goal: what a payment counts in its budgets is exact: at the edges of each window, beside other budgets, wallets and payments, and
// when the amount changes later.
import t from "tap";
import {
  account,
  AGENT,
  OWNER,
  rowChanges,
  type ChangedRows,
  type Row,
} from "../settlement/changed-rows.ts";

const inCase = await rowChanges(t);
const HOUR_MS = 3_600_000;
const WALLET = account("wallet");
const OTHER_WALLET = account("wallet 2");

/** Budgets a, b and c of one owner; the agents of c are others. */
async function prepare(rows: ChangedRows, limits: Record<string, Row>): Promise<void> {
  await rows.agent({ budget_ids: Object.keys(limits).filter((id) => id !== "c") });
  for (const [id, row] of Object.entries(limits))
    await rows.insert("budgets", { id, owner_id: OWNER, name: `name of ${id}`, ...row });
}

/** A payment in a budget; `micros` after the time that is so many hours ago. */
async function paid(
  rows: ChangedRows,
  budget_id: string,
  [payment_id, hoursAgo, micros, amount]: [string, number, number, number],
  more: Row = {},
): Promise<void> {
  await rows.query(
    `INSERT INTO budget_payments (budget_id, payment_id, at, amount, agent_id, payer, counted)
     VALUES ($1, $2, clock_timestamp() - $3 * interval '1 hour' + $4 * interval '1 microsecond', $5, $6, $7, $8)`,
    [
      budget_id,
      payment_id,
      hoursAgo,
      micros,
      amount,
      more["agent_id"] ?? AGENT,
      more["payer"] ?? WALLET,
      more["counted"] ?? true,
    ],
  );
}

const window = (rows: ChangedRows, row: Row & { fromMs?: number; toMs: number }) => {
  const { fromMs = -HOUR_MS, toMs, ...columns } = row;
  const at = (ms: number) => new Date(rows.nowMs + ms).toISOString();
  return rows.insert("spending_windows", {
    payee: "",
    hours: 24,
    amount: 0,
    payments: 0,
    after_at: at(fromMs),
    to_at: at(toMs),
    ...columns,
  });
};

async function resultOf(rows: ChangedRows, call: string): Promise<unknown> {
  const { rows: found } = await rows.query<{ result: unknown }>(`SELECT (${call}) AS result`);
  return found[0]?.result;
}
async function allOf(rows: ChangedRows, query: string): Promise<unknown[][]> {
  const { rows: found } = await rows.query<{ row: object }>(
    `SELECT to_json(q) AS row FROM (${query}) q`,
  );
  return found.map(({ row }) => Object.values(row));
}

t.test("a payment counts until exactly so many hours later", async (t) => {
  await inCase(async (rows) => {
    await prepare(rows, {
      a: { daily_limit: 10, monthly_limit: 90 },
      b: { weekly_limit: 30 },
      c: { daily_limit: 50 },
    });
    for (const budget of ["a", "b", "c"])
      for (const hours of [24, 168, 720]) {
        await paid(rows, budget, [`left ${hours}`, hours, 0, 1_000_000]);
        await paid(rows, budget, [`in ${hours}`, hours, 1, hours]);
      }
    const limits = `SELECT budget_id, name, hours, most, used, (moved).amount, now_at = clock_timestamp() AS now
      FROM purser_budget_limits(ARRAY['a', 'b'], clock_timestamp())`;
    t.same(await allOf(rows, limits), [
      ["a", "name of a", 24, 10, 24, 24, true],
      ["a", "name of a", 720, 90, 2_000_000 + 24 + 168 + 720, 2_000_912, true],
      ["b", "name of b", 168, 30, 1_000_000 + 24 + 168, 1_000_192, true],
    ]);
  });
});

t.test("a decision is never before the stored windows, and later than every payment", async (t) => {
  await inCase(async (rows) => {
    await prepare(rows, { a: { daily_limit: 10 }, b: { daily_limit: 10 } });
    const now = (id: string) =>
      resultOf(
        rows,
        `extract(epoch FROM purser_budget_now('${id}', clock_timestamp()) - clock_timestamp()) * 1000000`,
      );
    await window(rows, { agent_id: "b", toMs: 9_000 });
    await window(rows, { agent_id: "a", payee: WALLET, toMs: 7_000 });
    await window(rows, { agent_id: "a", hours: 168, toMs: -2_000 });
    t.equal(Number(await now("a")), 0);
    await window(rows, { agent_id: "a", hours: 24, toMs: 0 });
    t.equal(Number(await now("a")), 1, "one microsecond after the last one");
    await window(rows, { agent_id: "a", hours: 720, toMs: 3 });
    t.equal(Number(await now("a")), 3_001);
  });
});

t.test("the budget with the least left decides, and the first of equal ones", async (t) => {
  for (const [what, usedOfB, decides] of [
    ["the second has less left", 95, ["b", "100", "95"]],
    ["the first has less left", 93, ["a", "10", "4"]],
    ["both have the same left", 94, ["a", "10", "4"]],
  ] as const)
    await inCase(async (rows) => {
      await prepare(rows, {
        a: { daily_limit: 10 },
        b: { daily_limit: 100, weekly_limit: 100_000 },
        c: { daily_limit: 1 },
      });
      await paid(rows, "a", ["x", 1, 0, 4]);
      await paid(rows, "b", ["y", 2, 0, usedOfB]);
      const [id, limit, used] = decides;
      const facts = `SELECT most, used, facts, cardinality(windows) AS windows,
        (SELECT sum(w.amount) FROM unnest(windows) w) AS sum FROM purser_budgets_take(ARRAY['a', 'b'], FALSE)`;
      t.same(
        await allOf(rows, facts),
        [
          [
            Number(limit),
            Number(used),
            {
              budgetId: id,
              budgetName: `name of ${id}`,
              budgetHours: 24,
              budgetLimit: limit,
              budgetUsed: used,
            },
            3,
            4 + 2 * usedOfB,
          ],
        ],
        what,
      );
      t.same(await resultOf(rows, "SELECT windows FROM purser_budgets_take('{}', FALSE)"), "{}");
    });
});

t.test("what others used is of that window and not of the own wallet", async (t) => {
  await inCase(async (rows) => {
    await prepare(rows, {
      a: { daily_limit: 10, weekly_limit: 1_000 },
      b: { daily_limit: 900, weekly_limit: 1_000 },
    });
    await paid(rows, "a", ["own", 1, 0, 3]);
    await paid(rows, "a", ["others", 2, 0, 4], { payer: OTHER_WALLET });
    await paid(rows, "a", ["older", 30, 0, 100], { payer: OTHER_WALLET });
    await paid(rows, "b", ["own", 1, 0, 20]);
    await paid(rows, "b", ["others", 1, 0, 60], { payer: OTHER_WALLET });
    const others = `SELECT purser_budget_others(f.facts, b.windows, '${WALLET}')
      FROM purser_budgets_take(ARRAY['b', 'a'], FALSE) b, LATERAL (VALUES
        (b.facts), ('{"budgetId": "b", "budgetHours": 24}'), ('{"budgetId": "a", "budgetHours": 168}')) AS f (facts)`;
    t.same(await allOf(rows, others), [
      [{ budgetOthers: "4" }],
      [{ budgetOthers: "60" }],
      [{ budgetOthers: "104" }],
    ]);
  });
});

t.test("when an amount fits again", async (t) => {
  await inCase(async (rows) => {
    await prepare(rows, { a: { daily_limit: 10 } });
    await paid(rows, "a", ["gone", 30, 0, 5]);
    await paid(rows, "a", ["first", 10, 0, 1]);
    await paid(rows, "a", ["second", 6, 0, 5]);
    for (const [need, hours] of [
      [-1, 0],
      [0, 0],
      [1, 14],
      [2, 18],
      [7, null],
    ])
      t.equal(
        await resultOf(
          rows,
          `(extract(epoch FROM purser_budget_fits_at('a', 24, clock_timestamp(), ${need}) - clock_timestamp()) / 3600)::int`,
        ),
        hours,
        `${need} less`,
      );
  });
});

t.test("a reserved payment is in each of its budgets once, and fills their sums", async (t) => {
  await inCase(async (rows) => {
    await prepare(rows, {
      a: { daily_limit: 10, weekly_limit: 50, unsummed: 127 },
      b: { daily_limit: 10, unsummed: 126 },
      c: { daily_limit: 10, unsummed: 5 },
    });
    await rows.query(
      `INSERT INTO budget_payments (budget_id, payment_id, at, amount, agent_id, payer, counted)
       SELECT b.id, 'p' || n, clock_timestamp() - n * interval '1 second', 1, $1, $2, b.id <> 'b'
         FROM budgets b, generate_series(1, 127) n`,
      [AGENT, WALLET],
    );
    await rows.query(
      `SELECT purser_budgets_count(a, 'new', 5, (SELECT windows FROM purser_budgets_take(ARRAY['a', 'b'], FALSE)))
         FROM agents a WHERE id = $1`,
      [AGENT],
    );
    t.same(
      await allOf(
        rows,
        `SELECT agent_id, budget_id, payer, amount, counted, at = clock_timestamp() AS now
           FROM budget_payments WHERE payment_id = 'new' ORDER BY budget_id`,
      ),
      ["a", "b"].map((id) => [AGENT, id, WALLET, 5, true, true]),
    );
    t.same(await allOf(rows, "SELECT id, unsummed FROM budgets ORDER BY id"), [
      ["a", 0],
      ["b", 127],
      ["c", 5],
    ]);
    const sums = "SELECT agent_id, payee, amount, payments FROM payment_sums ORDER BY payee";
    t.same(await allOf(rows, sums), [
      ["a", "", 132, 128],
      ["a", WALLET, 132, 128],
    ]);
  });
});

t.test("a payment of one budget fails", async (t) => {
  await inCase(async (rows) => {
    await prepare(rows, { a: { daily_limit: 10 } });
    await paid(rows, "a", ["it", 0, -1_000_000, 7]);
    await rows.query("SELECT purser_budget_change($1, 'it', 7, FALSE)", [AGENT]);
    t.same(await allOf(rows, "SELECT counted FROM budget_payments"), [[false]]);
  });
});

t.test("a payment that changes later changes its budgets, and no other", async (t) => {
  for (const [what, wasCounted, [amount, counted], change, payments] of [
    ["it cost less", true, [3, true], -4, 0],
    ["it failed", true, [7, false], -7, -1],
    ["it counts after all", false, [7, true], 7, 1],
    ["it counts with another amount", false, [2, true], 2, 1],
    ["it failed, and is known to have cost less", false, [2, false], 0, 0],
  ] as const)
    await inCase(async (rows) => {
      await prepare(rows, {
        b: { daily_limit: 10 },
        a: { daily_limit: 10 },
        c: { daily_limit: 10 },
      });
      await rows.insert("agents", {
        id: "agt_2",
        owner_id: OWNER,
        name: "a",
        network: "x",
        wallet_address: OTHER_WALLET,
        daily_limit: 1,
      });
      for (const budget of ["a", "b", "c"]) {
        await window(rows, { agent_id: budget, toMs: 0, amount: 100, payments: 10 });
        if (budget !== "c")
          await paid(rows, budget, ["it", 0, -1_000_000, 7], { counted: wasCounted });
        await paid(rows, budget, ["another", 0, -1_000_000, 7], { counted: wasCounted });
        await paid(rows, budget, ["it", 0, -1_000_000, 7], {
          counted: wasCounted,
          agent_id: "agt_2",
          payer: OTHER_WALLET,
        });
      }
      await rows.query("SELECT purser_budget_change($1, 'it', $2, $3)", [AGENT, amount, counted]);
      t.same(
        await allOf(
          rows,
          `SELECT budget_id FROM budget_payments
            WHERE agent_id = '${AGENT}' AND payment_id = 'it' AND amount = ${amount} AND counted = ${counted} ORDER BY 1`,
        ),
        [["a"], ["b"]],
        what,
      );
      t.same(
        await allOf(
          rows,
          `SELECT count(*) FROM budget_payments WHERE amount = 7 AND counted = ${wasCounted}
              AND (agent_id <> '${AGENT}' OR payment_id <> 'it')`,
        ),
        [[6]],
        "the others stay",
      );
      t.same(
        await allOf(
          rows,
          "SELECT agent_id, amount, payments FROM spending_windows ORDER BY agent_id",
        ),
        [
          ["a", 100 + change, 10 + payments],
          ["b", 100 + change, 10 + payments],
          ["c", 100, 10],
        ],
        what,
      );
    });
});
