// Goal: the rolling window is exact to the microsecond on the database's clock, and reports exactly when a refused
// amount fits.
import t, { type Test } from "tap";
import type { Address } from "viem";
import { payeeKey } from "../../server/core/rules.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { reserve, voidUnsigned } from "../../server/plugins/guardrails/store.ts";
import { readLimits } from "../../server/plugins/guardrails/store.ts";
import { Guardrails } from "../../server/plugins/guardrails/decide.ts";
import type { ReserveResult } from "../../server/plugins/guardrails/types.ts";
import { withOwnClock } from "../helpers/database-clock.ts";
import { testDatabase } from "../helpers/postgres.ts";
import {
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
const pool = createPool(database.url, { maxConnections: 5 });
t.teardown(() => pool.end());
const guardrails = new Guardrails({
  reserve: (request) => reserve(pool, request),
  log: { info: () => undefined, error: () => undefined },
});
const spend = (agent: SeededAgent, amount: bigint) =>
  guardrails.reserve(reserveRequest(agent, amount));
const usdc = 1_000_000n;
const OTHER: Address = "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc";

const HOUR_MICROS = 3_600_000_000n;
const pass = (hours: bigint) => clock.pass(hours * HOUR_MICROS);

/** One microsecond before the oldest payment leaves the window there is no room, and then there is. */
async function spendsOnceFree(
  t: Test,
  agent: SeededAgent,
  { amount, hours, code }: { amount: bigint; hours: bigint; code: string },
): Promise<void> {
  const { rows } = await pool.query<{ at: bigint }>(
    `SELECT (extract(epoch FROM min(created_at)) * 1000000)::bigint AS at FROM payments
      WHERE agent_id = $1 AND status = 'reserved'`,
    [agent.agentId],
  );
  const freeAt = (rows[0]?.at ?? 0n) + hours * HOUR_MICROS;
  await clock.set(freeAt - 1n);
  t.equal(denied(await spend(agent, amount)).code, code);
  await clock.set(freeAt);
  t.equal((await spend(agent, amount)).kind, "reserved");
}

function denied(result: ReserveResult) {
  if (result.kind !== "denied") throw new Error(`expected a denial, got ${result.kind}`);
  return result.error;
}

t.test("exactly the limit is paid, one atomic unit more is refused", async (t) => {
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

t.test("a payment counts until exactly 24 hours later", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 10n });
  await spend(agent, 10n);
  const code = "daily_limit_exceeded";
  await spendsOnceFree(t, agent, { amount: 10n, hours: 24n, code });
});

t.test("availableAt is exactly when the amount fits, to the millisecond", async (t) => {
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

t.test("a lowered limit leaves nothing, a raised one applies at once", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 10n });
  await spend(agent, 8n);
  await pool.query("UPDATE agents SET daily_limit = 5 WHERE id = $1", [agent.agentId]);
  const limits = (await readLimits(pool, [agent.agentId])).get(agent.agentId);
  t.match(limits, { limitAtomic: 5n, reservedAtomic: 8n, remainingAtomic: 0n });
  t.equal(denied(await spend(agent, 1n)).code, "daily_limit_exceeded");
  await pool.query("UPDATE agents SET daily_limit = 9 WHERE id = $1", [agent.agentId]);
  t.equal((await spend(agent, 1n)).kind, "reserved");
});

t.test("a reservation voided after it left the window is subtracted once", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 10n });
  const first = await spend(agent, 10n);
  if (first.kind !== "reserved") throw new Error(first.kind);
  await pass(24n);
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

t.test("with a limit of 0 or an empty allowlist nothing can be paid", async (t) => {
  const zero = await seedAgent(pool, { dailyLimit: 0n });
  t.equal(denied(await spend(zero, 1n)).code, "daily_limit_exceeded");
  const withoutPayees = await seedAgent(pool, { dailyLimit: 10n, allowlist: [] });
  t.equal(denied(await spend(withoutPayees, 1n)).code, "recipient_not_allowed");
});

