// Goal: every documented refusal has its status and fields, is recorded, and moves no money.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { callApi, spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn, type NewTestAgent } from "../helpers/owner.ts";
import type { AgentSelf } from "../../server/schemas/payments.ts";
import { usdcOf } from "./ledger.helper.ts";

const ctx = await testApp(t);
const { app, chain, database } = ctx;
const owner = await signIn(ctx);
const payee = privateKeyToAccount(generatePrivateKey()).address;
const usdc = 1_000_000n;

const spend = (agent: Pick<NewTestAgent, "headers">, body: unknown) => spendAs(app, agent, body);

async function fundedAgent(rules: Record<string, unknown> = {}): Promise<NewTestAgent> {
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee], ...rules });
  await chain.mint(agent.walletAddress, 20n * usdc);
  return agent;
}

interface Denial {
  name: string;
  rules?: Record<string, unknown>;
  before?: (agent: NewTestAgent) => Promise<unknown>;
  body?: Record<string, unknown>;
  status: number;
  code: string;
  match: Record<string, unknown>;
}

const patch = (agent: NewTestAgent, change: Record<string, unknown>) =>
  asOwner(app, owner, { method: "PATCH", url: `/api/agents/${agent.id}`, body: change });

const DENIALS: Denial[] = [
  {
    name: "paused",
    before: (agent) => patch(agent, { status: "paused" }),
    status: 403,
    code: "agent_paused",
    match: { retryable: true, policy: { rule: "status" } },
  },
  {
    name: "expired",
    before: (agent) =>
      database.pool.query(
        "UPDATE agents SET expires_at = now() - interval '1 second' WHERE id = $1",
        [agent.id],
      ),
    status: 403,
    code: "agent_expired",
    match: { retryable: false, policy: { rule: "expiry" } },
  },
  {
    name: "payee not on the allowlist",
    rules: { allowlist: [] },
    status: 403,
    code: "recipient_not_allowed",
    match: { retryable: false, policy: { rule: "allowlist" } },
  },
  {
    name: "above the limit per payment",
    rules: { perPaymentLimit: "0.5" },
    status: 403,
    code: "per_payment_limit_exceeded",
    match: { policy: { rule: "per_payment_limit", limit: "0.5", requested: "1" } },
  },
  {
    name: "above the daily limit",
    body: { amount: "10.000001" },
    status: 403,
    code: "daily_limit_exceeded",
    match: {
      retryable: false,
      availableAt: null,
      nextReleaseAt: null,
      policy: {
        rule: "daily_limit",
        window: "24h",
        limit: "10",
        spent: "0",
        reserved: "0",
        remaining: "10",
        requested: "10.000001",
      },
    },
  },
  {
    name: "above the weekly limit",
    rules: { weeklyLimit: "0.9" },
    status: 403,
    code: "weekly_limit_exceeded",
    match: { retryable: false, policy: { rule: "weekly_limit", window: "7d", limit: "0.9" } },
  },
  {
    name: "above the monthly limit",
    rules: { weeklyLimit: "2", monthlyLimit: "0.9" },
    status: 403,
    code: "monthly_limit_exceeded",
    match: {
      availableAt: null,
      policy: { rule: "monthly_limit", window: "30d", remaining: "0.9" },
    },
  },
  {
    name: "too many payments per hour",
    rules: { paymentsPerHour: 0 },
    status: 403,
    code: "payment_rate_exceeded",
    match: { availableAt: null, policy: { rule: "payments_per_hour", window: "1h", limit: "0" } },
  },
  {
    name: "above the payee's daily limit",
    rules: { allowlist: [{ address: payee, dailyLimit: "0.9" }] },
    status: 403,
    code: "payee_limit_exceeded",
    match: { availableAt: null, policy: { rule: "payee_limit", window: "24h", limit: "0.9" } },
  },
  {
    name: "above the payee's limit per payment",
    rules: { allowlist: [{ address: payee, dailyLimit: "2", perPaymentLimit: "0.9" }] },
    status: 403,
    code: "payee_per_payment_limit_exceeded",
    match: { policy: { rule: "payee_per_payment_limit", window: "payment", limit: "0.9" } },
  },
  {
    name: "payee expired",
    rules: { allowlist: [{ address: payee, expiresAt: "2020-01-01T00:00:00Z" }] },
    status: 403,
    code: "payee_expired",
    match: { retryable: false, policy: { rule: "payee_expiry" } },
  },
  {
    name: "balance too low",
    rules: { dailyLimit: "1000" },
    body: { amount: "20.000001" },
    status: 402,
    code: "insufficient_funds",
    match: { retryable: true, balance: "20", required: "20.000001", policy: { rule: "balance" } },
  },
];

