// Goal: over thousands of random histories, the SQL decision, the pure evaluation and a naive model agree to the
// atomic unit.
import * as fc from "fast-check";
import t from "tap";
import type { Address } from "viem";
import { createPool, inTransaction } from "../../server/infra/db/pool.ts";
import { payeeKey } from "../../server/core/rules.ts";
import { readLimits } from "../../server/plugins/guardrails/store.ts";
import { reserve } from "../../server/plugins/guardrails/store.ts";
import type {
  DenialCode,
  Limits,
  RuleName,
  Snapshot,
  WindowLimits,
} from "../../server/plugins/guardrails/rules.ts";
import { evaluate } from "../../server/plugins/guardrails/decide.ts";
import { newId } from "../../server/core/ids.ts";
import { withOwnClock } from "../helpers/database-clock.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { isFullTier, runsOf } from "../helpers/tier.ts";
import {
  ASSET,
  CHAIN_ID,
  PAYEE,
  reserveRequest,
  seedAgent,
  setPayee,
  setRules,
  type SeededAgent,
  type SeededRules,
} from "./guardrails-sql.helper.ts";

const database = await testDatabase(t);
const clock = await withOwnClock(database);
const pool = createPool(database.url, { maxConnections: 8 });
t.teardown(() => pool.end());

const HOUR_MICROS = 3_600_000_000n;
/** The default tier uses a fixed seed: fewer runs still reach every rule. */
const RUNS = runsOf(isFullTier ? 300 : 100);
const SEED = isFullTier ? {} : { seed: 20_261_125 };
const OTHER: Address = "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc";
const PAYEES = [PAYEE, OTHER] as const;

/** A payment in the naive model, which keeps no sums. */
interface Payment {
  id: string;
  at: bigint;
  amount: bigint;
  payee: Address;
  status: "reserved" | "settled" | "voided";
  block: bigint;
}

interface PayeeRules {
  dailyLimit: bigint | null;
  perPayment: bigint | null;
  /** In microseconds of the database's clock. */
  expiresAt: bigint | null;
}

type Operation =
  | {
      do: "spend";
      amount: bigint;
      balance: bigint;
      block: bigint;
      dryRun: boolean;
      payee: Address;
    }
  | { do: "void" | "settle" | "correct"; pick: number; block: bigint }
  | { do: "find"; micros: bigint; amount: bigint; block: bigint; payee: Address }
  | { do: "jump"; micros: bigint }
  // To the moment when a payment leaves a window, or just beside it.
  | { do: "edge"; pick: number; hours: bigint; beside: bigint }
  | { do: "limits"; rules: Required<Omit<SeededRules, "allowlist">> }
  | {
      do: "payee";
      payee: Address;
      dailyLimit: bigint | null;
      perPayment: bigint | null;
      hours: number | null;
    };

const amount = fc.bigInt({ min: 1n, max: 12n });
const block = fc.bigInt({ min: 1n, max: 6n });
const payee = fc.constantFrom(...PAYEES);
const upTo = (max: bigint) => fc.option(fc.bigInt({ min: 0n, max }), { freq: 2 });
/** A window's length, give or take two seconds. */
const around = (hours: bigint) =>
  fc.bigInt({ min: hours * HOUR_MICROS - 2_000_000n, max: hours * HOUR_MICROS + 2_000_000n });
const operation: fc.Arbitrary<Operation> = fc.oneof(
  {
    weight: 9,
    arbitrary: fc.record({
      do: fc.constant("spend" as const),
      amount,
      balance: fc.oneof(
        { weight: 3, arbitrary: fc.constant(10n ** 20n) },
        fc.bigInt({ min: 0n, max: 90n }),
      ),
      block,
      dryRun: fc.boolean(),
      payee,
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("void" as const), pick: fc.nat(), block }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant("settle" as const), pick: fc.nat(), block }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("correct" as const), pick: fc.nat(), block }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("find" as const),
      micros: fc.bigInt({ min: 1n, max: 800n * HOUR_MICROS }),
      amount,
      block,
      payee,
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("jump" as const),
      micros: fc.oneof(
        fc.bigInt({ min: 0n, max: HOUR_MICROS }),
        fc.bigInt({ min: 0n, max: 48n * HOUR_MICROS }),
        around(1n),
        around(24n),
        around(168n),
        around(720n),
      ),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("edge" as const),
      pick: fc.nat(),
      hours: fc.constantFrom(1n, 24n, 168n, 720n),
      beside: fc.constantFrom(-1n, 0n, 1n),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("limits" as const),
      rules: fc.record({
        dailyLimit: fc.bigInt({ min: 0n, max: 90n }),
        perPaymentLimit: upTo(12n),
        weeklyLimit: upTo(120n),
        monthlyLimit: upTo(150n),
        paymentsPerHour: fc.option(fc.integer({ min: 0, max: 8 }), { freq: 2 }),
      }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("payee" as const),
      payee,
      dailyLimit: upTo(60n),
      perPayment: upTo(12n),
      hours: fc.option(fc.integer({ min: 0, max: 100 }), { freq: 2 }),
    }),
  },
);

