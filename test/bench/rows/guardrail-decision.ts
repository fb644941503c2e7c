// A decision must not become dearer with history: the same agent rules, 1,000 and 1,000,000 payments in the window.
import { createPool, PATIENCE, type Pool } from "../../../server/infra/db/pool.ts";
import { readLimits, reserve } from "../../../server/plugins/guardrails/store.ts";
import { newId } from "../../../server/core/ids.ts";
import { testDatabase } from "../../helpers/postgres.ts";
import {
  ASSET,
  CHAIN_ID,
  PAYEE,
  reserveRequest,
  seedAgent,
  type SeededAgent,
} from "../../spending/guardrails-sql.helper.ts";
import type { BenchContext, BenchRow, RowResult } from "../context.ts";

const TARGET = 1.2;
const FEW = 1_000;
const MANY = 1_000_000;
const ROUNDS = 3_000;
const WARM_UP = 300;

export const rows: BenchRow[] = [
  {
    name: "guardrail decision, 1,000,000 payments in the window",
    target: `<= ${TARGET}x of 1,000`,
    run: (context) => compare(context, decide),
  },
  {
    name: "denied guardrail decision, 1,000,000 payments in the window",
    target: `<= ${TARGET}x of 1,000`,
    run: (context) => compare(context, deny),
  },
  {
    name: "limits of an agent idle for 12 hours (GET /api/agents/me), 1,000,000 payments",
    target: `<= ${TARGET}x of 1,000`,
    run: (context) => compare(context, readIdle, 12),
  },
];

type Timed = (pool: Pool, agent: SeededAgent) => Promise<number>;

async function compare(context: BenchContext, timed: Timed, idleHours = 0): Promise<RowResult> {
  const closers: (() => unknown)[] = [];
  const database = await testDatabase({
    teardown: (close: () => unknown) => void closers.push(close),
  });
  const pool = createPool(database.url, { maxConnections: 1, patience: PATIENCE.none });
  try {
    const agents = [await seed(pool, FEW, idleHours), await seed(pool, MANY, idleHours)] as const;
    await pool.query("VACUUM ANALYZE payments, payment_sums");
    context.say("seeded; deciding in turns");
    const times: [number[], number[]] = [[], []];
    for (let round = 0; round < ROUNDS; round += 1) {
      // In turns, so that whatever else the machine does falls on both alike.
      const order = round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const);
      for (const which of order) {
        const elapsedMs = await timed(pool, agents[which]);
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

/** Asks for half of the whole limit, of which most is free: half of the window has to leave first. */
async function deny(pool: Pool, agent: SeededAgent): Promise<number> {
  const { rows } = await pool.query<{ limit: bigint; sum: bigint }>(
    'SELECT daily_limit AS "limit", window_sum AS sum FROM agents WHERE id = $1',
    [agent.agentId],
  );
  const [row] = rows;
  if (!row) throw new Error("no agent");
  const request = {
    ...reserveRequest(agent, row.limit - row.sum / 2n),
    paymentId: newId("pay"),
    dryRun: false,
  };
  const startMs = performance.now();
  const { code, availableAt } = await reserve(pool, request);
  const elapsedMs = performance.now() - startMs;
  if (code !== "daily_limit_exceeded" || availableAt === null) throw new Error(String(code));
  return elapsedMs;
}

async function readIdle(pool: Pool, agent: SeededAgent): Promise<number> {
  const startMs = performance.now();
  await readLimits(pool, [agent.agentId]);
  return performance.now() - startMs;
}

/** Settled payments spread evenly over 24 hours, so that some leave the window all the time. */
async function seed(pool: Pool, count: number, idleHours: number): Promise<SeededAgent> {
  const agent = await seedAgent(pool, { dailyLimit: 10n ** 18n });
  await pool.query("ALTER TABLE payments DISABLE TRIGGER USER");
  await pool.query(
    `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, tx_hash,
                           block_number, created_at, settled_at)
     SELECT $1, 'pay_' || n, 'spend', 'settled', $2, $3, $4, 1, $5, 1, at, at
       FROM generate_series(1, $6::int) AS n,
            LATERAL (SELECT now() - interval '24 hours' * (n::float8 / $6::int)
                           - $7 * interval '1 hour' AS at) times`,
    [agent.agentId, CHAIN_ID, ASSET, PAYEE, `0x${"ab".repeat(32)}`, count, idleHours],
  );
  await pool.query("ALTER TABLE payments ENABLE TRIGGER USER");
  await pool.query(
    `UPDATE agents SET window_sum = $2, window_tail_at = now() - interval '24 hours 1 second' - $3 * interval '1 hour'
      WHERE id = $1`,
    [agent.agentId, count, idleHours],
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
