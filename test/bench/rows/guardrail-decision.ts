// A decision must not become dearer with history: the same agent rules, 1,000 and 1,000,000 payments in the window.
import { createPool, PATIENCE, type Pool } from "../../../server/infra/db/pool.ts";
import { readLimits, reserve } from "../../../server/plugins/guardrails/store.ts";
import type { DenialCode } from "../../../server/plugins/guardrails/types.ts";
import { newId } from "../../../server/core/ids.ts";
import { testDatabase } from "../../helpers/postgres.ts";
import {
  ASSET,
  CHAIN_ID,
  PAYEE,
  reserveRequest,
  seedAgent,
  setPayee,
  type SeededAgent,
} from "../../spending/guardrails-sql.helper.ts";
import type { BenchContext, BenchRow, RowResult } from "../context.ts";

const TARGET = 1.2;
const FEW = 1_000;
const MANY = 1_000_000;
const ENOUGH = 10n ** 18n;
const ROUNDS = 3_000;
const WARM_UP = 300;

export const rows: BenchRow[] = [
  {
    name: "guardrail decision, 1,000,000 payments in the window",
    target: `<= ${TARGET}x of 1,000`,
    run: (context) => compare(context, decide, {}),
  },
  {
    name: "denied guardrail decision, 1,000,000 payments in the window",
    target: `<= ${TARGET}x of 1,000`,
    run: (context) => compare(context, refusedBy("daily_limit_exceeded"), {}),
  },
  {
    name: "guardrail decision, every limit set, 1,000,000 payments in 30 days",
    target: `<= ${TARGET}x of 1,000`,
    run: (context) => compare(context, decide, { hours: MONTH, everyLimit: true }),
  },
  {
    name: "guardrail decision denied by the month, 1,000,000 payments in it",
    target: `<= ${TARGET}x of 1,000`,
    run: (context) =>
      compare(context, refusedBy("monthly_limit_exceeded"), { hours: MONTH, everyLimit: true }),
  },
  {
    name: "guardrail decision denied by the payee's day, 1,000,000 payments in it",
    target: `<= ${TARGET}x of 1,000`,
    run: (context) => compare(context, refusedBy("payee_limit_exceeded"), { everyLimit: true }),
  },
  {
    name: "limits of an agent idle for 12 hours (GET /api/agents/me), 1,000,000 payments",
    target: `<= ${TARGET}x of 1,000`,
    run: (context) => compare(context, readIdle, { idleHours: 12 }),
  },
];

type Timed = (pool: Pool, agent: SeededAgent, count: number) => Promise<number>;

const MONTH = 720;
interface History {
  /** The payments lie in the last so many. */
  hours?: number;
  idleHours?: number;
  everyLimit?: boolean;
}

async function compare(context: BenchContext, timed: Timed, history: History): Promise<RowResult> {
  const closers: (() => unknown)[] = [];
  const database = await testDatabase({
    teardown: (close: () => unknown) => void closers.push(close),
  });
  const pool = createPool(database.url, { maxConnections: 1, patience: PATIENCE.none });
  try {
    const counts = [FEW, MANY] as const;
    const agents = [await seed(pool, FEW, history), await seed(pool, MANY, history)] as const;
    await pool.query("VACUUM ANALYZE payments, payment_sums");
    context.say("seeded; deciding in turns");
    const times: [number[], number[]] = [[], []];
    for (let round = 0; round < ROUNDS; round += 1) {
      // In turns, so that whatever else the machine does falls on both alike.
      const order = round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const);
      for (const which of order) {
        const elapsedMs = await timed(pool, agents[which], counts[which]);
        if (round >= WARM_UP) times[which].push(elapsedMs);
      }
    }
    const [few, many] = [median(times[0]), median(times[1])];
    return {
      reference: `${few.toFixed(3)} ms`,
      ours: `${many.toFixed(3)} ms`,
      ratio: many / few,
      reached: many / few <= TARGET,
      details: { meanFewMs: mean(times[0]), meanManyMs: mean(times[1]) },
    };
  } finally {
    await pool.end();
    for (const close of closers.reverse()) await close();
  }
}

