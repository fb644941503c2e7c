// Goal: for any combination of faults in a payment, SQL refuses by the same rule as the list of rules.
import * as fc from "fast-check";
import t from "tap";
import { readGasBudget } from "../../server/core/gas.ts";
import { limitsOf, writeGasLimits } from "../../server/plugins/settlement/gas-store.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { newId } from "../../server/core/ids.ts";
import { evaluate } from "../../server/plugins/guardrails/decide.ts";
import { reserve } from "../../server/plugins/guardrails/store.ts";
import {
  DENIAL_CODES,
  type DenialCode,
  type Snapshot,
} from "../../server/plugins/guardrails/rules.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { runsOf } from "../helpers/tier.ts";
import { fine, PAUSING } from "../unit/rule-cases.ts";
import {
  CHAIN_ID,
  PAYEE,
  reserveRequest,
  seedAgent,
  seedBudget,
  setPayee,
  setRules,
} from "./guardrails-sql.helper.ts";

const database = await testDatabase(t);
const pool = createPool(database.url, { maxConnections: 2 });
t.teardown(() => pool.end());

const OTHER = "0x90f79bf6eb2c4f870365e785982e1f101e93b906";

/** Small amounts, so that each limit is met from below, exactly and from above. */
const amount = fc.bigInt({ min: 1n, max: 4n });
const facts = fc.record({
  status: fc.constantFrom("active", "active", "active", "paused"),
  // Only of an agent that is paused.
  pausedBy: fc.constantFrom<string | undefined>(undefined, "stop", ...PAUSING),
  // Of the day of the test: all, this one, all others.
  payDays: fc.constantFrom<"all" | "today" | "none">("all", "all", "all", "today", "none"),
  expired: fc.oneof({ weight: 4, arbitrary: fc.constant(false) }, fc.constant(true)),
  refusal: fc.constantFrom<
    | "listing_mismatch"
    | "payee_screened"
    | "account_screened"
    | "url_blocked"
    | "challenge_already_used"
    | "channel_distrusted"
    | undefined
  >(
    undefined,
    undefined,
    undefined,
    "listing_mismatch",
    "payee_screened",
    "account_screened",
    "url_blocked",
    "challenge_already_used",
    "channel_distrusted",
  ),
  requested: amount,
  maxAmount: fc.option(amount, { nil: undefined }),
  allowed: fc.oneof({ weight: 4, arbitrary: fc.constant(true) }, fc.constant(false)),
  // The site of the fetch; the sites at which the payee and another payee are listed; and whether the agent may
  // fetch other sites.
  site: fc.constantFrom<string | undefined>(
    undefined,
    undefined,
    "https://a.example",
    "https://b.example",
  ),
  payeeAt: fc.constantFrom("", "", "https://a.example"),
  otherAt: fc.constantFrom("https://a.example", "https://b.example"),
  fetch: fc.constantFrom("any", "any", "sites"),
  // What the owner denies: nothing, the payee, or a site.
  denied: fc.constantFrom(undefined, undefined, undefined, undefined, PAYEE, "https://a.example"),
  perPaymentLimit: fc.option(amount),
  dailyLimit: amount,
  weeklyLimit: fc.option(amount),
  monthlyLimit: fc.option(amount),
  budgetLimit: fc.option(amount),
  // None, or one with this ceiling in this state.
  task: fc.option(
    fc.record({
      state: fc.constantFrom("open", "open", "open", "closed", "ended", "missing"),
      ceiling: amount,
    }),
  ),
  paymentsPerHour: fc.option(fc.integer({ min: 0, max: 2 }), { freq: 2 }),
  payeeDailyLimit: fc.option(amount),
  payeePerPaymentLimit: fc.option(amount),
  payeeExpired: fc.option(fc.constantFrom(true, false, false), { freq: 2 }),
  balance: amount,
  floor: fc.constantFrom(0n, 2n),
  hold: fc.constantFrom(1n, 1n, 2n),
});

type Facts = typeof facts extends fc.Arbitrary<infer T> ? T : never;

