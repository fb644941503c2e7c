// Goal: sums that are written ahead of time never differ from the payments that they hold, whatever happens to a payment
// later, and a long period is read from them.
import t from "tap";
import { newId } from "../../server/core/ids.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { Random } from "../helpers/random.ts";
import { until } from "../helpers/until.ts";
import { ASSET, CHAIN_ID, PAYEE, seedAgent } from "./guardrails-sql.helper.ts";

const database = await testDatabase(t);
const { pool } = database;
const OTHER = "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc";
const PAYEES = ["", PAYEE, OTHER];
const START = 12 * 3_600;
const STEP = 300;

/** So few payments fill a sum, and so few of those a sum of level 2: a short history has both. */
const fillSumsWith = (count: 2 | 3) =>
  pool.query(
    `CREATE OR REPLACE FUNCTION purser_sum_size() RETURNS INTEGER LANGUAGE sql IMMUTABLE AS 'SELECT ${count}'`,
  );
/** What the functions answer, from the payments alone. */
await pool.query(`
  CREATE FUNCTION plain_sum(a TEXT, e TEXT, f TIMESTAMPTZ, u TIMESTAMPTZ, OUT amount NUMERIC, OUT payments BIGINT)
  LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(p.amount), 0), count(*) FROM payments p
     WHERE p.agent_id = a AND p.counted AND p.created_at > f AND p.created_at <= u AND (e = '' OR p.counterparty = e)
  $$;
  CREATE FUNCTION plain_reached(a TEXT, e TEXT, m TEXT, f TIMESTAMPTZ, s NUMERIC) RETURNS TIMESTAMPTZ
  LANGUAGE sql STABLE AS $$
    SELECT min(created_at) FROM (
      SELECT p.created_at, sum(CASE m WHEN 'payments' THEN 1 ELSE p.amount END) OVER (ORDER BY p.created_at) AS total
        FROM payments p
       WHERE p.agent_id = a AND p.counted AND p.created_at > f AND (e = '' OR p.counterparty = e)) walk
     WHERE total >= s
  $$;`);

const at = (seconds: number) => `'epoch'::timestamptz + ${seconds} * interval '1 second'`;

interface Paid {
  agentId: string;
  id: string;
  payee: string;
  amount: number;
  at: number;
  /** A payment that was signed for a maximum may be charged less. */
  maximum?: number;
  status?: "reserved" | "settled" | "blocked";
  kind?: "spend" | "withdrawal";
}

function insert({
  agentId,
  id,
  payee,
  amount,
  at: time,
  maximum,
  status = "reserved",
  kind = "spend",
}: Paid): string {
  const isSettled = status === "settled";
  return `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, maximum, created_at,
      denial_code, tx_hash, settled_at)
    VALUES ('${agentId}', '${id}', '${kind}', '${status}', ${CHAIN_ID}, '${ASSET}', '${payee}', ${amount}, ${maximum ?? "NULL"},
      ${at(time)}, ${status === "blocked" ? "'x'" : "NULL"}, ${isSettled ? `'0x${"ab".repeat(32)}', now()` : "NULL, NULL"});`;
}

/** After this payment each window is stored as of a decision; the agent's day begins at the other. */
const STORED_AFTER = 14;
const DAY_BEGINS_AT = START + 7 * STEP;
const HOURS = [1, 2];
const RETENTION_AFTER = 17;

function storeWindows(agentId: string): string {
  const to = START + STORED_AFTER * STEP;
  const rows = HOURS.flatMap((hours) =>
    PAYEES.map(
      (
        payee,
      ) => `INSERT INTO spending_windows (agent_id, payee, hours, after_at, to_at, amount, payments)
        SELECT '${agentId}', '${payee}', ${hours}, ${at(to - hours * 3_600)}, ${at(to)}, c.*
          FROM plain_sum('${agentId}', '${payee}', ${at(to - hours * 3_600)}, ${at(to)}) c;`,
    ),
  );
  return `${rows.join("\n")}
    UPDATE agents SET window_tail_at = ${at(DAY_BEGINS_AT)},
           window_sum = (SELECT amount FROM plain_sum('${agentId}', '', ${at(DAY_BEGINS_AT)}, 'infinity')) WHERE id = '${agentId}';`;
}