t.test("random histories", { timeout: 110_000 }, async (t) => {
  // Two payments fill a sum here, so that short histories have sums, and sums of sums.
  await pool.query(
    "CREATE OR REPLACE FUNCTION purser_sum_size() RETURNS INTEGER LANGUAGE sql IMMUTABLE AS 'SELECT 2'",
  );
  let decisions = 0;
  let denials = 0;
  let stretches = 0;
  const refusals = new Set<string | null>();
  const levels: [number, number] = [0, 0];
  await fc.assert(
    fc.asyncProperty(
      fc.bigInt({ min: 0n, max: 90n }),
      fc.array(operation, { minLength: 6, maxLength: 48, size: "max" }),
      async (dailyLimit, operations) => {
        const agent = await seedAgent(pool, { dailyLimit, allowlist: [...PAYEES] });
        let rules: SeededRules = { dailyLimit };
        const ofPayee = new Map<Address, PayeeRules>();
        const payments: Payment[] = [];
        for (const op of operations) {
          if (op.do === "limits") await changeLimits(op.rules);
          else if (op.do === "payee") await changePayee(op);
          else if (op.do === "jump") await clock.pass(op.micros);
          else if (op.do === "edge") await edge(op);
          else if (op.do === "spend") await spend(op);
          else if (op.do === "correct") await correct(op.pick, op.block);
          else if (op.do === "find") await find(op);
          else await finish(op.do, op.pick, op.block);
        }
        await compareLimits();
        await compareSums();

        async function changeLimits(wanted: SeededRules) {
          rules = wanted;
          await setRules(pool, agent.agentId, rules);
        }

        async function changePayee(op: Extract<Operation, { do: "payee" }>) {
          const { dailyLimit, perPayment, hours } = op;
          await setPayee(pool, agent.agentId, op.payee, {
            dailyLimit,
            perPaymentLimit: perPayment,
            ...(hours === null ? {} : { expiresInMs: hours * 3_600_000 }),
          });
          const { rows } = await pool.query<{ at: bigint | null }>(
            `SELECT (extract(epoch FROM expires_at) * 1000000)::bigint AS at FROM allowlist_entries
              WHERE agent_id = $1 AND address = $2`,
            [agent.agentId, op.payee],
          );
          ofPayee.set(op.payee, { dailyLimit, perPayment, expiresAt: rows[0]?.at ?? null });
        }

        /** The clock never goes back. */
        async function edge({ pick, hours, beside }: Extract<Operation, { do: "edge" }>) {
          const payment = payments[pick % Math.max(payments.length, 1)];
          const at = (payment?.at ?? 0n) + hours * HOUR_MICROS + beside;
          if (at > clock.now()) await clock.set(at);
        }

        /** Reconciliation finds a past payment on chain that had no row. */
        async function find(op: Extract<Operation, { do: "find" }>) {
          const id = newId("pay");
          const at = await inTransaction(pool, async (sql) => {
            await sql.query("SELECT FROM agents WHERE id = $1 FOR UPDATE", [agent.agentId]);
            const { rows } = await sql.query<{ at: bigint }>(
              `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, tx_hash,
                                     block_number, settled_at, created_at)
               VALUES ($1, $2, 'spend', 'settled', $3, $4, $5, $6, $7, $8, now(),
                       clock_timestamp() - $9::bigint * interval '1 microsecond')
               RETURNING (extract(epoch FROM created_at) * 1000000)::bigint AS at`,
              [
                agent.agentId,
                id,
                CHAIN_ID,
                ASSET,
                op.payee,
                String(op.amount),
                `0x${"cd".repeat(32)}`,
                String(op.block),
                String(op.micros),
              ],
            );
            await sql.query("SELECT purser_count_payment($1, $2, 1)", [agent.agentId, id]);
            return rows[0]?.at ?? 0n;
          });
          const { amount, payee, block } = op;
          payments.push({ id, at, amount, payee, status: "settled", block });
        }

        async function finish(how: "void" | "settle", pick: number, block: bigint) {
          const open = payments.filter((payment) => payment.status === "reserved");
          const chosen = open[pick % Math.max(open.length, 1)];
          if (!chosen) return;
          chosen.status = how === "void" ? "voided" : "settled";
          chosen.block = block;
          if (how === "void")
            await pool.query("SELECT purser_payment_voided($1, $2, 'test', '')", [
              agent.agentId,
              chosen.id,
            ]);
          else
            await pool.query(
              "SELECT purser_payments_settled(ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[$4]::bigint[], ARRAY[now()])",
              [agent.agentId, chosen.id, `0x${"cd".repeat(32)}`, String(block)],
            );
        }

        /** Later evidence corrects a voided payment to settled: it counts again. */
        async function correct(pick: number, block: bigint) {
          const voided = payments.filter((payment) => payment.status === "voided");
          const chosen = voided[pick % Math.max(voided.length, 1)];
          if (!chosen) return;
          chosen.status = "settled";
          chosen.block = block;
          await inTransaction(pool, async (sql) => {
            await sql.query("SELECT FROM agents WHERE id = $1 FOR UPDATE", [agent.agentId]);
            await sql.query(
              `UPDATE payments SET status = 'settled', tx_hash = $3, block_number = $4, settled_at = now()
                WHERE agent_id = $1 AND id = $2`,
              [agent.agentId, chosen.id, `0x${"cd".repeat(32)}`, String(block)],
            );
            await sql.query("SELECT purser_count_payment($1, $2, 1)", [agent.agentId, chosen.id]);
          });
        }

        /** Each limit with a window at this moment, with the payments that it counts and their weight. */
        function windowsAt(now: bigint, to: Address): Window[] {
          const window = (rule: RuleName, hours: bigint, limit: bigint | null | undefined) => {
            if (limit == null) return [];
            const counted = payments.filter(
              (payment) =>
                payment.status !== "voided" &&
                payment.at > now - hours * HOUR_MICROS &&
                (rule !== "payee_limit" || payment.payee === to),
            );
            const weigh = rule === "payments_per_hour" ? () => 1n : weight;
            return [{ rule, hours, limit, counted, weigh }];
          };
          const { paymentsPerHour: often } = rules;
          return [
            ...window("payments_per_hour", 1n, often == null ? null : BigInt(often)),
            ...window("payee_limit", 24n, ofPayee.get(to)?.dailyLimit),
            ...window("daily_limit", 24n, rules.dailyLimit),
            ...window("weekly_limit", 168n, rules.weeklyLimit),
            ...window("monthly_limit", 720n, rules.monthlyLimit),
          ];
        }

        async function spend(op: Extract<Operation, { do: "spend" }>) {
          const paymentId = newId("pay");
          const request = reserveRequest(agent, op.amount, {
            balance: { atomic: op.balance, blockNumber: op.block },
            to: op.payee,
          });
          const row = await reserve(pool, { ...request, paymentId, dryRun: op.dryRun });
          const snapshot = row.snapshot;
          if (!snapshot) throw new Error(row.outcome);
          const now = row.decidedAtMicros;
          // No two decisions have the same time: one may be a microsecond ahead of a clock that stands still.
          if (now > clock.now()) await clock.set(now);
          const windows = windowsAt(now, op.payee);
          const outstanding = sum(
            payments.filter(
              (payment) =>
                payment.status === "reserved" ||
                (payment.status === "settled" && payment.block > op.block),
            ),
          );
          const about = ofPayee.get(op.payee);
          const tooMuch = (limit: bigint | null | undefined) => limit != null && op.amount > limit;
          const full = windows.find((window) => !fits(window, window.counted, op.amount));
          const expected =
            about?.expiresAt != null && about.expiresAt <= now
              ? "payee_expired"
              : tooMuch(rules.perPaymentLimit)
                ? "per_payment_limit_exceeded"
                : tooMuch(about?.perPayment)
                  ? "payee_per_payment_limit_exceeded"
                  : full
                    ? (REFUSALS[full.rule] ?? null)
                    : op.amount > op.balance - outstanding
                      ? "insufficient_funds"
                      : null;
          decisions += 1;
          if (expected !== null) denials += 1;
          refusals.add(expected);
          same(row.code, expected, "the decision");
          const evaluation = evaluate(snapshot);
          same(evaluation.allowed ? null : evaluation.code, expected, "the pure evaluation");
          for (const window of windows) {
            const used = USED[window.rule]?.(snapshot);
            const open = window.counted.filter(({ status }) => status === "reserved");
            same(used?.[0], total(window, window.counted), `${window.rule}: used`);
            same(used?.[1], total(window, open), `${window.rule}: reserved`);
          }
          same(snapshot.outstanding, outstanding, "the wallet's outstanding amount");
          if (full && expected === REFUSALS[full.rule]) {
            const times = windows.map((window) => fitsAt(window, op.amount, now));
            const last = times.includes(undefined)
              ? undefined
              : times.reduce((latest = 0, time = 0) => Math.max(latest, time));
            same(row.availableAt?.getTime(), last, "availableAt");
            same(row.nextReleaseAt?.getTime(), leavesAt(full), "nextReleaseAt");
            same(row.releases.length, windows.length, "a release time for each limit");
            for (const [index, window] of windows.entries()) {
              const release = row.releases.find(({ rule }) => rule === window.rule);
              same(release?.availableAt?.getTime(), times[index], `${window.rule}: availableAt`);
              same(
                release?.nextReleaseAt?.getTime(),
                leavesAt(window),
                `${window.rule}: nextReleaseAt`,
              );
            }
          }
          if (row.outcome === "reserved")
            payments.push({
              id: paymentId,
              at: now,
              amount: op.amount,
              payee: op.payee,
              status: "reserved",
              block: 0n,
            });
          same(
            row.outcome === "reserved",
            expected === null && !op.dryRun,
            "whether it was reserved",
          );
        }

        /**
         * Payments only leave a window with time: the limits must lie between the model's values before and after.
         */
        async function compareLimits() {
          const before = await modelNow();
          const limits = (await readLimits(pool, [agent.agentId], { payees: true })).get(
            agent.agentId,
          );
          const after = await modelNow();
          if (!limits) throw new Error("no limits");
          for (const payee of PAYEES) {
            const earlier = windowsAt(before, payee);
            for (const later of windowsAt(after, payee)) {
              const reported = READ[later.rule]?.(limits, payee);
              const used = reported ? reported.spentAtomic + reported.reservedAtomic : -1n;
              const sooner = earlier.find(({ rule }) => rule === later.rule) ?? later;
              same(
                total(later, later.counted) <= used && used <= total(sooner, sooner.counted),
                true,
                `${later.rule}: ${used}`,
              );
              same(reported?.limitAtomic, later.limit, `${later.rule}: the limit`);
            }
          }
        }

        async function modelNow(): Promise<bigint> {
          const { rows } = await pool.query<{ now: bigint }>(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now",
          );
          return rows[0]?.now ?? 0n;
        }

        /**
         * Compares the sum of every period between two payments, per payee and in total, and the time at which it
         * is reached.
         */
        async function compareSums() {
          const counted = payments.filter(({ status }) => status !== "voided");
          const { rows } = await pool.query<{
            payee: string;
            from: bigint;
            to: bigint;
            sum: bigint;
            payments: bigint;
            at: bigint;
            countAt: bigint;
          }>(
            `WITH times AS (SELECT created_at AS at, (extract(epoch FROM created_at) * 1000000)::bigint AS micros
                              FROM payments WHERE agent_id = $1 AND status <> 'blocked'
                            UNION ALL SELECT 'epoch'::timestamptz, 0)
             SELECT e.payee, f.micros AS "from", u.micros AS "to", total.amount AS sum, total.payments,
                    (extract(epoch FROM purser_sum_reached_at($1, e.payee, 'amount', f.at, total.amount)) * 1000000)::bigint AS at,
                    (extract(epoch FROM purser_sum_reached_at($1, e.payee, 'payments', f.at, total.payments)) * 1000000)::bigint
                      AS "countAt"
               FROM unnest($2::text[]) AS e (payee) CROSS JOIN times f JOIN times u ON f.at < u.at,
                    purser_counted_sum($1, e.payee, f.at, u.at) total`,
            [agent.agentId, ["", ...PAYEES]],
          );
          for (const { payee, from, to, at, countAt, ...found } of rows) {
            const within = counted
              .filter((payment) => payment.at > from && payment.at <= to)
              .filter((payment) => payee === "" || payment.payee === payee)
              .sort((a, b) => byValue(a.at, b.at));
            same(found.sum, sum(within), "the sum of a period");
            same(found.payments, BigInt(within.length), "the number of payments of a period");
            if (within.length === 0) continue;
            same(at, within.at(-1)?.at, "when the sum is reached");
            same(countAt, within.at(-1)?.at, "when the number is reached");
          }
          stretches += rows.length;
          const found = await pool.query<{ level: number }>(
            "SELECT level FROM payment_sums WHERE agent_id = $1 AND payee = ''",
            [agent.agentId],
          );
          for (const { level } of found.rows) levels[level === 1 ? 0 : 1] += 1;
        }
      },
    ),
    { numRuns: RUNS, ...SEED },
  );
  t.pass(`${RUNS} histories`);
  // A part of the runs (test/helpers/tier.ts) need not reach everything.
  if (RUNS < 100) return;
  t.ok(decisions > RUNS * 3, `${decisions} decisions`);
  t.ok(denials > RUNS / 2, `${denials} denials`);
  t.ok(stretches > RUNS, `${stretches} periods`);
  for (const code of Object.values(REFUSALS)) t.ok(refusals.has(code), `${code} was a result`);
  t.ok(levels[0] > RUNS / 2 && levels[1] > RUNS / 10, `${levels.join(" and ")} sums`);
});