const FAULTLESS: Facts = {
  status: "active",
  pausedBy: undefined,
  payDays: "all",
  expired: false,
  refusal: undefined,
  requested: 2n,
  maxAmount: undefined,
  allowed: true,
  site: undefined,
  payeeAt: "",
  otherAt: "https://a.example",
  fetch: "any",
  denied: undefined,
  perPaymentLimit: null,
  dailyLimit: 4n,
  weeklyLimit: null,
  monthlyLimit: null,
  budgetLimit: null,
  task: null,
  paymentsPerHour: null,
  payeeDailyLimit: null,
  payeePerPaymentLimit: null,
  payeeExpired: null,
  balance: 4n,
  floor: 0n,
  hold: 1n,
};

/** The last test calls the decision about channels itself; test/x402-client/channel-limits.test.ts pays through them. */
const OF_CHANNELS = [
  "channel_not_allowed",
  "channel_limit_exceeded",
  "payee_channel_limit_exceeded",
] as const;
const REACHED = DENIAL_CODES.filter((code) => !(OF_CHANNELS as readonly string[]).includes(code));

/** One example per rule: random cases rarely reach the late ones, or have no fault at all. */
const ONE_FAULT: Record<Exclude<DenialCode, (typeof OF_CHANNELS)[number]>, Partial<Facts>> = {
  agent_paused: { status: "paused" },
  paused_by_rule: { status: "paused", pausedBy: "pause_after_failures" },
  outside_pay_times: { payDays: "none" },
  agent_expired: { expired: true },
  payee_denied: { denied: PAYEE },
  listing_mismatch: { refusal: "listing_mismatch" },
  payee_screened: { refusal: "payee_screened" },
  account_screened: { refusal: "account_screened" },
  url_blocked: { refusal: "url_blocked" },
  origin_not_allowed: { fetch: "sites", site: "https://b.example" },
  channel_distrusted: { refusal: "channel_distrusted" },
  challenge_already_used: { refusal: "challenge_already_used" },
  price_exceeds_max: { maxAmount: 1n },
  recipient_not_allowed: { allowed: false },
  site_payee_changed: { allowed: false, site: "https://a.example" },
  payee_bound_to_site: { payeeAt: "https://a.example" },
  payee_expired: { payeeExpired: true },
  per_payment_limit_exceeded: { perPaymentLimit: 1n },
  payee_per_payment_limit_exceeded: { payeePerPaymentLimit: 1n },
  payment_rate_exceeded: { paymentsPerHour: 0 },
  payee_limit_exceeded: { payeeDailyLimit: 1n },
  daily_limit_exceeded: { dailyLimit: 1n },
  weekly_limit_exceeded: { weeklyLimit: 1n },
  monthly_limit_exceeded: { monthlyLimit: 1n },
  budget_exceeded: { budgetLimit: 1n },
  task_not_found: { task: { state: "missing", ceiling: 4n } },
  task_ended: { task: { state: "ended", ceiling: 4n } },
  task_ceiling_exceeded: { task: { state: "open", ceiling: 1n } },
  insufficient_funds: { balance: 1n },
  amount_below_floor: { requested: 1n, floor: 2n },
  gas_budget_exhausted: { hold: 2n },
};

const WITH_ONE = Object.values(ONE_FAULT).map((fault) => ({ ...FAULTLESS, ...fault }));

const agent = await seedAgent(pool, { dailyLimit: 1n, allowlist: [PAYEE, OTHER] });
const BUDGET = await seedBudget(pool, agent.ownerId, { weekly: 1n });
// Room for a gas hold of 1, never for 2.
const budget = { ...readGasBudget(""), owner: 1n };
await writeGasLimits(pool, CHAIN_ID, limitsOf(budget, 1n));

const TODAY = new Date().getUTCDay();
/** Days of the week that allow the test's own day and those around it, or none of them. */
function daysOf(which: Facts["payDays"]): string | null {
  if (which === "all") return null;
  const near = [-1, 0, 1].map((more) => (TODAY + more + 7) % 7);
  return ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    .filter((_, index) => near.includes((index + 1) % 7) === (which === "today"))
    .join(",");
}