/** A random history of two agents, whose payments have the same times. */
function historyOf(seed: number, agentIds: readonly string[]): string {
  const random = new Random(seed);
  const lines: string[] = [];
  const paid: Paid[] = [];
  const length = random.int(0, 3) === 0 ? random.int(1, 7) : random.int(18, 26);
  const payment = (agentId: string, time: number, more: Partial<Paid> = {}) => {
    const amount = random.int(1, 3);
    const payee = random.pick([PAYEE, PAYEE, OTHER]);
    return { agentId, id: newId("pay"), payee, amount, at: time, ...more };
  };
  const pay = (one: Paid) => {
    lines.push(insert(one));
    if (one.status === undefined && one.kind === undefined) {
      paid.push(one);
      // As in a decision, which adds to the sum and moves no window.
      lines.push(
        `UPDATE agents SET window_sum = window_sum + ${one.amount}, unsummed = unsummed + 1 WHERE id = '${one.agentId}';`,
      );
    }
  };
  for (let step = 1; step <= length; step += 1) {
    const time = START + step * STEP;
    for (const agentId of agentIds) {
      pay(payment(agentId, time, random.int(0, 2) === 0 ? { maximum: 9 } : {}));
      if (random.int(0, 5) === 0) pay(payment(agentId, time + 1, { status: "blocked" }));
      if (random.int(0, 5) === 0) pay(payment(agentId, time + 2, { kind: "withdrawal" }));
      if (random.int(0, 3) > 0) lines.push(`SELECT purser_write_sums('${agentId}');`);
    }
    if (step === STORED_AFTER) lines.push(...agentIds.map(storeWindows));
    if (step === RETENTION_AFTER && random.int(0, 2) === 0)
      lines.push(`DELETE FROM payment_sums WHERE to_at <= ${at(START + random.int(1, 9) * STEP)};`);
    if (random.int(0, 3) === 0 && paid.length > 0) {
      const [voided] = paid.splice(random.int(0, paid.length - 1), 1);
      lines.push(
        `SELECT purser_payment_voided('${voided?.agentId}', '${voided?.id}', 'unsigned', '');`,
      );
    }
    if (random.int(0, 3) === 0) {
      const { agentId, id } = random.pick(paid.length > 0 ? paid : [payment("none", 0)]);
      lines.push(`SELECT purser_payment_amount('${agentId}', '${id}', ${random.int(1, 5)});`);
    }
    if (random.int(0, 3) === 0) {
      // Reconciliation finds a payment that had no row, at the time of another or in between.
      const offset = random.pick([0, 90]);
      const found = payment(random.pick(agentIds), START + random.int(1, step) * STEP + offset, {
        status: "settled",
        payee: random.pick([PAYEE, OTHER]),
      });
      lines.push(
        insert(found),
        `SELECT purser_count_payment('${found.agentId}', '${found.id}', 1);`,
      );
    }
  }
  return lines.join("\n");
}

async function differences(sql: string, agentId: string): Promise<unknown[]> {
  const { rows } = await pool.query<Record<string, unknown>>(`${sql} LIMIT 3`, [agentId, PAYEES]);
  return rows;
}

const TIMES = `SELECT 'epoch'::timestamptz AS at UNION SELECT created_at FROM payments WHERE agent_id = $1`;
const OR_JUST_BEFORE = `${TIMES} UNION SELECT created_at - interval '1 microsecond' FROM payments WHERE agent_id = $1`;
/** All of them would take seconds. */
const oneIn = (some: number, ...of: string[]) =>
  `abs(hashtext(concat(${of.join(", '/', ")}))) % ${some} = 0`;

