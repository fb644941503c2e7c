// Goal: the available amount that Purser reports is exact: that amount can be paid, and one unit more is refused by
// the rule that is reported.
import * as fc from "fast-check";
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { readGasBudget } from "../../server/core/gas.ts";
import { newId } from "../../server/core/ids.ts";
import { parseDecimal } from "../../server/core/money.ts";
import { createPool, type Pool } from "../../server/infra/db/pool.ts";
import { availableOf } from "../../server/plugins/guardrails/available.ts";
import { RULES } from "../../server/plugins/guardrails/rules.ts";
import { readLimits, reserve } from "../../server/plugins/guardrails/store.ts";
import { readWallets } from "../../server/plugins/guardrails/store.ts";
import { limitsOf, writeGasLimits } from "../../server/plugins/settlement/gas-store.ts";
import type { Agent, GeneralRule } from "../../server/schemas/agents.ts";
import type { AgentSelf } from "../../server/schemas/payments.ts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn, type NewTestAgent } from "../helpers/owner.ts";
import { testDatabase } from "../helpers/postgres.ts";
import {
  ASSET,
  CHAIN_ID,
  passTime,
  reserveRequest,
  seedAgent,
  setRules,
  type SeededAgent,
} from "./guardrails-sql.helper.ts";

const ctx = await testApp(t);
const { app, chain, database } = ctx;
const owner = await signIn(ctx);
const payee = privateKeyToAccount(generatePrivateKey()).address;

const made = (rules: Record<string, unknown> = {}) =>
  createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee], ...rules });
const patch = (agent: NewTestAgent, body: Record<string, unknown>) =>
  asOwner(app, owner, { method: "PATCH", url: `/api/agents/${agent.id}`, body });
const spend = async (agent: NewTestAgent, amount: string) => {
  const payload = JSON.stringify({ recipient: payee, amount });
  const { headers } = agent;
  const answer = await app.inject({ method: "POST", url: "/api/agents/spend", headers, payload });
  return answer.json<{ success: boolean; policy?: { rule: string } }>();
};

/** The limits as the agent and its owner read them: equal in both, alone and in the list. */
async function limitsIn(t: Test, agent: NewTestAgent): Promise<AgentSelf["limits"]> {
  const read = async <T>(url: string, { headers }: { headers: Record<string, string> }) =>
    (await app.inject({ url, headers })).json<T>();
  const one = await read<Agent>(`/api/agents/${agent.id}`, owner);
  const list = await read<{ items: Agent[] }>("/api/agents?limit=100", owner);
  const { limits } = await read<AgentSelf>("/api/agents/me", agent);
  t.same(one.limits, limits, "the owner's page of the agent");
  t.same(list.items.find(({ id }) => id === agent.id)?.limits, limits, "the owner's list");
  return limits;
}

async function holds(t: Test, agent: NewTestAgent, available: string, boundBy: string) {
  t.match(await limitsIn(t, agent), { available, boundBy });
  const parsed = parseDecimal(available);
  const more = parsed.ok ? parsed.atomic + 1n : 1n;
  const refused = await spend(
    agent,
    `${more / 1_000_000n}.${`${more % 1_000_000n}`.padStart(6, "0")}`,
  );
  t.match(refused, { success: false, policy: { rule: boundBy } }, "one unit more is refused");
  if (available !== "0")
    t.match(await spend(agent, available), { success: true }, "that amount is paid");
}

t.test("little is left of the weekly limit, much of the daily limit", async (t) => {
  const agent = await made({ weeklyLimit: "0.1" });
  await chain.mint(agent.walletAddress, 20_000_000n);
  t.match(await spend(agent, "0.061"), { success: true });
  t.match(await limitsIn(t, agent), { remaining: "9.939" }, "the daily limit");
  await holds(t, agent, "0.039", "weekly_limit");
  await holds(t, agent, "0", "weekly_limit");
});

t.test("the wallet is empty, or holds less than the limits leave", async (t) => {
  const agent = await made({ dailyLimit: "5" });
  await holds(t, agent, "0", "balance");
  await chain.mint(agent.walletAddress, 2_500_000n);
  await holds(t, agent, "2.5", "balance");
});