async function decide(pool: Pool, agent: SeededAgent): Promise<number> {
  const request = { ...reserveRequest(agent, 1n), paymentId: newId("pay"), dryRun: false };
  const startMs = performance.now();
  const { outcome } = await reserve(pool, request);
  const elapsedMs = performance.now() - startMs;
  if (outcome !== "reserved") throw new Error(outcome);
  // Out of the outstanding ones again, as a settlement would: what is compared is history.
  await pool.query("SELECT purser_payment_settled($1, $2, $3, 1, now())", [
    agent.agentId,
    request.paymentId,
    `0x${"cd".repeat(32)}`,
  ]);
  return elapsedMs;
}

/** Asks for all of the limit but half of what is used of it: half of the window has to leave first. */
const refusedBy =
  (code: DenialCode): Timed =>
  async (pool, agent, count) => {
    // Of the same limits the one that refuses is the lowest.
    const limit = ENOUGH / 2n;
    await pool.query(
      code === "payee_limit_exceeded"
        ? "UPDATE allowlist_entries SET daily_limit = $2 WHERE agent_id = $1"
        : `UPDATE agents SET ${code.replace("_exceeded", "")} = $2 WHERE id = $1`,
      [agent.agentId, String(limit)],
    );
    const request = {
      ...reserveRequest(agent, limit - BigInt(count) / 2n),
      paymentId: newId("pay"),
      dryRun: false,
    };
    const startMs = performance.now();
    const row = await reserve(pool, request);
    const elapsedMs = performance.now() - startMs;
    if (row.code !== code || row.availableAt === null) throw new Error(String(row.code));
    return elapsedMs;
  };
async function readIdle(pool: Pool, agent: SeededAgent): Promise<number> {
  const startMs = performance.now();
  await readLimits(pool, [agent.agentId]);
  return performance.now() - startMs;
}

/** Settled payments spread evenly over the time, so that some leave the window all the time. */
async function seed(pool: Pool, count: number, history: History): Promise<SeededAgent> {
  const { hours = 24, idleHours = 0, everyLimit = false } = history;
  const agent = await seedAgent(pool, {
    dailyLimit: ENOUGH,
    ...(everyLimit && {
      weeklyLimit: ENOUGH,
      monthlyLimit: ENOUGH,
      paymentsPerHour: 1_000_000_000,
    }),
  });
  if (everyLimit) await setPayee(pool, agent.agentId, PAYEE, { dailyLimit: ENOUGH });
  await pool.query("ALTER TABLE payments DISABLE TRIGGER USER");
  await pool.query(
    `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, tx_hash,
                           block_number, created_at, settled_at)
     SELECT $1, 'pay_' || n, 'spend', 'settled', $2, $3, $4, 1, $5, 1, at, at
       FROM generate_series(1, $6::int) AS n,
            LATERAL (SELECT now() - $8 * interval '1 hour' * (n::float8 / $6::int)
                           - $7 * interval '1 hour' AS at) times`,
    [agent.agentId, CHAIN_ID, ASSET, PAYEE, `0x${"ab".repeat(32)}`, count, idleHours, hours],
  );
  await pool.query("ALTER TABLE payments ENABLE TRIGGER USER");
  await pool.query(
    `UPDATE agents SET window_tail_at = edge.at, window_sum = (
              SELECT count(*) FROM payments p WHERE p.agent_id = agents.id AND p.created_at > edge.at)
       FROM (SELECT now() - interval '24 hours 1 second' - $2 * interval '1 hour' AS at) edge WHERE id = $1`,
    [agent.agentId, idleHours],
  );
  await pool.query("SELECT purser_close_sums($1)", [agent.agentId]);
  return agent;
}

const mean = (values: number[]): number =>
  values.reduce((total, value) => total + value, 0) / values.length;
function median(values: number[]): number {
  const sorted = values.sort((left, right) => left - right);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}
