// Goal: a rule pauses an agent exactly at its edge, once, in the transaction that notices; hours and days refuse exactly
// outside them, in SQL as in custody.
import { randomBytes } from "node:crypto";
import * as fc from "fast-check";
import t from "tap";
import { DAYS, HOURS } from "../../packages/rules/src/kinds.ts";
import { newId } from "../../server/core/ids.ts";
import { formatAtomic } from "../../server/core/money.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { evaluate } from "../../server/plugins/guardrails/decide.ts";
import { reserve } from "../../server/plugins/guardrails/store.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { runsOf } from "../helpers/tier.ts";
import {
  PAYEE,
  passTime,
  randomAddress,
  reserveRequest,
  seedAgent,
  type SeededAgent,
} from "./guardrails-sql.helper.ts";

const database = await testDatabase(t);
const pool = createPool(database.url, { maxConnections: 2 });
t.teardown(() => pool.end());

/** With what SQL decided, which must equal what the list of rules explains. */
async function pay(agent: SeededAgent, amount: bigint, more = {}) {
  const request = reserveRequest(agent, amount, more);
  const row = await reserve(pool, { ...request, paymentId: newId("pay"), dryRun: false });
  if (row.snapshot === null) throw new Error(row.outcome);
  const found = evaluate(row.snapshot);
  t.equal(row.code, found.allowed ? null : found.code);
  return row;
}
const fail = (agent: SeededAgent) => pay(agent, 1n, { to: randomAddress() });
const set = (agent: SeededAgent, change: string) =>
  pool.query(`UPDATE agents SET ${change} WHERE id = $1`, [agent.agentId]);
async function stateOf(agent: SeededAgent) {
  const { rows } = await pool.query<{ state: string; notified: number; audited: number }>(
    `SELECT status || ' ' || coalesce(paused_by, '-') AS state,
            (SELECT count(*)::int FROM notifications n WHERE n.agent_id = a.id AND n.type = 'agent.paused') AS notified,
            (SELECT count(*)::int FROM audit_log l WHERE l.agent_id = a.id AND l.action = 'agent.paused_by_rule') AS audited
       FROM agents a WHERE id = $1`,
    [agent.agentId],
  );
  return rows[0];
}
const active = { state: "active -", notified: 0, audited: 0 };

t.test("the last failure pauses, the one before it does not", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 1_000n });
  await set(agent, "pause_after_failures = 3");
  await fail(agent);
  t.equal((await fail(agent)).code, "recipient_not_allowed");
  t.equal((await pay(agent, 1n)).outcome, "reserved", "a success is no failure");
  t.same(await stateOf(agent), active);
  t.equal((await fail(agent)).code, "recipient_not_allowed", "its own reason is reported");
  const paused = { state: "paused pause_after_failures", notified: 1, audited: 1 };
  t.same(await stateOf(agent), paused);
  for (const attempt of [pay(agent, 1n), fail(agent)]) {
    const { code, snapshot } = await attempt;
    t.equal(code, "paused_by_rule");
    t.match(snapshot, { pausedBy: "pause_after_failures", failures: 3n });
  }
  t.same(await stateOf(agent), paused, "one event");
  await set(agent, "status = 'active'");
  t.equal((await pay(agent, 1n)).outcome, "reserved", "what was before does not count again");
  for (let count = 0; count < 2; count += 1) await fail(agent);
  t.equal((await stateOf(agent))?.state, "active -");
  await fail(agent);
  t.equal((await stateOf(agent))?.state, "paused pause_after_failures");
});

t.test(
  "repeats of one refusal and failed payments count; an hour later nothing does",
  async (t) => {
    const agent = await seedAgent(pool, { dailyLimit: 1_000n });
    await set(agent, "pause_after_failures = 3");
    const to = randomAddress();
    for (let count = 0; count < 2; count += 1) await pay(agent, 1n, { to });
    await passTime(pool, agent.agentId, "61 minutes");
    await pool.query(
      "UPDATE payments SET updated_at = updated_at - interval '61 minutes' WHERE agent_id = $1",
      [agent.agentId],
    );
    const other = randomAddress();
    for (let count = 0; count < 2; count += 1) await pay(agent, 1n, { to: other });
    t.same(await stateOf(agent), active);
    const { paymentId } = await pay(agent, 1n);
    await pool.query(
      "UPDATE payments SET status = 'voided', failure_code = 'not_signed', updated_at = clock_timestamp() WHERE id = $1",
      [paymentId],
    );
    t.equal(
      (await pay(agent, 1n)).code,
      "paused_by_rule",
      "noticed by the next payment, which is refused",
    );
    t.equal((await stateOf(agent))?.state, "paused pause_after_failures");
  },
);