t.test("a repeated refusal is counted on the row of the first", async (t) => {
  const agent = await fundedAgent({ allowlist: [] });
  const other = privateKeyToAccount(generatePrivateKey()).address;
  const ids = [];
  for (const recipient of [payee, payee, payee, other]) {
    const answer = await spend(agent, { recipient, amount: "1" });
    t.equal(answer.statusCode, 403);
    ids.push(answer.json<{ paymentId: string }>().paymentId);
  }
  const [first, second, third, another] = ids;
  t.same([second, third], [first, first]);
  t.not(another, first, "another payee is another refusal");
  const read = async (url: string, { headers }: { headers: Record<string, string> }) =>
    (await app.inject({ url, headers })).json();
  const { items } = await read("/api/agents/me/payments?detail=full", agent);
  t.match(items, [
    { id: another, repeats: 0 },
    { id: first, repeats: 2, denial: { code: "recipient_not_allowed" } },
  ]);
  t.ok(items[1].updatedAt > items[1].createdAt, "updatedAt is the time of the last refusal");
  t.match(await read(`/api/agents/me/payments/${first}`, agent), { repeats: 2 });
  t.match(await read(`/api/overview?agentId=${agent.id}`, owner), { totals: { blocked24h: 4 } });
  t.match(await read(`/api/agents/${agent.id}`, owner), { blocked24h: 4 });
  const { hourly } = await read(`/api/overview?agentId=${agent.id}`, owner);
  t.equal(
    hourly.reduce((sum: number, { blocked }: { blocked: number }) => sum + blocked, 0),
    4,
  );
});

for (const denial of DENIALS) {
  t.test(`${denial.name}: ${denial.code}`, async (t) => {
    const agent = await fundedAgent(denial.rules);
    await denial.before?.(agent);
    const answer = await spend(agent, { recipient: payee, amount: "1", ...denial.body });
    t.equal(answer.statusCode, denial.status, answer.body);
    const body = answer.json<Record<string, unknown>>();
    t.match(body, {
      code: denial.code,
      success: false,
      blocked: true,
      suggestion: /./,
      error: /./,
      paymentId: /^pay_/,
      policy: { rule: String, window: String, limit: String, spent: String, reserved: String },
      ...denial.match,
    });
    if (denial.code === "insufficient_funds") t.equal(body["fundingAddress"], agent.walletAddress);
    t.notOk(
      answer.headers["payment-required"],
      "Purser's own 402 is not an x402 payment challenge",
    );
    t.match(answer.headers["content-type"], /application\/problem\+json/);

    const seenByAgent = await app.inject({
      url: `/api/agents/me/payments/${String(body["paymentId"])}`,
      headers: agent.headers,
    });
    const seenByOwner = await app.inject({
      url: `/api/agents/${agent.id}/payments/${String(body["paymentId"])}`,
      headers: owner.headers,
    });
    const expected = {
      status: "blocked",
      denial: { code: denial.code, policy: body["policy"] },
      txHash: null,
    };
    t.match(seenByAgent.json(), expected);
    t.match(seenByOwner.json(), expected);
    const trace = seenByOwner.json<{ trace: { passed: boolean | null }[] }>().trace;
    t.equal(trace.filter((rule) => rule.passed === false).length, 1, "exactly one rule refused");
    t.equal(await usdcOf(ctx, agent.walletAddress), 20n * usdc, "no money moved");
  });
}

t.test("availableAt is the time at which the amount fits again", async (t) => {
  const agent = await fundedAgent();
  t.equal((await spend(agent, { recipient: payee, amount: "8" })).statusCode, 200);
  const denied = await spend(agent, { recipient: payee, amount: "3" });
  const { availableAt, retryable } = denied.json<{ availableAt: string; retryable: boolean }>();
  t.ok(retryable);
  const { rows } = await database.pool.query<{ created_at: Date }>(
    "SELECT created_at FROM payments WHERE agent_id = $1 AND status = 'settled'",
    [agent.id],
  );
  const dayLater = (rows[0]?.created_at.getTime() ?? 0) + 86_400_000;
  t.ok(
    Math.abs(Date.parse(availableAt) - dayLater) <= 1,
    `${availableAt} is 24 hours after the payment`,
  );
});

