// Goal: over thousands of random histories the SQL decision, the pure evaluation and a naive model agree to the atomic unit.
import * as fc from "fast-check";
import t from "tap";
import { createPool, inTransaction } from "../../server/infra/db/pool.ts";
import { readLimits } from "../../server/plugins/guardrails/store.ts";
import { reserve } from "../../server/plugins/guardrails/store.ts";
import { evaluate } from "../../server/plugins/guardrails/explain.ts";
import { newId } from "../../server/core/ids.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { reserveRequest, seedAgent } from "./guardrails-sql.helper.ts";

const database = await testDatabase(t);
const pool = createPool(database.url, { maxConnections: 8 });
t.teardown(() => pool.end());

const DAY_MICROS = 86_400_000_000n;
const RUNS = 300;

/** What the naive model knows of a payment: nothing is ever summed ahead. */
interface Payment {
  id: string;
  at: bigint;
  amount: bigint;
  status: "reserved" | "settled" | "voided";
  block: bigint;
}

type Operation =
  | { do: "spend"; amount: bigint; balance: bigint; block: bigint; dryRun: boolean }
  | { do: "void" | "settle" | "correct"; pick: number; block: bigint }
  | { do: "jump"; micros: bigint }
  | { do: "limit"; limit: bigint; perPayment: bigint | null };

const amount = fc.bigInt({ min: 1n, max: 12n });
const block = fc.bigInt({ min: 1n, max: 6n });
const operation: fc.Arbitrary<Operation> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("spend" as const),
      amount,
      balance: fc.oneof(fc.constant(10n ** 20n), fc.bigInt({ min: 0n, max: 40n })),
      block,
      dryRun: fc.boolean(),
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
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("jump" as const),
      micros: fc.oneof(
        fc.bigInt({ min: 0n, max: DAY_MICROS / 4n }),
        fc.bigInt({ min: DAY_MICROS - 2_000_000n, max: DAY_MICROS + 2_000_000n }),
      ),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("limit" as const),
      limit: fc.bigInt({ min: 0n, max: 90n }),
      perPayment: fc.option(fc.bigInt({ min: 0n, max: 12n })),
    }),
  },
);