t.test("spending above a multiple of the usual day pauses, exactly there", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 100_000n });
  await set(agent, "pause_at_rate = 2");
  t.equal((await pay(agent, 5_000n)).outcome, "reserved", "without history it does not apply");
  for (let day = 0; day < 3; day += 1) {
    await passTime(pool, agent.agentId, "24 hours");
    if (day < 2) await pay(agent, 500n);
  }
  await passTime(pool, agent.agentId, "24 hours");
  // 6,000 in the days that ended 24 hours ago: from the first payment on, three days and a moment.
  const { rows } = await pool.query<{ usual: string | null }>(
    "SELECT purser_usual_day($1, clock_timestamp() - interval '24 hours') AS usual",
    [agent.agentId],
  );
  const usual = BigInt(rows[0]?.usual ?? "0");
  t.ok(usual >= 1_999n && usual <= 2_000n, `${usual} a day`);
  t.equal((await pay(agent, 2n * usual - 1n)).outcome, "reserved");
  t.same(await stateOf(agent), active);
  t.equal((await pay(agent, 1_000n)).code, "paused_by_rule");
  t.same(await stateOf(agent), { state: "paused pause_at_rate", notified: 1, audited: 1 });
  const { rows: shown } = await pool.query(
    `SELECT l.body::jsonb -> 'after' AS after, n.data FROM audit_log l JOIN notifications n ON n.agent_id = l.agent_id AND n.type = 'agent.paused'
      WHERE l.agent_id = $1 AND l.action = 'agent.paused_by_rule'`,
    [agent.agentId],
  );
  const usualDay = formatAtomic(usual);
  const rateSum = formatAtomic(2n * usual + 999n);
  const facts = { rule: "pause_at_rate", pauseAtRate: "2", usualDay, rateSum };
  t.match(shown, [{ after: facts, data: facts }], "amounts are decimals");
});

const SITE = "https://a.example";
const fetchAt = (agent: SeededAgent, site: string, price: bigint, more = {}) =>
  pay(agent, price, { kind: "x402", site, ...more });
async function paid(agent: SeededAgent, prices: bigint[], more = {}): Promise<string[]> {
  const ids: string[] = [];
  for (const price of prices) {
    const { paymentId, outcome } = await fetchAt(agent, SITE, price, more);
    if (outcome !== "reserved" || paymentId === null) throw new Error(outcome);
    ids.push(paymentId);
  }
  return ids;
}
async function watched(): Promise<SeededAgent> {
  const agent = await seedAgent(pool, { dailyLimit: 1_000_000n });
  await set(agent, "pause_on_price_jump = 5");
  return agent;
}
const jumped = { state: "paused pause_on_price_jump", notified: 1, audited: 1 };

t.test("a price above a multiple of the site's highest pauses, exactly there", async (t) => {
  const agent = await watched();
  await paid(agent, [1n, 10n]);
  const other = "https://b.example";
  for (const price of [1n, 1n, 900n])
    t.equal((await fetchAt(agent, other, price)).outcome, "reserved", "less than three payments");
  await paid(agent, [10n, 50n]);
  t.equal((await pay(agent, 9_000n)).outcome, "reserved", "a spend has no site");
  t.equal((await fetchAt(agent, "http://a.example", 9_000n)).outcome, "reserved", "another site");
  t.same(await stateOf(agent), active);
  const attempts = await Promise.all(
    [251n, 251n, 251n].map((price) => fetchAt(agent, SITE, price)),
  );
  // Only the price that paused the agent is one that its owner sees.
  attempts.push(await fetchAt(agent, SITE, 9_999n));
  for (const { code, snapshot } of attempts) {
    t.equal(code, "paused_by_rule");
    t.match(snapshot, { jumpSite: SITE, priceBefore: 50n, pausedBy: "pause_on_price_jump" });
  }
  t.same(await stateOf(agent), jumped, "one event");
  await set(agent, "status = 'active'");
  t.equal((await fetchAt(agent, other, 4_501n)).code, "paused_by_rule", "not for another site");
  await set(agent, "status = 'active'");
  t.equal((await fetchAt(agent, SITE, 251n)).outcome, "reserved", "the owner has seen it");
  t.equal((await fetchAt(agent, SITE, 9_999n)).code, "paused_by_rule", "not seen: it came later");
});