interface LongWindow {
  rule: string;
  code: string;
  window: string;
  hours: bigint;
  rules: Partial<SeededRules>;
}
const LONG: LongWindow[] = [
  {
    rule: "weekly_limit",
    code: "weekly_limit_exceeded",
    window: "7d",
    hours: 168n,
    rules: { weeklyLimit: 10n },
  },
  {
    rule: "monthly_limit",
    code: "monthly_limit_exceeded",
    window: "30d",
    hours: 720n,
    rules: { monthlyLimit: 10n },
  },
];
for (const { rule, code, window, hours, rules } of LONG)
  t.test(`${rule}: exact in amount and time, and availableAt is right`, async (t) => {
    const agent = await seedAgent(pool, { dailyLimit: 100n, ...rules });
    await spend(agent, 4n);
    await pass(48n);
    t.equal((await spend(agent, 6n)).kind, "reserved", "exactly the limit");
    const error = denied(await spend(agent, 1n));
    t.equal(error.code, code);
    t.match(error.extra, {
      retryable: true,
      policy: { rule, window, limit: "0.00001", reserved: "0.00001", remaining: "0" },
    });
    const { rows } = await pool.query<{ at: Date }>(
      `SELECT date_trunc('milliseconds', created_at + $2::interval + interval '999 microseconds') AS at
         FROM payments WHERE agent_id = $1 AND status = 'reserved' ORDER BY created_at`,
      [agent.agentId, `${window.slice(0, -1)} days`],
    );
    const [first, second] = rows.map(({ at }) => at.toISOString());
    t.equal(error.extra["availableAt"], first);
    t.equal(error.extra["nextReleaseAt"], first);
    const more = denied(await spend(agent, 5n));
    t.equal(more.extra["availableAt"], second, "both payments have to leave the window");
    t.equal(denied(await spend(agent, 11n)).extra["availableAt"], null, "never");

    const limits = (await readLimits(pool, [agent.agentId])).get(agent.agentId);
    const reported = rule === "weekly_limit" ? limits?.weekly : limits?.monthly;
    t.match(reported, { limitAtomic: 10n, reservedAtomic: 10n, remainingAtomic: 0n });
    t.equal(reported?.nextReleaseAt?.toISOString(), first);
    await spendsOnceFree(t, agent, { amount: 4n, hours, code });
    t.equal(denied(await spend(agent, 1n)).code, code);
  });

t.test("payments per hour counts payments of any amount, without voided ones", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 100n, paymentsPerHour: 3 });
  const first = await spend(agent, 1n);
  if (first.kind !== "reserved") throw new Error(first.kind);
  await spend(agent, 9n);
  await spend(agent, 2n);
  const error = denied(await spend(agent, 1n));
  t.equal(error.code, "payment_rate_exceeded");
  t.match(error.extra, {
    retryable: true,
    policy: { rule: "payments_per_hour", window: "1h", limit: "3", reserved: "3", remaining: "0" },
  });
  await voidUnsigned(pool, {
    ...agent,
    paymentId: first.paymentId,
    code: "not_signed",
    detail: "",
  });
  t.equal((await spend(agent, 1n)).kind, "reserved", "the voided one made room");
  await clock.pass(HOUR_MICROS - 30_000_000n);
  const late = denied(await spend(agent, 1n));
  t.equal(late.code, "payment_rate_exceeded");
  const { rows } = await pool.query<{ at: Date }>(
    `SELECT date_trunc('milliseconds', min(created_at) + interval '1 hour' + interval '999 microseconds') AS at
       FROM payments WHERE agent_id = $1 AND status = 'reserved'`,
    [agent.agentId],
  );
  t.equal(late.extra["availableAt"], rows[0]?.at.toISOString());
  const code = "payment_rate_exceeded";
  await spendsOnceFree(t, agent, { amount: 1n, hours: 1n, code });
  await setRules(pool, agent.agentId, { dailyLimit: 100n, paymentsPerHour: 0 });
  const none = denied(await spend(agent, 1n));
  t.match(none.extra, { availableAt: null, retryable: false }, "no payment at all");
});