t.test("random histories", { timeout: 110_000 }, async (t) => {
  // A few payments fill a sum here, so that short histories have sums, and sums of sums.
  await pool.query(
    "CREATE OR REPLACE FUNCTION purser_sum_size() RETURNS INTEGER LANGUAGE sql IMMUTABLE AS 'SELECT 2'",
  );
  let decisions = 0;
  let denials = 0;
  let stretches = 0;
  const levels: [number, number] = [0, 0];
  await fc.assert(
    fc.asyncProperty(
      fc.bigInt({ min: 0n, max: 90n }),
      fc.array(operation, { minLength: 4, maxLength: 36, size: "max" }),
      async (dailyLimit, operations) => {
        const agent = await seedAgent(pool, { dailyLimit });
        const rules = { limit: dailyLimit, perPayment: null as bigint | null };
        const payments: Payment[] = [];
        for (const op of operations) {
          if (op.do === "limit") await changeLimit(op);
          else if (op.do === "jump") await jump(op.micros);
          else if (op.do === "spend") await spend(op);
          else if (op.do === "correct") await correct(op.pick, op.block);
          else await finish(op.do, op.pick, op.block);
        }
        await compareLimits();
        await compareSums();

        async function changeLimit(op: Extract<Operation, { do: "limit" }>) {
          rules.limit = op.limit;
          rules.perPayment = op.perPayment;
          await pool.query(
            "UPDATE agents SET daily_limit = $2, per_payment_limit = $3 WHERE id = $1",
            [
              agent.agentId,
              String(op.limit),
              op.perPayment === null ? null : String(op.perPayment),
            ],
          );
        }

        /** Time passes: every row is that much older. */
        async function jump(micros: bigint) {
          await pool.query(
            `WITH span AS (SELECT $2::bigint * interval '1 microsecond' AS passed),
             rows AS (UPDATE payments SET created_at = created_at - passed FROM span WHERE agent_id = $1),
             sums AS (UPDATE payment_sums SET after_at = after_at - passed, to_at = to_at - passed
                        FROM span WHERE agent_id = $1)
             UPDATE agents SET window_tail_at = window_tail_at - passed, summed_to_at = summed_to_at - passed
               FROM span WHERE id = $1`,
            [agent.agentId, String(micros)],
          );
          for (const payment of payments) payment.at -= micros;
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
            await pool.query("SELECT purser_payment_settled($1, $2, $3, $4, now())", [
              agent.agentId,
              chosen.id,
              `0x${"cd".repeat(32)}`,
              String(block),
            ]);
        }

        /** Later evidence: a payment that was voided has settled after all, and counts again. */
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

        async function spend(op: Extract<Operation, { do: "spend" }>) {
          const paymentId = newId("pay");
          const request = reserveRequest(agent, op.amount, {
            balance: { atomic: op.balance, blockNumber: op.block },
          });
          const row = await reserve(pool, { ...request, paymentId, dryRun: op.dryRun });
          const snapshot = row.snapshot;
          if (!snapshot) throw new Error(row.outcome);
          const now = row.decidedAtMicros;
          const counted = payments.filter(
            (payment) => payment.status !== "voided" && payment.at > now - DAY_MICROS,
          );
          const used = sum(counted);
          const reserved = sum(counted.filter((payment) => payment.status === "reserved"));
          const outstanding = sum(
            payments.filter(
              (payment) =>
                payment.status === "reserved" ||
                (payment.status === "settled" && payment.block > op.block),
            ),
          );
          const expected =
            rules.perPayment !== null && op.amount > rules.perPayment
              ? "per_payment_limit_exceeded"
              : used + op.amount > rules.limit
                ? "daily_limit_exceeded"
                : op.amount > op.balance - outstanding
                  ? "insufficient_funds"
                  : null;
          decisions += 1;
          if (expected !== null) denials += 1;
          same(row.code, expected, "the decision");
          const evaluation = evaluate(snapshot);
          same(evaluation.allowed ? null : evaluation.code, expected, "the pure evaluation");
          same(snapshot.spent + snapshot.reserved, used, "the window");
          same(snapshot.reserved, reserved, "its outstanding part");
          same(snapshot.outstanding, outstanding, "what the wallet promised");
          if (expected === "daily_limit_exceeded") {
            same(row.availableAt?.getTime(), fitsAt(counted, op.amount), "availableAt");
            const oldest = counted.map(({ at }) => at).sort(byValue)[0];
            same(
              row.nextReleaseAt?.getTime(),
              oldest === undefined ? undefined : toMs(oldest + DAY_MICROS),
              "nextReleaseAt",
            );
          }
          if (row.outcome === "reserved")
            payments.push({
              id: paymentId,
              at: now,
              amount: op.amount,
              status: "reserved",
              block: 0n,
            });
          same(row.outcome === "reserved", expected === null && !op.dryRun, "what was written");
        }

        /** Oldest first, one after the other, until it fits. */
        function fitsAt(counted: Payment[], wanted: bigint): number | undefined {
          let used = sum(counted);
          for (const payment of [...counted].sort((a, b) => byValue(a.at, b.at))) {
            used -= payment.amount;
            if (used + wanted <= rules.limit) return toMs(payment.at + DAY_MICROS);
          }
          return undefined;
        }

        /** Time only takes payments out of the window: what is read lies between before and after. */
        async function compareLimits() {
          const before = await windowSum();
          const limits = (await readLimits(pool, [agent.agentId])).get(agent.agentId);
          const after = await windowSum();
          const used = (limits?.spentAtomic ?? 0n) + (limits?.reservedAtomic ?? 0n);
          same(after <= used && used <= before, true, `limits ${used} in ${after}..${before}`);
        }

        /** Any stretch between two payments, and when any sum of it is reached. */
        async function compareSums() {
          const counted = payments.filter(({ status }) => status !== "voided");
          const { rows } = await pool.query<{ from: bigint; to: bigint; sum: bigint; at: bigint }>(
            `WITH times AS (SELECT created_at AS at, (extract(epoch FROM created_at) * 1000000)::bigint AS micros
                              FROM payments WHERE agent_id = $1 AND status <> 'blocked'
                            UNION ALL SELECT 'epoch'::timestamptz, 0)
             SELECT f.micros AS "from", u.micros AS "to", total AS sum,
                    (extract(epoch FROM purser_sum_reached_at($1, f.at, total)) * 1000000)::bigint AS at
               FROM times f JOIN times u ON f.at < u.at, purser_counted_sum($1, f.at, u.at) total`,
            [agent.agentId],
          );
          for (const { from, to, sum: total, at } of rows) {
            const within = counted
              .filter((payment) => payment.at > from && payment.at <= to)
              .sort((a, b) => byValue(a.at, b.at));
            same(total, sum(within), "a sum of a stretch");
            if (total > 0n) same(at, within.at(-1)?.at, "when a sum is reached");
          }
          stretches += rows.length;
          const found = await pool.query<{ level: number }>(
            "SELECT level FROM payment_sums WHERE agent_id = $1",
            [agent.agentId],
          );
          for (const { level } of found.rows) levels[level === 1 ? 0 : 1] += 1;
        }

        async function windowSum(): Promise<bigint> {
          const { rows } = await pool.query<{ sum: bigint }>(
            `SELECT COALESCE(sum(amount), 0) AS sum FROM payments
              WHERE agent_id = $1 AND status IN ('reserved', 'submitted', 'settled', 'unknown')
                AND created_at > clock_timestamp() - interval '24 hours'`,
            [agent.agentId],
          );
          return rows[0]?.sum ?? 0n;
        }
      },
    ),
    { numRuns: RUNS },
  );
  t.ok(decisions > RUNS * 3, `${decisions} decisions`);
  t.ok(denials > RUNS / 2, `${denials} denials`);
  t.ok(stretches > RUNS, `${stretches} stretches`);
  t.ok(levels[0] > RUNS / 2 && levels[1] > RUNS / 10, `${levels.join(" and ")} sums`);
});

const sum = (payments: Payment[]): bigint =>
  payments.reduce((total, payment) => total + payment.amount, 0n);
const byValue = (left: bigint, right: bigint): number => (left < right ? -1 : left > right ? 1 : 0);
const toMs = (micros: bigint): number => Number((micros + 999n) / 1000n);

function same(actual: unknown, expected: unknown, what: string): void {
  if (actual !== expected)
    throw new Error(`${what}: ${String(actual)}, the model says ${String(expected)}`);
}