t.test("only payments of the last 30 days that did not fail are compared", async (t) => {
  const agent = await watched();
  const [, , , failed] = await paid(agent, [10n, 10n, 10n, 50n]);
  await pool.query("UPDATE payments SET status = 'voided' WHERE id = $1", [failed]);
  t.equal((await fetchAt(agent, SITE, 51n, { to: randomAddress() })).code, "paused_by_rule");
  await set(agent, "status = 'active'");
  await passTime(pool, agent.agentId, "31 days");
  t.equal((await fetchAt(agent, SITE, 900n)).outcome, "reserved");
  t.same(await stateOf(agent), { ...active, notified: 1, audited: 1 });
});

t.test("what is resumed is known even if it was one of too many refusals", async (t) => {
  const agent = await watched();
  await paid(agent, [10n, 10n, 10n]);
  await set(agent, "refusals = 1000, refusals_hour = date_trunc('hour', clock_timestamp())");
  t.equal((await fetchAt(agent, SITE, 51n)).code, "paused_by_rule");
  await set(agent, "status = 'active'");
  t.equal((await fetchAt(agent, SITE, 51n)).outcome, "reserved");
});

t.test("without the rule a payment has no site", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 1_000n });
  await paid(agent, [1n, 1n, 1n, 900n]);
  const { rows } = await pool.query("SELECT DISTINCT site FROM payments WHERE agent_id = $1", [
    agent.agentId,
  ]);
  t.same(rows, [{ site: null }]);
});

t.test("a maximum is compared with maxima, a price with what was charged", async (t) => {
  const agent = await watched();
  const ids = await paid(agent, [100n, 100n, 100n], { isMaximum: true });
  t.equal((await fetchAt(agent, SITE, 900n)).outcome, "reserved", "nothing was charged yet");
  await pool.query("DELETE FROM payments WHERE agent_id = $1 AND amount = 900", [agent.agentId]);
  for (const id of ids) {
    await pool.query("SELECT purser_payment_amount($1, $2, 10)", [agent.agentId, id]);
    await pool.query(
      "UPDATE payments SET status = 'settled', tx_hash = '0x' || repeat('ab', 32), block_number = 1, settled_at = now() WHERE id = $1",
      [id],
    );
  }
  await paid(agent, [500n], { isMaximum: true });
  t.equal((await fetchAt(agent, SITE, 51n)).code, "paused_by_rule");
});

t.test("through a channel the price of one request is compared", async (t) => {
  const agent = await watched();
  await set(agent, "channel_held = 100000, channel_delay = 3600");
  const [id, salt] = [randomBytes(32), randomBytes(32)].map((word) => `0x${word.toString("hex")}`);
  const channel = {
    id,
    salt,
    withdrawDelay: 900,
    minDepositAtomic: 5_000n,
    busySeconds: 30,
    signer: PAYEE,
    receiverAuthorizer: PAYEE,
  };
  const words = (price: bigint) =>
    fetchAt(agent, SITE, price, { channel: { ...channel, depositId: newId("pay") } });
  for (const price of [10n, 10n, 10n, 50n]) {
    const { paymentId, outcome } = await words(price);
    t.equal(outcome, "reserved");
    const key = [agent.agentId, paymentId];
    await pool.query("SELECT purser_voucher_signed($1, $2, $3)", [...key, Buffer.alloc(65, 1)]);
    await pool.query("SELECT purser_voucher_ended($1, $2, 2, NULL)", key);
  }
  const { code, snapshot } = await words(251n);
  t.match({ code, snapshot }, { code: "paused_by_rule", snapshot: { priceBefore: 50n } });
  await set(agent, "status = 'active'");
  t.equal((await fetchAt(agent, SITE, 260n)).outcome, "reserved", "251 was seen");
});