t.test("the agent reads every limit and what is left of it", async (t) => {
  const other = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await fundedAgent({
    weeklyLimit: "20",
    monthlyLimit: "30",
    paymentsPerHour: 5,
    allowlist: [{ address: payee, dailyLimit: "3", label: "the seller" }, other],
  });
  const me = async () =>
    (
      await app.inject({ url: "/api/agents/me?detail=full", headers: agent.headers })
    ).json<AgentSelf>();
  t.match((await me()).limits, {
    remaining: "10",
    weekly: { remaining: "20", nextReleaseAt: null },
  });
  t.equal((await spend(agent, { recipient: payee, amount: "2" })).statusCode, 200);
  t.equal((await spend(agent, { recipient: other, amount: "1" })).statusCode, 200);
  const { limits, allowlist } = await me();
  t.match(limits, {
    limit: "10",
    spent: "3",
    reserved: "0",
    remaining: "7",
    nextReleaseAt: String,
    weekly: { limit: "20", spent: "3", reserved: "0", remaining: "17", nextReleaseAt: String },
    monthly: { limit: "30", spent: "3", reserved: "0", remaining: "27", nextReleaseAt: String },
    hourly: { limit: 5, spent: 2, reserved: 0, remaining: 3, nextReleaseAt: String },
  });
  const seller = allowlist.find(({ label }) => label === "the seller");
  const unlimited = allowlist.find((entry) => entry !== seller);
  t.match(seller, {
    label: "the seller",
    dailyLimit: "3",
    limits: { limit: "3", spent: "2", reserved: "0", remaining: "1", nextReleaseAt: String },
  });
  t.match(unlimited, { dailyLimit: null });
  t.equal(unlimited?.limits, undefined);
  const seenByOwner = await app.inject({ url: `/api/agents/${agent.id}`, headers: owner.headers });
  t.same(seenByOwner.json<AgentSelf>().limits, limits);
  t.same(seenByOwner.json<AgentSelf>().allowlist, allowlist);
  const day = (window: { nextReleaseAt: string | null } | null | undefined, hours: number) =>
    Date.parse(window?.nextReleaseAt ?? "") - hours * 3_600_000;
  const paidAt = day(limits, 24);
  t.equal(day(limits.hourly, 1), paidAt);
  t.equal(day(limits.weekly, 168), paidAt);
  t.equal(day(limits.monthly, 720), paidAt);

  const bare = await fundedAgent();
  const none = await app.inject({ url: "/api/agents/me", headers: bare.headers });
  t.match(none.json<AgentSelf>().limits, { weekly: null, monthly: null, hourly: null });
});

t.test("a revoked key is refused on its next request", async (t) => {
  const agent = await fundedAgent();
  await callApi(app, owner, "DELETE", `/api/agents/${agent.id}/keys/${agent.keyId}`);
  const answer = await spend(agent, { recipient: payee, amount: "1" });
  t.equal(answer.statusCode, 401);
  t.equal(answer.json<{ code: string }>().code, "api_key_revoked");
});

t.test("an invalid payment is refused before any rule is checked", async (t) => {
  const agent = await fundedAgent();
  const zero = "0x0000000000000000000000000000000000000000";
  for (const [recipient, code] of [
    [zero, "invalid_address"],
    [agent.walletAddress, "invalid_address"],
    [chain.usdc, "invalid_address"],
    ["0x123", "invalid_address"],
    [payee.slice(0, -1) + (payee.endsWith("a") ? "A" : "a"), "invalid_address"],
  ] as const) {
    const answer = await spend(agent, { recipient, amount: "1" });
    t.equal(answer.statusCode, 422, recipient);
    t.equal(answer.json<{ code: string }>().code, code);
  }
  for (const amount of [
    "1e3",
    "+1",
    " 1",
    "1.",
    ".5",
    "0",
    "-1",
    "0.0000001",
    "Infinity",
    "",
    "１",
    1,
    `1${"0".repeat(40)}`,
  ]) {
    const answer = await spend(agent, { recipient: payee, amount });
    t.equal(answer.statusCode, 422, String(amount));
    t.equal(answer.json<{ code: string }>().code, "invalid_amount", String(amount));
  }
  for (const body of [
    { recipient: payee },
    { recipient: payee, amount: "1", surprise: true },
    { recipient: payee, amount: "1", network: "eip155:1" },
    { recipient: payee, amount: "1", memo: "a\u0000b" },
  ]) {
    const answer = await spend(agent, body);
    t.equal(answer.statusCode, 422);
    t.equal(answer.json<{ code: string }>().code, "validation_failed", JSON.stringify(body));
  }
  const { rows } = await database.pool.query("SELECT 1 FROM payments WHERE agent_id = $1", [
    agent.id,
  ]);
  t.equal(rows.length, 0, "nothing is recorded: no rule was checked");
});

t.test("while the chain is down, nothing is reserved or signed", async (t) => {
  const agent = await fundedAgent();
  await chain.stop();
  const answer = await spend(agent, { recipient: payee, amount: "1" });
  await chain.start();
  t.equal(answer.statusCode, 503, answer.body);
  t.equal(answer.json<{ code: string }>().code, "chain_unavailable");
  const { rows } = await database.pool.query("SELECT 1 FROM payments WHERE agent_id = $1", [
    agent.id,
  ]);
  t.equal(rows.length, 0);
});