t.test("many parallel payments over the connection pools of several processes", async (t) => {
  const pools = Array.from({ length: 3 }, () => createPool(database.url, { maxConnections: 4 }));
  t.teardown(() => Promise.all(pools.map((one) => one.end())));
  let turn = 0;
  const next = () => pools[(turn += 1) % pools.length] ?? pool;
  const attempt = async (agent: SeededAgent, to: Address) => {
    const request = reserveRequest(agent, 1n, { to });
    return reserve(next(), { ...request, paymentId: newId("pay"), dryRun: false });
  };
  const onlyTen: [DenialCode, Omit<SeededRules, "dailyLimit">, bigint | null][] = [
    ["weekly_limit_exceeded", { weeklyLimit: 10n }, null],
    ["monthly_limit_exceeded", { monthlyLimit: 10n }, null],
    ["payment_rate_exceeded", { paymentsPerHour: 10 }, null],
    ["payee_limit_exceeded", {}, 10n],
  ];
  for (const [code, rules, ofPayee] of onlyTen) {
    const agent = await seedAgent(pool, { dailyLimit: 1_000n, ...rules });
    if (ofPayee !== null) await setPayee(pool, agent.agentId, PAYEE, { dailyLimit: ofPayee });
    const rows = await Promise.all(Array.from({ length: 40 }, () => attempt(agent, PAYEE)));
    t.equal(rows.filter(({ outcome }) => outcome === "reserved").length, 10, code);
    t.equal(rows.filter((row) => row.code === code).length, 30);
  }

  // A voided amount is available to the next payment of any process, and is released only once.
  const agent = await seedAgent(pool, {
    dailyLimit: 1_000n,
    weeklyLimit: 30n,
    monthlyLimit: 25n,
    paymentsPerHour: 20,
    allowlist: [...PAYEES],
  });
  for (const to of PAYEES) await setPayee(pool, agent.agentId, to, { dailyLimit: 12n });
  await Promise.all(
    Array.from({ length: 160 }, async (_, index) => {
      const row = await attempt(agent, PAYEES[index % 2] ?? PAYEE);
      if (row.outcome === "reserved" && index % 3 !== 0)
        await next().query("SELECT purser_payment_voided($1, $2, 'test', '')", [
          agent.agentId,
          row.paymentId,
        ]);
    }),
  );
  const { rows } = await pool.query<{ payee: string; hours: number; ok: boolean; used: bigint }>(
    `SELECT w.payee, w.hours, w.amount AS used, (w.amount, w.payments) = (
              SELECT COALESCE(sum(p.amount), 0), count(*) FROM payments p
               WHERE p.agent_id = w.agent_id AND p.counted AND p.created_at > w.after_at AND p.created_at <= w.to_at
                 AND (w.payee = '' OR p.counterparty = w.payee)) AS ok
       FROM spending_windows w WHERE w.agent_id = $1 ORDER BY w.payee, w.hours`,
    [agent.agentId],
  );
  t.same(
    rows.map(({ payee, hours }) => [payee, hours]),
    [["", 1], ["", 168], ["", 720], ...[...PAYEES].sort().map((payee) => [payee, 24])],
  );
  for (const { payee, hours, ok, used } of rows) {
    t.ok(ok, `${payee} ${hours}: the stored window equals its counted payments`);
    t.ok(used <= (payee === "" ? 20n : 12n), `${used} used`);
  }
});