t.test("a payee's limits are separate, and survive its removal from the list", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 100n, allowlist: [PAYEE, OTHER] });
  const pay = (to: Address, amount: bigint) =>
    guardrails.reserve(reserveRequest(agent, amount, { to }));
  await pay(PAYEE, 3n);
  await setPayee(pool, agent.agentId, PAYEE, { dailyLimit: 10n, perPaymentLimit: 7n });
  const large = denied(await pay(PAYEE, 8n));
  t.equal(large.code, "payee_per_payment_limit_exceeded");
  t.match(large.extra, {
    retryable: false,
    availableAt: null,
    policy: { rule: "payee_per_payment_limit", window: "payment", limit: "0.000007" },
  });
  t.equal((await pay(OTHER, 30n)).kind, "reserved", "another payee has no such limit");
  t.equal((await pay(PAYEE, 7n)).kind, "reserved", "a payment from before the limit counts: 3 + 7");
  const full = denied(await pay(PAYEE, 1n));
  t.equal(full.code, "payee_limit_exceeded");
  t.match(full.extra, {
    policy: { rule: "payee_limit", window: "24h", limit: "0.00001", reserved: "0.00001" },
  });
  t.ok(full.extra["availableAt"]);
  await pool.query("DELETE FROM allowlist_entries WHERE agent_id = $1", [agent.agentId]);
  t.equal(denied(await pay(PAYEE, 1n)).code, "recipient_not_allowed");
  await pool.query(
    "INSERT INTO allowlist_entries (agent_id, address, daily_limit) VALUES ($1, $2, 11)",
    [agent.agentId, PAYEE],
  );
  t.equal(denied(await pay(PAYEE, 2n)).code, "payee_limit_exceeded", "nothing was reset");
  t.equal((await pay(PAYEE, 1n)).kind, "reserved");
  const limits = await readLimits(pool, [agent.agentId], { payees: true });
  t.match(limits.get(agent.agentId)?.payees.get(payeeKey({ address: PAYEE, site: "" })), {
    limitAtomic: 11n,
    reservedAtomic: 11n,
    remainingAtomic: 0n,
  });
  await pass(25n);
  t.equal((await pay(PAYEE, 11n)).kind, "reserved", "a day later");
});

t.test("which limit of a payee is waited for, at which site", async (t) => {
  const [agent, other] = [
    await seedAgent(pool, { dailyLimit: 100n, allowlist: [] }),
    await seedAgent(pool, { dailyLimit: 100n, allowlist: [] }),
  ];
  const [here, there, elsewhere] = ["https://a.example", "https://b.example", "https://c.example"];
  for (const [{ agentId }, address, site, limit] of [
    [agent, PAYEE, "", 10],
    [agent, PAYEE, here, 20],
    [other, PAYEE, "", 30],
    [other, PAYEE, there, 30],
    [other, OTHER, "", 30],
  ] as const)
    await pool.query(
      "INSERT INTO allowlist_entries (agent_id, address, site, daily_limit) VALUES ($1, $2, $3, $4)",
      [agentId, address, site, limit],
    );
  const fits = async (payee: Address, site: string) => {
    const { rows } = await pool.query<{ fits: boolean }>(
      `SELECT available_at IS NOT NULL AS fits
         FROM purser_release_times($1, $2, $3, 15, clock_timestamp()) WHERE rule = 'payee_limit'`,
      [agent.agentId, payee, site],
    );
    return rows.map((row) => row.fits);
  };
  t.same(await fits(PAYEE, ""), [false], "no site: the limit for everywhere");
  t.same(await fits(PAYEE, here), [true], "its own limit there");
  t.same(await fits(PAYEE, elsewhere), [false], "another site: the limit for everywhere");
  t.same(await fits(PAYEE, there), [false], "another agent's limit there does not count");
  t.same(await fits(OTHER, ""), [], "nor its limit for another payee");
  t.same(
    await fits(OTHER, here),
    [],
    "the limit of the payee that is listed there is not this one's",
  );
});