const CHECKS: Record<string, string> = {
  "the sum of every period": `SELECT e.payee, f.at AS f, u.at AS u, found, plain
    FROM unnest($2::text[]) AS e (payee), (${OR_JUST_BEFORE}) f, (${OR_JUST_BEFORE}) u,
         purser_counted_sum($1, e.payee, f.at, u.at) found, plain_sum($1, e.payee, f.at, u.at) plain
   WHERE ${oneIn(24, "e.payee", "f.at", "u.at")} AND found IS DISTINCT FROM plain`,
  "when every sum is reached": `SELECT e.payee, f.at, m, s, found, plain
    FROM unnest($2::text[]) AS e (payee), (${OR_JUST_BEFORE}) f, unnest(ARRAY['amount', 'payments']) m, generate_series(1, 60) s,
         purser_sum_reached_at($1, e.payee, m, f.at, s) found, plain_reached($1, e.payee, m, f.at, s) plain
   WHERE ${oneIn(60, "e.payee", "f.at", "m", "s")} AND found IS DISTINCT FROM plain`,
  "what each sum holds": `SELECT s, plain FROM payment_sums s, plain_sum($1, s.payee, s.after_at, s.to_at) plain
   WHERE s.agent_id = $1 AND (s.amount, s.payments) IS DISTINCT FROM (plain.amount, plain.payments) AND $2::text[] IS NOT NULL`,
  "each window at any time": `SELECT e.payee, h, u.at, r, plain
    FROM unnest($2::text[]) AS e (payee), generate_series(1, 3) h, (${OR_JUST_BEFORE}) u,
         LATERAL (SELECT max(w.after_at) AS after_at, max(w.to_at) AS to_at FROM spending_windows w
                   WHERE w.agent_id = $1 AND w.payee = e.payee AND w.hours = h) w,
         purser_window($1, e.payee, h, u.at) r, plain_sum($1, e.payee, r.after_at, r.to_at) plain
   WHERE ${oneIn(3, "e.payee", "h", "u.at")} AND ((r.agent_id, r.payee, r.hours, r.amount, r.payments, r.after_at, r.to_at)
      IS DISTINCT FROM ($1, e.payee, h, plain.amount, plain.payments,
        greatest(w.after_at, u.at - h * interval '1 hour'), greatest(w.to_at, u.at)))`,
  "each stored window": `SELECT w, plain FROM spending_windows w, plain_sum($1, w.payee, w.after_at, w.to_at) plain
   WHERE w.agent_id = $1 AND (w.amount, w.payments) IS DISTINCT FROM (plain.amount, plain.payments) AND $2::text[] IS NOT NULL`,
  "the agent's day": `SELECT a.window_sum, plain FROM agents a, plain_sum($1, '', a.window_tail_at, 'infinity') plain
   WHERE a.id = $1 AND a.window_sum <> plain.amount AND $2::text[] IS NOT NULL`,
};

t.test("random histories", async (t) => {
  const seeds = Array.from({ length: 5 }, (_, index) => index + 1);
  for (const seed of seeds) {
    await fillSumsWith(seed % 2 === 0 ? 2 : 3);
    const agents = [
      await seedAgent(pool, { dailyLimit: 1n }),
      await seedAgent(pool, { dailyLimit: 1n }),
    ];
    const ids = agents.map(({ agentId }) => agentId);
    await pool.query(historyOf(seed, ids));
    for (const agentId of ids)
      for (const [what, sql] of Object.entries(CHECKS))
        t.same(await differences(sql, agentId), [], `seed ${seed}: ${what}`);
  }
});