interface Window {
  rule: RuleName;
  hours: bigint;
  limit: bigint;
  counted: Payment[];
  weigh: (payment: { amount: bigint }) => bigint;
}

const REFUSALS: Partial<Record<RuleName, DenialCode>> = {
  payments_per_hour: "payment_rate_exceeded",
  payee_limit: "payee_limit_exceeded",
  daily_limit: "daily_limit_exceeded",
  weekly_limit: "weekly_limit_exceeded",
  monthly_limit: "monthly_limit_exceeded",
};
/** Used and reserved amounts in the decision's snapshot. */
const USED: Partial<Record<RuleName, (facts: Snapshot) => [bigint, bigint]>> = {
  payments_per_hour: (facts) => pair(facts.hourlySpent, facts.hourlyReserved),
  payee_limit: (facts) => pair(facts.payeeSpent, facts.payeeReserved),
  daily_limit: (facts) => pair(facts.spent, facts.reserved),
  weekly_limit: (facts) => pair(facts.weeklySpent, facts.weeklyReserved),
  monthly_limit: (facts) => pair(facts.monthlySpent, facts.monthlyReserved),
};
const READ: Partial<Record<RuleName, (limits: Limits, payee: Address) => WindowLimits | null>> = {
  payments_per_hour: ({ hourly }) => hourly,
  payee_limit: ({ payees }, address) => payees.get(payeeKey({ address, site: "" })) ?? null,
  daily_limit: (limits) => limits,
  weekly_limit: ({ weekly }) => weekly,
  monthly_limit: ({ monthly }) => monthly,
};