const AT = new Date("2030-03-10T00:00:00.000Z");
/** Times are relative to AT. */
const move = (paymentId: string | null, created: string, updated = created) =>
  pool.query(
    "UPDATE payments SET created_at = $2::timestamptz - $3::interval, updated_at = $2::timestamptz - $4::interval WHERE id = $1",
    [paymentId, AT, created, updated],
  );

t.test("what counts as a failure, and until when", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 1_000_000n });
  const failures = async (resumedAt: string | null = null) => {
    const { rows } = await pool.query<{ count: string | null }>(
      "SELECT purser_failures($1, $2, $2::timestamptz - $3::interval)::text AS count",
      [agent.agentId, AT, resumedAt],
    );
    return Number(rows[0]?.count ?? "none");
  };
  const refused = await fail(agent);
  await move(refused.paymentId, "119 minutes", "60 minutes");
  t.equal(await failures(), 0, "an hour after the last repeat");
  await move(refused.paymentId, "119 minutes", "59 minutes");
  t.equal(await failures(), 1);
  t.equal(await failures("119 minutes"), 0, "not what was before the agent was resumed");
  await move(refused.paymentId, "120 minutes", "59 minutes");
  t.equal(await failures(), 0, "its row is of an hour that is over");
  await move(refused.paymentId, "2 minutes", "1 minute");
  await pool.query("UPDATE payments SET repeats = 3 WHERE id = $1", [refused.paymentId]);
  t.equal(await failures(), 4, "repeats count");
  for (const code of ["agent_paused", "paused_by_rule"]) {
    await pool.query("UPDATE payments SET denial_code = $2 WHERE id = $1", [
      refused.paymentId,
      code,
    ]);
    t.equal(await failures(), 0, code);
  }
  const paid = await pay(agent, 5n);
  await move(paid.paymentId, "2 minutes", "1 minute");
  const change = (values: string) =>
    pool.query(`UPDATE payments SET ${values} WHERE id = $1`, [paid.paymentId]);
  t.equal(await failures(), 0, "a payment that is on its way");
  await change("delivered = false");
  t.equal(await failures(), 1, "paid, and nothing was delivered");
  await change("delivered = true");
  t.equal(await failures(), 0);
  await change("status = 'voided', failure_code = 'not_signed'");
  t.equal(await failures(), 1, "it was never paid");
  await change("kind = 'withdrawal'");
  t.equal(await failures(), 0, "a withdrawal is the owner's");
});

t.test("the usual day: of which days it is the mean", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 1_000_000n });
  const usual = async () => {
    const { rows } = await pool.query<{ amount: bigint | null }>(
      "SELECT purser_usual_day($1, $2) AS amount",
      [agent.agentId, AT],
    );
    return rows[0]?.amount;
  };
  t.equal(await usual(), null, "it never paid");
  const first = await pay(agent, 3_000n);
  await move(first.paymentId, "71 hours 59 minutes 59 seconds");
  t.equal(await usual(), null, "not yet three days");
  await move(first.paymentId, "72 hours");
  t.equal(await usual(), 1_000n, "three days");
  const refused = await fail(agent);
  await move(refused.paymentId, "10 days");
  t.equal(await usual(), 1_000n, "a refusal is no first payment");
  const second = await pay(agent, 4_000n);
  await move(second.paymentId, "14 days");
  t.equal(await usual(), 500n, "of 14 days, the first moment included");
  await move(second.paymentId, "14 days 1 microsecond");
  t.equal(await usual(), 214n, "older ones are not counted; rounded");
  await move(first.paymentId, "-1 second");
  t.equal(await usual(), null, "nothing was spent in those days");
});