/** The code by which SQL refuses, which must equal that of the list of rules; null when neither refuses. */
async function refusalOf(given: Facts): Promise<string | null> {
  await setRules(pool, agent.agentId, given);
  await pool.query(
    `UPDATE agents SET status = $2, expires_at = clock_timestamp() + $3 * interval '1 hour', fetch_scope = $4,
            paused_by = $5, pay_days = $6, budget_ids = $7
      WHERE id = $1`,
    [
      agent.agentId,
      given.status,
      given.expired ? -1 : 1,
      given.fetch,
      given.status === "paused" ? given.pausedBy : null,
      daysOf(given.payDays),
      given.budgetLimit === null ? [] : [BUDGET],
    ],
  );
  if (given.budgetLimit !== null)
    await pool.query("UPDATE budgets SET weekly_limit = $2 WHERE id = $1", [
      BUDGET,
      String(given.budgetLimit),
    ]);
  await pool.query(
    "UPDATE allowlist_entries SET site = CASE address WHEN $2 THEN $3 ELSE $4 END WHERE agent_id = $1",
    [agent.agentId, PAYEE, given.payeeAt, given.otherAt],
  );
  await pool.query("DELETE FROM tasks");
  if (given.task !== null && given.task.state !== "missing")
    await pool.query(
      `INSERT INTO tasks (agent_id, id, ceiling, closed_at, ends_at)
       VALUES ($1, 'task', $2, CASE $3 WHEN 'closed' THEN now() END, CASE $3 WHEN 'ended' THEN now() END)`,
      [agent.agentId, String(given.task.ceiling), given.task.state],
    );
  await pool.query("DELETE FROM denied_payees");
  if (given.denied !== undefined)
    await pool.query("SELECT purser_deny_payee($1, $2, $3, '', '0x', 9)", [
      agent.ownerId,
      newId("dny"),
      given.denied,
    ]);
  await setPayee(pool, agent.agentId, PAYEE, {
    dailyLimit: given.payeeDailyLimit,
    perPaymentLimit: given.payeePerPaymentLimit,
    ...(given.payeeExpired === null ? {} : { expiresInMs: given.payeeExpired ? -1_000 : 600_000 }),
  });
  const request = reserveRequest(agent, given.requested, {
    balance: { atomic: given.balance, blockNumber: 1n },
    maxAmountAtomic: given.maxAmount,
    gas: { hold: given.hold, floorAtomic: given.floor },
    ...(given.task && { task: "task" }),
    ...(given.site && { kind: "x402", site: given.site }),
    ...(given.refusal && { refusal: { code: given.refusal } }),
    ...(given.allowed ? {} : { to: agent.walletAddress }),
  });
  const row = await reserve(pool, { ...request, paymentId: newId("pay"), dryRun: true });
  if (row.snapshot === null) throw new Error(row.outcome);
  const evaluation = evaluate(row.snapshot);
  const explained = evaluation.allowed ? null : evaluation.code;
  if (row.code !== explained) throw new Error(`SQL: ${row.code}, the list of rules: ${explained}`);
  return row.code;
}

t.test("each fault alone", async (t) => {
  t.equal(await refusalOf(FAULTLESS), null);
  t.same(Object.keys(ONE_FAULT).toSorted(), REACHED.toSorted());
  for (const [index, code] of Object.keys(ONE_FAULT).entries())
    t.equal(await refusalOf(WITH_ONE[index] ?? FAULTLESS), code);
});

t.test("any mixture of faults", async (t) => {
  const seen = new Set<string | null>();
  await fc.assert(
    fc.asyncProperty(facts, async (given) => void seen.add(await refusalOf(given))),
    { numRuns: runsOf(1_500), examples: [FAULTLESS, ...WITH_ONE].map((given) => [given]) },
  );
  for (const code of [null, ...REACHED]) t.ok(seen.has(code), `${code} was a result`);
});

