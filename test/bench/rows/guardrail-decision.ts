// The time of a decision must not grow with history: the same rules with 1,000 and with 1,000,000 payments in
// the window.
import { Pool as HttpPool } from "undici";
import { createPool, TIMEOUTS, type Pool } from "../../../server/infra/db/pool.ts";
import { reserve } from "../../../server/plugins/guardrails/store.ts";
import type { DenialCode } from "../../../server/plugins/guardrails/rules.ts";
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
import type { BenchContext, BenchRow, Figure } from "../context.ts";
import { alone, figure, median, ROUNDS } from "../rounds.ts";
import { makeAgents } from "./spend-throughput.ts";

const TARGET = 1.2;
const FEW = 1_000;
const MANY = 1_000_000;
const ENOUGH = 10n ** 18n;
const TURNS = 3_000;
const WARM_UP = 300;
const IDLE_HOURS = 12;

export const rows: BenchRow[] = [
  {
    name: "guardrail decision, 1,000,000 payments in the window",
    run: (context) => compare(context, decide, {}),
  },
  {
    name: "denied guardrail decision, 1,000,000 payments in the window",
    run: (context) => compare(context, refusedBy("daily_limit_exceeded"), {}),
  },
  {
    name: "guardrail decision, every limit set, 1,000,000 payments in 30 days",
    run: (context) => compare(context, decide, { hours: MONTH, everyLimit: true }),
  },
  {
    name: "guardrail decision denied by the month, 1,000,000 payments in it",
    run: (context) =>
      compare(context, refusedBy("monthly_limit_exceeded"), { hours: MONTH, everyLimit: true }),
  },
  {
    name: "guardrail decision denied by the payee's day, 1,000,000 payments in it",
    run: (context) => compare(context, refusedBy("payee_limit_exceeded"), { everyLimit: true }),
  },
  {
    name: "GET /api/agents/me of an agent idle for 12 hours, 1,000,000 payments",
    run: readIdle,
  },
];

type Timed = (pool: Pool, agent: SeededAgent, count: number) => Promise<number>;

const MONTH = 720;
interface History {
  /** The payments are spread over the last hours. */
  hours?: number;
  idleHours?: number;
  everyLimit?: boolean;
}

async function compare(context: BenchContext, timed: Timed, history: History): Promise<Figure[]> {
  const closers: (() => unknown)[] = [];
  const database = await testDatabase({
    teardown: (close: () => unknown) => void closers.push(close),
  });
  const pool = createPool(database.url, { maxConnections: 1, timeouts: TIMEOUTS.none });
  try {
    const agents = [await seed(pool, FEW, history), await seed(pool, MANY, history)] as const;
    await pool.query("VACUUM ANALYZE payments, payment_sums");
    context.print("seeded; deciding in turns");
    const counts = [FEW, MANY] as const;
    return await inTurns((which) => timed(pool, agents[which], counts[which]));
  } finally {
    await pool.end();
    for (const close of closers.reverse()) await close();
  }
}

/**
 * Measures both alternately, so that other load on the machine affects both equally; one median for each part
 * of the time.
 */
async function inTurns(timed: (which: 0 | 1) => Promise<number>): Promise<Figure[]> {
  const times: [number[], number[]] = [[], []];
  for (let turn = 0; turn < TURNS; turn += 1) {
    for (const which of turn % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)) {
      const elapsedMs = await timed(which);
      if (turn >= WARM_UP) times[which].push(elapsedMs);
    }
  }
  const part = Math.ceil((TURNS - WARM_UP) / ROUNDS);
  const measured = await alone(async (round) => {
    const [few = 0, many = 0] = times.map((all) =>
      median(all.slice(round * part, (round + 1) * part)),
    );
    return { few, many };
  });
  return [
    figure(measured, { what: "p50", unit: "ms", better: "less", of: ({ many }) => many }),
    figure(measured, {
      what: "times as much as of 1,000",
      unit: "",
      better: "less",
      of: ({ few, many }) => many / few,
      target: { label: `<= ${TARGET}`, reached: ({ ours }) => ours <= TARGET },
    }),
  ];
}