t.test("whole sums are read, not what they hold", async (t) => {
  await fillSumsWith(3);
  const { agentId } = await seedAgent(pool, { dailyLimit: 1n });
  // 11 sums of level 1, 3 of level 2, and one payment more.
  const paid = Array.from({ length: 34 }, (_, index) => ({
    agentId,
    id: newId("pay"),
    payee: index % 4 === 0 ? OTHER : PAYEE,
    amount: index === 32 ? 1_000 : index + 1,
    at: START + (index + 1) * STEP,
  }));
  await pool.query(
    `UPDATE agents SET summed_to_at = ${at(START)} WHERE id = '${agentId}';
     ${paid.map(insert).join("\n")} SELECT purser_write_sums('${agentId}');`,
  );
  const { rows: sums } = await pool.query(
    `SELECT level, (count(*) FILTER (WHERE payee = ''))::int AS sums FROM payment_sums
      WHERE agent_id = $1 GROUP BY level ORDER BY level`,
    [agentId],
  );
  t.same(sums, [
    { level: 1, sums: 11 },
    { level: 2, sums: 3 },
  ]);
  const { rows: agents } = await pool.query(
    `SELECT unsummed, summed_to_at = ${at(START + 33 * STEP)} AS to_the_last FROM agents WHERE id = $1`,
    [agentId],
  );
  t.same(agents, [{ unsummed: 1, to_the_last: true }]);
  const total = async (payee: string, from: number, to: number) => {
    const { rows } = await pool.query<{ amount: bigint; payments: bigint }>(
      `SELECT * FROM purser_counted_sum($1, $2, ${at(START + from * STEP)}, ${at(START + to * STEP)})`,
      [agentId, payee],
    );
    return rows.map(({ amount, payments }) => [Number(amount), Number(payments)])[0];
  };
  const reachedAt = async (measure: string, from: number, sum: number) => {
    const { rows } = await pool.query<{ step: number | null }>(
      `SELECT ((extract(epoch FROM purser_sum_reached_at($1, '', $2, ${at(START + from * STEP)}, $3)) - ${START}) / ${STEP})::int
                AS step`,
      [agentId, measure, sum],
    );
    return rows[0]?.step;
  };
  const expected = (payee: string, from: number, to: number) => {
    const of = paid.slice(from, to).filter((one) => payee === "" || one.payee === payee);
    return [of.reduce((sum, { amount }) => sum + amount, 0), of.length] as const;
  };
  // What is not read may as well be wrong: the payments of all sums but the last, and the sums of level 1 in the first of
  // level 2 and in most of the last.
  await pool.query(
    `DELETE FROM payments WHERE agent_id = '${agentId}' AND created_at <= ${at(START + 30 * STEP)};
     UPDATE payment_sums SET amount = amount + 1000, payments = payments + 1000
      WHERE agent_id = '${agentId}' AND level = 1 AND (to_at <= ${at(START + 9 * STEP)}
        OR after_at >= ${at(START + 21 * STEP)} AND to_at <= ${at(START + 27 * STEP)})`,
  );
  for (const payee of PAYEES)
    for (const [from, to] of [
      [0, 27],
      [0, 34],
      [9, 30],
      [12, 15],
      [12, 21],
      [15, 33],
      [27, 30],
    ] as const)
      t.same(await total(payee, from, to), expected(payee, from, to), `${payee} ${from} to ${to}`);
  for (const from of [0, 9, 12, 27])
    for (const to of [31, 32, 33, 34]) {
      t.equal(await reachedAt("payments", from, to - from), to);
      t.equal(await reachedAt("amount", from, expected("", from, to)[0]), to);
    }
});

t.test(
  "a stored window that has ended is not gone on with: its payments may be gone",
  async (t) => {
    const { agentId } = await seedAgent(pool, { dailyLimit: 1n });
    await pool.query(
      [1, 3]
        .map((hour) =>
          insert({
            agentId,
            id: newId("pay"),
            payee: PAYEE,
            amount: hour,
            at: START + hour * 3_600,
          }),
        )
        .join("\n"),
    );
    await pool.query(
      `INSERT INTO spending_windows (agent_id, payee, hours, after_at, to_at, amount, payments, told, told_at)
     VALUES ($1, '', 1, ${at(START)}, ${at(START + 3_600)}, 900, 9, 80, now())`,
      [agentId],
    );
    const windowAt = async (seconds: number) => {
      const { rows } = await pool.query<Record<"amount" | "payments" | "told", bigint | number>>(
        `SELECT amount, payments, told FROM purser_window($1, '', 1, ${at(START + seconds)})`,
        [agentId],
      );
      return rows.map(({ amount, payments, told }) => [amount, payments, told].map(Number))[0];
    };
    t.same(await windowAt(3_600), [900, 9, 80], "it is the one that is asked for");
    t.same(await windowAt(2 * 3_600), [0, 0, 0], "it ends where the new one begins");
    t.same(await windowAt(3 * 3_600), [3, 1, 0], "nobody was notified of the new one");
  },
);