t.test("paused, expired, without payees, archived", async (t) => {
  const agent = await made({ dailyLimit: "4.978" });
  await chain.mint(agent.walletAddress, 20_000_000n);
  await patch(agent, { status: "paused" });
  await holds(t, agent, "0", "status");
  await patch(agent, { status: "active" });
  t.match(await limitsIn(t, agent), { available: "4.978", boundBy: "daily_limit" });
  await database.pool.query(
    "UPDATE agents SET expires_at = clock_timestamp() - interval '1 second' WHERE id = $1",
    [agent.id],
  );
  await holds(t, agent, "0", "expiry");

  const withoutPayees = await made({ allowlist: [] });
  await chain.mint(withoutPayees.walletAddress, 1_000_000n);
  await holds(t, withoutPayees, "0", "allowlist");

  const ended = await made();
  await asOwner(app, owner, { method: "POST", url: `/api/agents/${ended.id}/archive` });
  const { headers } = owner;
  const { limits } = (await app.inject({ url: `/api/agents/${ended.id}`, headers })).json<Agent>();
  t.match(limits, { available: "0", boundBy: "status" });
});

t.test("the limit per payment is below the daily one; the hour has none left", async (t) => {
  const agent = await made({ perPaymentLimit: "0.25", paymentsPerHour: 1 });
  await chain.mint(agent.walletAddress, 20_000_000n);
  await holds(t, agent, "0.25", "per_payment_limit");
  await holds(t, agent, "0", "payments_per_hour");
});

t.test("the chain does not answer: the available amount is unknown", async (t) => {
  const agent = await made();
  await chain.mint(agent.walletAddress, 20_000_000n);
  t.match(await limitsIn(t, agent), { available: "10", boundBy: "daily_limit" });
  await chain.stop();
  t.teardown(() => chain.start());
  t.match(await limitsIn(t, agent), { available: null, boundBy: null, remaining: "10" });
  await patch(agent, { status: "paused" });
  t.match(
    await limitsIn(t, agent),
    { available: "0", boundBy: "status" },
    "a pause needs no balance",
  );
});

const amount = fc.bigInt({ min: 1n, max: 25n });
const rarely = fc.oneof({ weight: 9, arbitrary: fc.constant(false) }, fc.constant(true));
const situation = fc.record({
  rules: fc.record({
    dailyLimit: amount,
    perPaymentLimit: fc.option(amount),
    weeklyLimit: fc.option(amount),
    monthlyLimit: fc.option(amount),
    paymentsPerHour: fc.option(fc.integer({ min: 1, max: 3 })),
  }),
  // Payments, how each ended, and how much time passes after it. Ages are multiples of half an hour plus the test's
  // run time, so that no payment leaves a window between two reads.
  history: fc.array(
    fc.record({
      amount: fc.bigInt({ min: 1n, max: 4n }),
      end: fc.constantFrom<"open" | "settled" | "voided">("open", "settled", "voided"),
      hours: fc.constantFrom<number>(0, 0, 0.5, 5, 23, 170),
    }),
    { maxLength: 6 },
  ),
  balance: fc.oneof(fc.constant(1_000n), fc.bigInt({ min: 0n, max: 25n })),
  isPaused: rarely,
  isExpired: rarely,
  floor: fc.constantFrom(0n, 0n, 3n),
  hold: fc.oneof({ weight: 9, arbitrary: fc.constant(1n) }, fc.constant(2n)),
});
type Situation = typeof situation extends fc.Arbitrary<infer T> ? T : never;

const FEW_RULES = {
  dailyLimit: 9n,
  perPaymentLimit: null,
  weeklyLimit: null,
  monthlyLimit: null,
  paymentsPerHour: null,
};
const OPEN: Situation = {
  rules: FEW_RULES,
  history: [],
  balance: 1_000n,
  isPaused: false,
  isExpired: false,
  floor: 0n,
  hold: 1n,
};
const PAID = { amount: 2n, end: "settled", hours: 0 } as const;

/** One example per binding rule: random cases rarely reach the late ones. */
const BOUND: Partial<Record<GeneralRule, Partial<Situation>>> = {
  status: { isPaused: true },
  expiry: { isExpired: true },
  per_payment_limit: { rules: { ...FEW_RULES, perPaymentLimit: 3n } },
  payments_per_hour: { rules: { ...FEW_RULES, paymentsPerHour: 1 }, history: [PAID] },
  daily_limit: { history: [PAID] },
  weekly_limit: { rules: { ...FEW_RULES, weeklyLimit: 5n }, history: [{ ...PAID, hours: 30 }] },
  monthly_limit: {
    rules: { ...FEW_RULES, weeklyLimit: 5n, monthlyLimit: 4n },
    history: [{ ...PAID, hours: 170 }],
  },
  balance: { balance: 7n, history: [{ ...PAID, end: "open" }] },
  floor: { balance: 2n, floor: 3n },
  gas: { hold: 2n },
};

const BLOCK = 5n;