const pair = (spent = -1n, reserved = -1n): [bigint, bigint] => [spent + reserved, reserved];
const weight = (payment: { amount: bigint }): bigint => payment.amount;
const total = ({ weigh }: Window, payments: Payment[]): bigint =>
  payments.reduce((used, payment) => used + weigh(payment), 0n);
const fits = (window: Window, counted: Payment[], amount: bigint): boolean =>
  total(window, counted) + window.weigh({ amount }) <= window.limit;

/** Removes payments from the oldest on, until the amount fits. */
function fitsAt(window: Window, amount: bigint, now: bigint): number | undefined {
  // Like Postgres: truncated to the millisecond.
  if (fits(window, window.counted, amount)) return Number(now / 1000n);
  const left = inOrder(window);
  for (let oldest = left.shift(); oldest; oldest = left.shift())
    if (fits(window, left, amount)) return toMs(oldest.at + window.hours * HOUR_MICROS);
  return undefined;
}

function leavesAt(window: Window): number | undefined {
  const [oldest] = inOrder(window);
  return oldest && toMs(oldest.at + window.hours * HOUR_MICROS);
}

const inOrder = ({ counted }: Window): Payment[] =>
  [...counted].sort((a, b) => byValue(a.at, b.at));

const sum = (payments: Payment[]): bigint =>
  payments.reduce((total, payment) => total + payment.amount, 0n);
const byValue = (left: bigint, right: bigint): number => (left < right ? -1 : left > right ? 1 : 0);
const toMs = (micros: bigint): number => Number((micros + 999n) / 1000n);

function same(actual: unknown, expected: unknown, what: string): void {
  if (actual !== expected)
    throw new Error(`${what}: ${String(actual)}, expected ${String(expected)}`);
}