t.test("a stop pauses what is active, and its end returns exactly that", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 1_000n });
  const { ownerId } = agent;
  const made = async (change: string): Promise<SeededAgent> => {
    const one = await seedAgent(pool, { dailyLimit: 1_000n });
    await set(one, change);
    return one;
  };
  const own = [agent, await made(`owner_id = '${ownerId}'`)];
  const byRule = "paused_by = 'pause_after_failures', paused_at = now()";
  own.push(await made(`owner_id = '${ownerId}', status = 'paused'`));
  own.push(await made(`owner_id = '${ownerId}', status = 'paused', ${byRule}`));
  own.push(await made(`owner_id = '${ownerId}', status = 'archived'`));
  own.push(await made("name = 'of another owner'"));
  const third = await made("name = 'of an owner who stopped, too'");
  own.push(third);
  await pool.query("SELECT purser_stop($1, 'somebody')", [third.ownerId]);
  await pool.query("UPDATE agents SET updated_at = '2026-01-01' WHERE id = ANY ($1)", [
    own.map(({ agentId }) => agentId),
  ]);
  const changed = async () => {
    const { rows } = await pool.query<{ id: string }>(
      "SELECT id FROM agents WHERE updated_at > '2026-01-01'",
    );
    return own.filter(({ agentId }) => rows.some(({ id }) => id === agentId));
  };
  const states = () =>
    Promise.all(own.map(async (each) => (await stateOf(each))?.state.replace("pause_", "")));
  const kept = ["paused -", "paused after_failures", "archived -", "active -", "paused stop"];
  const before = await states();
  t.same(before, ["active -", "active -", ...kept]);
  const ask = async (call: string): Promise<unknown> => {
    const { rows } = await pool.query<{ result: unknown }>(`SELECT ${call} AS result`);
    return rows[0]?.result;
  };
  const facts = async () => {
    const { rows } = await pool.query(
      `SELECT stopped_by AS by, stopped_at AS at, (SELECT count(*)::int FROM events e
         WHERE e.owner_id = o.id AND e.type = 'owner') AS events FROM owners o WHERE id = $1`,
      [ownerId],
    );
    return rows[0] as { by: string | null; at: Date | null; events: number };
  };
  const first = randomAddress();
  t.equal(await ask(`purser_stop('${ownerId}', '${first}')`), true);
  const stopped = ["paused stop", "paused stop", ...kept];
  t.same(await states(), stopped);
  t.same(await changed(), own.slice(0, 2), "those two have changed");
  const known = await facts();
  t.match(known, { by: first, at: Date, events: 1 });
  const { rows: paused } = await pool.query(
    "SELECT 1 FROM agents WHERE owner_id = $1 AND paused_by = 'stop' AND paused_at >= $2",
    [ownerId, known.at],
  );
  t.equal(paused.length, 2, "they say when");
  t.equal(await ask(`purser_stop('${ownerId}', '${randomAddress()}')`), false, "a second stop");
  t.same(await facts(), { ...known, events: 2 }, "changes nothing");
  // By somebody who writes past the triggers.
  const direct = await pool.connect();
  await direct.query("SET session_replication_role = replica");
  await direct.query("UPDATE agents SET status = 'active', paused_by = NULL WHERE id = $1", [
    agent.agentId,
  ]);
  await direct.query("RESET session_replication_role");
  direct.release();
  t.equal(await ask(`purser_stop('${ownerId}', '${first}')`), false);
  t.same(await states(), stopped, "and pauses what is active nevertheless");
  await t.rejects(set(own[3] ?? agent, "status = 'active'"), { code: "PU006" });
  for (const status of ["paused", "active"]) await set(own[5] ?? agent, `status = '${status}'`); // Another owner may.

  await pool.query("UPDATE agents SET updated_at = '2026-01-01' WHERE owner_id = $1", [ownerId]);
  t.equal(await ask(`purser_resume('${ownerId}')`), 2);
  t.same(
    (await changed()).filter((one) => one.ownerId === ownerId || own.indexOf(one) === 1),
    own.slice(0, 2),
    "and again",
  );
  t.same(await states(), before, "neither what its owner paused, nor what a rule paused");
  t.match(await facts(), { by: null, at: null, events: 4 });
  t.equal(await ask(`purser_resume('${ownerId}')`), 0);
  await set(own[3] ?? agent, "status = 'active'");
  await t.rejects(
    set(third, "status = 'active'"),
    { code: "PU006" },
    "another owner's stop goes on",
  );
});