/** The decision of SQL alone. Floor and gas are decided after it. */
async function decisionOf(facts: Snapshot): Promise<string | null> {
  const sum = (spent?: bigint, reserved?: bigint): bigint => (spent ?? 0n) + (reserved ?? 0n);
  const args: Record<string, bigint | boolean | string | null | undefined> = {
    status: facts.status,
    expired: facts.expired,
    refusal: facts.refusal,
    requested: facts.requested,
    max_amount: facts.maxAmount,
    allowed: facts.allowed,
    expected_payee: facts.expectedPayee,
    bound: facts.payeeSites !== undefined,
    payee_expired: facts.payeeExpired,
    per_payment: facts.perPaymentLimit,
    payee_per_payment: facts.payeePerPaymentLimit,
    per_hour: facts.hourlyLimit,
    last_hour: sum(facts.hourlySpent, facts.hourlyReserved),
    payee_limit: facts.payeeLimit,
    payee_sum: sum(facts.payeeSpent, facts.payeeReserved),
    limit: facts.limit,
    window_sum: sum(facts.spent, facts.reserved),
    weekly: facts.weeklyLimit,
    week_sum: sum(facts.weeklySpent, facts.weeklyReserved),
    monthly: facts.monthlyLimit,
    month_sum: sum(facts.monthlySpent, facts.monthlyReserved),
    budget_limit: facts.budgetLimit,
    budget_used: facts.budgetUsed,
    task_state: facts.taskState,
    task_ceiling: facts.taskCeiling,
    task_used:
      facts.taskCeiling === undefined ? undefined : sum(facts.taskSpent, facts.taskReserved),
    balance: facts.balance,
    outstanding: facts.outstanding,
    price: facts.price,
    channel_deposit: facts.channelDeposit,
    channel_held: facts.channelHeld,
    channel_limit: facts.channelLimit,
    channel_delay: facts.channelDelay,
    channel_longest_delay: facts.channelLongestDelay,
    payee_channel_held: facts.payeeChannelHeld,
    payee_channel_limit: facts.payeeChannelLimit,
  };
  // Those that are missing are left out, as the build before leaves them out.
  const given = Object.entries(args).filter(
    ([name, value]) => value !== undefined || !/^(price|budget|task|(payee_)?channel)/.test(name),
  );
  const names = given.map(([name], index) => `p_${name} => $${index + 1}`);
  const { rows } = await pool.query<{ code: string | null }>(
    `SELECT purser_first_refusal(${names.join(", ")}) AS code`,
    given.map(([, value]) => (typeof value === "bigint" ? String(value) : value)),
  );
  return rows[0]?.code ?? null;
}

const upTo = (most: bigint) => fc.bigInt({ min: 0n, max: most });
const missing = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined, freq: 2 });
/** The limits after the rule have more room, so that the balance is reached too. */
const channelFacts = fc.record({
  requested: upTo(3n),
  price: missing(upTo(4n)),
  maxAmount: fc.option(upTo(6n), { freq: 2 }),
  perPaymentLimit: fc.option(upTo(6n), { freq: 2 }),
  payeePerPaymentLimit: missing(upTo(6n)),
  payeeExpired: fc.constantFrom(undefined, undefined, false, true),
  limit: upTo(12n),
  balance: upTo(12n),
  outstanding: upTo(2n),
  channel: fc.option(
    fc.record({
      channelDeposit: upTo(4n),
      channelHeld: upTo(4n),
      channelLimit: upTo(8n),
      channelDelay: fc.constantFrom(900n, 900n, 3_600n),
      channelLongestDelay: fc.constantFrom(3_600n, 3_600n, 900n),
      payeeChannelHeld: upTo(4n),
      payeeChannelLimit: missing(upTo(8n)),
    }),
    { nil: undefined, freq: 8 },
  ),
});

t.test("a payment through a channel is refused by the same rule in SQL", async (t) => {
  const { floor: _floor, ...rest } = fine;
  const nothingSpent = { spent: 0n, reserved: 0n };
  const without = Object.fromEntries(
    Object.keys(rest)
      .filter((name) => /^(hourly|payee|weekly|monthly|budget|task|channel)/.test(name))
      .map((name) => [name, undefined]),
  );
  const seen = new Set<string | null>();
  await fc.assert(
    fc.asyncProperty(channelFacts, async ({ channel, ...given }) => {
      const facts = { ...rest, ...without, ...nothingSpent, ...given, ...channel } as Snapshot;
      const found = evaluate(facts);
      const code = await decisionOf(facts);
      seen.add(code);
      if (code !== (found.allowed ? null : found.code))
        throw new Error(`SQL: ${code}, the list of rules: ${JSON.stringify(found, null, 1)}`);
    }),
    { numRuns: runsOf(1_500) },
  );
  const expected = new Set<string | null>([
    null,
    ...OF_CHANNELS,
    "price_exceeds_max",
    "payee_expired",
    "per_payment_limit_exceeded",
    "payee_per_payment_limit_exceeded",
    "daily_limit_exceeded",
    "insufficient_funds",
  ]);
  t.same(seen, expected);
});