t.test("when an amount fits, as of a moment", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 10n, paymentsPerHour: 1 });
  await clock.set((clock.now() / HOUR_MICROS + 1n) * HOUR_MICROS);
  const start = clock.now();
  await spend(agent, 4n);
  await pass(10n);
  await spend(agent, 5n);
  const hour = (name: string) =>
    `((extract(epoch FROM ${name}) * 1000000 - $4) / 3600000000)::float`;
  const times = async (amount: number, atHour: number) => {
    const { rows } = await pool.query<{ rule: string; next: number | null; fits: number | null }>(
      `SELECT rule, ${hour("next_release_at")} AS next, ${hour("available_at")} AS fits
         FROM purser_release_times($1, '', '', $2, 'epoch'::timestamptz + ($4 + $3 * 3600000000) * interval '1 microsecond')
        ORDER BY rule`,
      [agent.agentId, amount, atHour, String(start)],
    );
    return rows.map(({ rule, next, fits }) => [rule, next, fits]);
  };
  // [amount, at this hour; the day: next release, fits; payments per hour: the same]
  const cases: [string, number, number, (number | null)[], (number | null)[]][] = [
    ["all that is left", 1, 10, [24, 10], [11, 11]],
    ["one more: when the first payment leaves", 2, 10, [24, 24], [11, 11]],
    ["all of both", 6, 10, [24, 34], [11, 11]],
    ["more than the limit", 11, 10, [24, null], [11, 11]],
    ["before the last decision: as of that one", 1, 9, [24, 10], [11, 11]],
    ["the first one has left, and nothing was decided since", 5, 25, [34, 25], [null, 25]],
    ["the same, one more", 6, 25, [34, 34], [null, 25]],
  ];
  for (const [what, amount, atHour, day, hourly] of cases)
    t.same(
      await times(amount, atHour),
      [
        ["daily_limit", ...day],
        ["payments_per_hour", ...hourly],
      ],
      what,
    );
});

t.test("a payee expires exactly to the microsecond", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 100n });
  await setPayee(pool, agent.agentId, PAYEE, { expiresInMs: 60_000 });
  t.equal((await spend(agent, 1n)).kind, "reserved");
  await clock.pass(60_000_000n - 1n);
  t.equal((await spend(agent, 1n)).kind, "reserved");
  await clock.pass(1n);
  const error = denied(await spend(agent, 1n));
  t.equal(error.code, "payee_expired");
  t.match(error.extra, { blocked: true, retryable: false, policy: { rule: "payee_expiry" } });
});

t.test("a limit set later counts earlier payments", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 100n });
  await spend(agent, 8n);
  await pass(72n);
  const weekly = { dailyLimit: 100n, weeklyLimit: 10n };
  await setRules(pool, agent.agentId, weekly);
  t.equal(denied(await spend(agent, 3n)).code, "weekly_limit_exceeded");
  await setRules(pool, agent.agentId, { dailyLimit: 100n });
  t.equal((await spend(agent, 40n)).kind, "reserved");
  await pass(24n);
  await setRules(pool, agent.agentId, { dailyLimit: 100n, weeklyLimit: 49n });
  t.equal(denied(await spend(agent, 2n)).code, "weekly_limit_exceeded", "8 + 40 + 2");
  t.equal((await spend(agent, 1n)).kind, "reserved");
  await setRules(pool, agent.agentId, { dailyLimit: 100n });
  await pass(1_440n);
  await setRules(pool, agent.agentId, weekly);
  t.equal(
    (await spend(agent, 10n)).kind,
    "reserved",
    "all earlier payments are outside of the window",
  );
});

t.test("after waiting until availableAt, no other limit refuses", async (t) => {
  const agent = await seedAgent(pool, { dailyLimit: 10n, weeklyLimit: 12n });
  await spend(agent, 10n);
  const error = denied(await spend(agent, 3n));
  t.equal(error.code, "daily_limit_exceeded", "the first limit that refuses");
  const week = (await readLimits(pool, [agent.agentId])).get(agent.agentId)?.weekly;
  t.equal(
    error.extra["availableAt"],
    week?.nextReleaseAt?.toISOString(),
    "when all limits have room",
  );
  await pass(24n);
  t.equal(denied(await spend(agent, 3n)).code, "weekly_limit_exceeded");
  await pass(144n);
  t.equal((await spend(agent, 3n)).kind, "reserved");
  const verdict = await guardrails.evaluate(reserveRequest(agent, 13n));
  t.match(verdict, { code: "daily_limit_exceeded", availableAt: null });
  const traced = new Map(verdict.trace.map((one) => [one.rule, one]));
  t.match(traced.get("daily_limit"), { passed: false, availableAt: null });
  t.match(traced.get("weekly_limit"), { passed: null, availableAt: null });
});