t.test("an agent pays from the first minute of its hours to the last, on its days", async (t) => {
  // A Sunday.
  for (const [hours, days, at, pays] of [
    ["09:00-17:00", null, "08:59:59.999", false],
    ["09:00-17:00", null, "09:00", true],
    ["09:00-17:00", null, "16:59:59.999", true],
    ["09:00-17:00", null, "17:00", false],
    ["22:00-06:00", null, "21:59:59.999", false],
    ["22:00-06:00", null, "22:00", true],
    ["22:00-06:00", null, "05:59:59.999", true],
    ["22:00-06:00", null, "06:00", false],
    [null, "sun", "00:00", true],
    [null, "mon,sat", "23:59", false],
    ["09:00-17:00", "sun", "09:00", true],
    ["09:00-17:00", "sun", "17:00", false],
    ["09:00-17:00", "sat", "09:00", false],
  ] as const) {
    const { rows } = await pool.query<{ pays: boolean }>(
      "SELECT purser_pays_at($1, $2, $3) AS pays",
      [hours, days, `2030-03-10T${at}Z`],
    );
    t.equal(rows[0]?.pays, pays, `${hours} ${days} ${at}`);
  }
});

const minute = fc.integer({ min: 0, max: 1_439 });
const text = (minutes: number): string =>
  `${String(Math.floor(minutes / 60)).padStart(2, "0")}:${String(minutes % 60).padStart(2, "0")}`;
const WEEK = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const hours = fc.option(
  fc
    .tuple(minute, minute)
    .map(([from, to]) => `${text(from)}-${text(from === to ? (to + 1) % 1_440 : to)}`),
);
const days = fc.option(
  fc.subarray(WEEK, { minLength: 1, maxLength: 6 }).map((some) => some.join(",")),
);

t.test("hours and days are the same in SQL and in custody, and open when SQL says", async () => {
  const allows = (given: { hours: string | null; days: string | null }, nowSeconds: bigint) =>
    [
      HOURS.refuses?.(given.hours, { valueAtomic: 0n, nowSeconds }),
      DAYS.refuses?.(given.days, { valueAtomic: 0n, nowSeconds }),
    ].every((refused) => refused !== true);
  await fc.assert(
    fc.asyncProperty(
      hours,
      days,
      fc.integer({ min: 1_790_000_000, max: 1_791_300_000 }),
      async (ofDay, ofWeek, at) => {
        const given = { hours: ofDay, days: ofWeek };
        const { rows } = await pool.query<{ pays: boolean; opens: string }>(
          `SELECT purser_pays_at($1, $2, to_timestamp($3)) AS pays,
                  extract(epoch FROM purser_opens_at($1, $2, to_timestamp($3)))::bigint::text AS opens`,
          [ofDay, ofWeek, at],
        );
        if (rows[0]?.pays !== allows(given, BigInt(at))) throw new Error("SQL and custody differ");
        if (rows[0].pays) return;
        const opens = BigInt(rows[0].opens);
        if (!allows(given, opens) || allows(given, opens - 1n))
          throw new Error(`opens at ${opens}`);
      },
    ),
    { numRuns: runsOf(600) },
  );
});

t.test("outside its hours a payment is refused until they begin, and pauses nothing", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 1_000n });
  await set(
    agent,
    "pay_hours = to_char(now() AT TIME ZONE 'UTC' + interval '2 hours', 'HH24:MI') || '-' || to_char(now() AT TIME ZONE 'UTC' + interval '3 hours', 'HH24:MI')",
  );
  const { code, availableAt } = await pay(agent, 1n);
  t.equal(code, "outside_pay_times");
  const inMinutes = ((availableAt?.getTime() ?? 0) - Date.now()) / 60_000;
  t.ok(inMinutes > 115 && inMinutes <= 120, `in ${inMinutes} minutes`);
  t.same(await stateOf(agent), active);
});