t.test("a payment that is found later counts in every sum that holds its time", async (t) => {
  await fillSumsWith(2);
  const { agentId } = await seedAgent(pool, { dailyLimit: 1n });
  const payment = (payee: string, step: number, status: "reserved" | "settled" = "reserved") => ({
    agentId,
    id: newId("pay"),
    payee,
    amount: 1,
    at: START + step * STEP,
    status,
  });
  await pool.query(
    `UPDATE agents SET summed_to_at = ${at(START)} WHERE id = '${agentId}';
     ${[1, 2, 3, 4, 5, 6, 7, 8].map((step) => insert(payment(PAYEE, step))).join("\n")}
     SELECT purser_write_sums('${agentId}');`,
  );
  const total = async (payee: string, from: number, to: number) => {
    const { rows } = await pool.query<{ payments: bigint }>(
      `SELECT payments FROM purser_counted_sum($1, $2, ${at(START + from * STEP)}, ${at(START + to * STEP)})`,
      [agentId, payee],
    );
    return Number(rows[0]?.payments);
  };
  await pool.query(
    `INSERT INTO spending_windows (agent_id, payee, hours, after_at, to_at, amount, payments)
     VALUES ($1, '', 1, ${at(START + 4 * STEP)}, ${at(START + 8 * STEP)}, 4, 4)`,
    [agentId],
  );
  // The first to this payee: with the last payment of two sums, in the middle of one, and newer than all of them.
  const found = [4, 5.5, 8, 9];
  for (const step of found) {
    const one = payment(OTHER, step, "settled");
    await pool.query(insert(one));
    await pool.query("SELECT purser_count_payment($1, $2, 1)", [agentId, one.id]);
  }
  for (const [from, to] of [
    [0, 2],
    [2, 4],
    [4, 6],
    [6, 8],
    [0, 4],
    [4, 8],
    [0, 8],
    [8, 10],
    [0, 10],
  ] as const) {
    const inside = found.filter((step) => step > from && step <= to).length;
    t.equal(await total(OTHER, from, to), inside, `${from} to ${to}`);
    t.equal(await total("", from, to), Math.min(to, 8) - Math.min(from, 8) + inside);
  }
  const { rows: windows } = await pool.query(
    "SELECT amount, payments FROM spending_windows WHERE agent_id = $1",
    [agentId],
  );
  t.same(windows, [{ amount: 6n, payments: 6n }], "also in a stored window, up to its end");
});

t.test("each agent's sums go on where its own end, and begin where its own begin", async (t) => {
  await fillSumsWith(2);
  for (const [summedTo, ofLevel1, ofLevel2] of [
    [0, [0, 2, 4], [0]],
    [2, [2, 4], [2]],
  ] as const) {
    const { agentId } = await seedAgent(pool, { dailyLimit: 1n });
    const paid = [1, 2, 3, 4, 5, 6].map((step) =>
      insert({ agentId, id: newId("pay"), payee: PAYEE, amount: 1, at: START + step * STEP }),
    );
    await pool.query(
      `UPDATE agents SET summed_to_at = ${at(START + summedTo * STEP)} WHERE id = '${agentId}';
       ${paid.join("\n")} SELECT purser_write_sums('${agentId}');`,
    );
    const { rows } = await pool.query<{ level: number; step: number }>(
      `SELECT level, ((extract(epoch FROM after_at) - ${START}) / ${STEP})::int AS step FROM payment_sums
        WHERE agent_id = $1 AND payee = '' ORDER BY after_at`,
      [agentId],
    );
    const stepsOf = (level: number) =>
      rows.filter((row) => row.level === level).map(({ step }) => step);
    t.same([stepsOf(1), stepsOf(2)], [ofLevel1, ofLevel2]);
  }
});

t.test("the agent's row is locked while sums are written", async (t) => {
  const { agentId } = await seedAgent(pool, { dailyLimit: 1n });
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await client.query("SELECT purser_write_sums($1)", [agentId]);
    await t.rejects(pool.query("SELECT FROM agents WHERE id = $1 FOR UPDATE NOWAIT", [agentId]), {
      code: "55P03",
    });
  } finally {
    await client.query("ROLLBACK");
    client.release();
  }
});

t.test("two that write an agent's sums at once write them once", async (t) => {
  await fillSumsWith(2);
  const { agentId } = await seedAgent(pool, { dailyLimit: 1n });
  for (const step of [1, 2])
    await pool.query(
      insert({ agentId, id: newId("pay"), payee: PAYEE, amount: 1, at: START + step * STEP }),
    );
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await client.query("SELECT purser_write_sums($1)", [agentId]);
    const other = pool.query("SELECT purser_write_sums($1)", [agentId]);
    await until(async () => {
      const { rows } = await pool.query(
        "SELECT FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())",
      );
      return rows.length > 0;
    });
    await client.query("COMMIT");
    await t.resolves(other);
  } finally {
    client.release();
  }
  const { rows } = await pool.query(
    "SELECT payments FROM payment_sums WHERE agent_id = $1 AND payee = ''",
    [agentId],
  );
  t.same(rows, [{ payments: 2n }]);
});
