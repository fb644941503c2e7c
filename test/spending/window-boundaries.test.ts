// Goal: the rolling window counts to the microsecond on the database clock, and says exactly when a refused amount fits.
import t from "tap";
import { createPool } from "../../server/infra/db/pool.ts";
import { reserve, voidUnsigned } from "../../server/plugins/guardrails/store.ts";
import { readLimits } from "../../server/plugins/guardrails/store.ts";
import { Guardrails } from "../../server/plugins/guardrails/decide.ts";
import type { ReserveResult } from "../../server/plugins/guardrails/types.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { reserveRequest, seedAgent, type SeededAgent } from "./guardrails-sql.helper.ts";

const database = await testDatabase(t);
const pool = createPool(database.url, { maxConnections: 5 });
t.teardown(() => pool.end());
const guardrails = new Guardrails({
  reserve: (request) => reserve(pool, request),
  log: { info: () => undefined, error: () => undefined },
});
const spend = (agent: SeededAgent, amount: bigint) =>
  guardrails.reserve(reserveRequest(agent, amount));
const usdc = 1_000_000n;

/** Makes a payment older, and the tail with it, as if time had passed. */
async function age(agent: SeededAgent, interval: string): Promise<void> {
  await pool.query(
    "UPDATE payments SET created_at = created_at - $2::interval WHERE agent_id = $1",
    [agent.agentId, interval],
  );
  await pool.query(
    "UPDATE agents SET window_tail_at = window_tail_at - $2::interval WHERE id = $1",
    [agent.agentId, interval],
  );
}

function denied(result: ReserveResult) {
  if (result.kind !== "denied") throw new Error(`expected a denial, got ${result.kind}`);
  return result.error;
}

t.test("equal to the limit passes, one atomic unit more does not", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 10n * usdc });
  t.equal((await spend(agent, 10n * usdc)).kind, "reserved");
  const error = denied(await spend(agent, 1n));
  t.equal(error.code, "daily_limit_exceeded");
  t.match(error.extra, {
    blocked: true,
    retryable: true,
    policy: {
      rule: "daily_limit",
      window: "24h",
      limit: "10",
      spent: "0",
      reserved: "10",
      remaining: "0",
      requested: "0.000001",
    },
  });
});

t.test("23:59:59 old counts; 24:00:00 old is free", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 10n });
  await spend(agent, 10n);
  await age(agent, "23 hours 59 minutes 59 seconds");
  t.equal(denied(await spend(agent, 1n)).code, "daily_limit_exceeded");
  await age(agent, "1 second");
  t.equal((await spend(agent, 10n)).kind, "reserved");
});

t.test("availableAt is the instant the amount fits, to the millisecond", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 10n });
  for (const amount of [3n, 3n, 4n]) await spend(agent, amount);
  const { rows } = await pool.query<{ created_at: Date; micros: bigint }>(
    `SELECT created_at, (extract(epoch FROM created_at) * 1000000)::bigint AS micros
       FROM payments WHERE agent_id = $1 ORDER BY created_at`,
    [agent.agentId],
  );
  const expected = (index: number): string => {
    const micros = (rows[index]?.micros ?? 0n) + 86_400_000_000n;
    return new Date(Number((micros + 999n) / 1000n)).toISOString();
  };
  for (const [amount, index] of [
    [1n, 0],
    [3n, 0],
    [4n, 1],
    [6n, 1],
    [7n, 2],
    [10n, 2],
  ] as const) {
    const error = denied(await spend(agent, amount));
    t.equal(error.extra["availableAt"], expected(index), `for ${amount}`);
    t.equal(error.extra["nextReleaseAt"], expected(0));
  }
  const never = denied(await spend(agent, 11n));
  t.equal(never.extra["availableAt"], null, "above the whole limit: never");
  t.equal(never.extra["retryable"], false);
});

t.test("a lowered limit leaves nothing, a raised one acts at once", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 10n });
  await spend(agent, 8n);
  await pool.query("UPDATE agents SET daily_limit = 5 WHERE id = $1", [agent.agentId]);
  const limits = (await readLimits(pool, [agent.agentId])).get(agent.agentId);
  t.match(limits, { limitAtomic: 5n, reservedAtomic: 8n, remainingAtomic: 0n });
  t.equal(denied(await spend(agent, 1n)).code, "daily_limit_exceeded");
  await pool.query("UPDATE agents SET daily_limit = 9 WHERE id = $1", [agent.agentId]);
  t.equal((await spend(agent, 1n)).kind, "reserved");
});

t.test("a reservation voided after it left the window is not given back twice", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 10n });
  const first = await spend(agent, 10n);
  if (first.kind !== "reserved") throw new Error(first.kind);
  await age(agent, "24 hours");
  t.equal((await spend(agent, 10n)).kind, "reserved");
  t.ok(
    await voidUnsigned(pool, {
      agentId: agent.agentId,
      paymentId: first.paymentId,
      code: "not_signed",
      detail: "",
    }),
  );
  t.equal(denied(await spend(agent, 1n)).code, "daily_limit_exceeded");
});

t.test("a limit of 0 and an empty allowlist pay nothing", async (t) => {
  const zero = await seedAgent(pool, { dailyLimit: 0n });
  t.equal(denied(await spend(zero, 1n)).code, "daily_limit_exceeded");
  const nobody = await seedAgent(pool, { dailyLimit: 10n, allowlist: [] });
  t.equal(denied(await spend(nobody, 1n)).code, "recipient_not_allowed");
});