async function decide(pool: Pool, agent: SeededAgent): Promise<number> {
  const request = { ...reserveRequest(agent, 1n), paymentId: newId("pay"), dryRun: false };
  const startMs = performance.now();
  const { outcome } = await reserve(pool, request);
  const elapsedMs = performance.now() - startMs;
  if (outcome !== "reserved") throw new Error(outcome);
  // Settled at once, so that the number of outstanding payments stays the same and only the history differs.
  await pool.query(
    "SELECT purser_payments_settled(ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[1]::bigint[], ARRAY[now()])",
    [agent.agentId, request.paymentId, `0x${"cd".repeat(32)}`],
  );
  return elapsedMs;
}

/**
 * Requests the whole limit minus half of its used part, so half of the window must expire before the amount
 * fits.
 */
const refusedBy =
  (code: DenialCode): Timed =>
  async (pool, agent, count) => {
    // Half of the other limits, so that this limit is the one that refuses.
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
/** Over HTTP, on one connection. */
async function readIdle(context: BenchContext): Promise<Figure[]> {
  const world = await context.world({
    oursAlone: true,
    env: { RATE_LIMITS: "agent=1000000" },
  });
  const agents = await makeAgents(world, 2);
  const pool = createPool(world.databaseUrl, { maxConnections: 1, timeouts: TIMEOUTS.none });
  const http = new HttpPool(world.ours, { connections: 1, pipelining: 1 });
  try {
    for (const [which, { id }] of agents.entries())
      await fill(pool, id, { count: which === 0 ? FEW : MANY, idleHours: IDLE_HOURS });
    await pool.query("VACUUM ANALYZE payments, payment_sums");
    context.print("seeded; asking in turns");
    return await inTurns(async (which) => {
      const headers = { authorization: `Bearer ${agents[which]?.apiKey ?? ""}` };
      const startMs = performance.now();
      const { statusCode, body } = await http.request({
        path: "/api/agents/me",
        method: "GET",
        headers,
      });
      const text = await body.text();
      const elapsedMs = performance.now() - startMs;
      if (statusCode !== 200) throw new Error(text);
      return elapsedMs;
    });
  } finally {
    await http.close();
    await pool.end();
  }
}

async function seed(pool: Pool, count: number, history: History): Promise<SeededAgent> {
  const { everyLimit = false } = history;
  const agent = await seedAgent(pool, {
    dailyLimit: ENOUGH,
    ...(everyLimit && {
      weeklyLimit: ENOUGH,
      monthlyLimit: ENOUGH,
      paymentsPerHour: 1_000_000_000,
    }),
  });
  if (everyLimit) await setPayee(pool, agent.agentId, PAYEE, { dailyLimit: ENOUGH });
  await fill(pool, agent.agentId, { count, ...history });
  return agent;
}

/** Settled payments spread evenly over the time, so that some leave the window continuously. */
async function fill(
  pool: Pool,
  agentId: string,
  { count, hours = 24, idleHours = 0 }: History & { count: number },
): Promise<void> {
  await pool.query("ALTER TABLE payments DISABLE TRIGGER USER");
  await pool.query(
    `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, tx_hash,
                           block_number, created_at, settled_at)
     SELECT $1, 'pay_' || n, 'spend', 'settled', $2, $3, $4, 1, $5, 1, at, at
       FROM generate_series(1, $6::int) AS n,
            LATERAL (SELECT now() - $8 * interval '1 hour' * (n::float8 / $6::int)
                           - $7 * interval '1 hour' AS at) times`,
    [agentId, CHAIN_ID, ASSET, PAYEE, `0x${"ab".repeat(32)}`, count, idleHours, hours],
  );
  await pool.query("ALTER TABLE payments ENABLE TRIGGER USER");
  await pool.query(
    `UPDATE agents SET window_tail_at = edge.at, window_sum = (
              SELECT count(*) FROM payments p WHERE p.agent_id = agents.id AND p.created_at > edge.at)
       FROM (SELECT now() - interval '24 hours 1 second' - $2 * interval '1 hour' AS at) edge WHERE id = $1`,
    [agentId, idleHours],
  );
  await pool.query("SELECT purser_write_sums($1)", [agentId]);
}