async function seedSituation(pool: Pool, given: Situation): Promise<SeededAgent> {
  const agent = await seedAgent(pool, { dailyLimit: 1_000n });
  const { agentId } = agent;
  for (const { amount, end, hours } of given.history) {
    const paymentId = newId("pay");
    await reserve(pool, { ...reserveRequest(agent, amount), paymentId, dryRun: false });
    if (end === "voided")
      await pool.query("SELECT purser_payment_voided($1, $2, 'test', '')", [agentId, paymentId]);
    // Some settle in a block that the balance already includes, some in a later one.
    if (end === "settled")
      await pool.query(
        `UPDATE payments SET status = 'settled', tx_hash = $3, block_number = $4, settled_at = now()
          WHERE agent_id = $1 AND id = $2`,
        [agentId, paymentId, `0x${"cd".repeat(32)}`, String(BLOCK + (amount % 2n))],
      );
    await passTime(pool, agentId, `${hours} hours`);
  }
  await setRules(pool, agentId, given.rules);
  await pool.query(
    "UPDATE agents SET status = $2, expires_at = clock_timestamp() + $3 * interval '1 hour' WHERE id = $1",
    [agentId, given.isPaused ? "paused" : "active", given.isExpired ? -1 : 1],
  );
  return agent;
}

const readWallet = async (pool: Pool, { agentId }: SeededAgent, given: Situation) => {
  const { balance, hold: gasHold, floor } = given;
  const held = { atomic: balance, blockNumber: BLOCK };
  const query = { agentId, chainId: CHAIN_ID, asset: ASSET, balance: held, gasHold };
  return (await readWallets(pool, [query], floor)).get(agentId);
};

t.test(
  "any rules, history and balance: the available amount passes, a unit more not",
  async (t) => {
    const { url } = await testDatabase(t);
    const pool = createPool(url, { maxConnections: 2 });
    t.teardown(() => pool.end());
    // The daily gas budget has room for a hold of 1, never for 2.
    const budget = { ...readGasBudget(""), owner: 1n };
    await writeGasLimits(pool, CHAIN_ID, limitsOf(budget, 1n));
    const seen = new Set<string>();
    let paid = 0;
    await fc.assert(
      fc.asyncProperty(situation, async (given) => {
        const agent = await seedSituation(pool, given);
        const limits = (await readLimits(pool, [agent.agentId])).get(agent.agentId);
        const wallet = await readWallet(pool, agent, given);
        if (!limits || !wallet) throw new Error("limits or wallet are missing");
        const { rules, isPaused, isExpired: expired, floor, hold } = given;
        const status = isPaused ? "paused" : "active";
        const perPaymentLimitAtomic = rules.perPaymentLimit;
        const readAt = new Date();
        const known = { status, expired, perPaymentLimitAtomic, hasPayees: true, limits, readAt };
        const found = availableOf(known, wallet);
        if (!found) throw new Error("not known");
        const { atomic, boundBy } = found;
        seen.add(boundBy);

        const tryReserve = (amountAtomic: bigint, dryRun: boolean) => {
          const balance = { atomic: given.balance, blockNumber: BLOCK };
          const request = reserveRequest(agent, amountAtomic, {
            balance,
            gas: { hold, floorAtomic: floor },
          });
          return reserve(pool, { ...request, paymentId: newId("pay"), dryRun });
        };
        // Below the floor, the floor refuses before the gas budget does.
        const more = boundBy === "gas" && floor > atomic ? floor : atomic + 1n;
        const { code } = await tryReserve(more, true);
        const rule = RULES.find(({ codes }) => codes.some((one) => one === code))?.name;
        if (rule !== boundBy) throw new Error(`${more} is refused by ${rule}, not by ${boundBy}`);
        if (atomic === 0n) return;
        const reserved = await tryReserve(atomic, false);
        if (reserved.outcome !== "reserved") throw new Error(`${atomic}: ${reserved.code}`);
        paid += 1;
      }),
      { numRuns: 100, examples: Object.values(BOUND).map((one) => [{ ...OPEN, ...one }]) },
    );
    t.ok(paid > 10, `${paid} payments were made`);
    for (const rule of Object.keys(BOUND)) t.ok(seen.has(rule), `${rule} was the binding rule`);

    await t.test("the ledger lags behind the chain: its sums lack payments", async (t) => {
      const agent = await seedSituation(pool, OPEN);
      t.match(await readWallet(pool, agent, OPEN), { isBehind: false });
      await pool.query(
        `INSERT INTO ledger_cursors (chain_id, asset, next_block, hold_until_block) VALUES ($1, $2, 1, 9)`,
        [CHAIN_ID, ASSET],
      );
      t.match(await readWallet(pool, agent, OPEN), { isBehind: true });
      const request = { ...reserveRequest(agent, 1n), paymentId: newId("pay"), dryRun: false };
      t.equal((await reserve(pool, request)).outcome, "held", "and no payment is made");
    });
  },
);
