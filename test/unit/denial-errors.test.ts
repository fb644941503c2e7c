// Goal: a refused agent is given the reason, the numbers and the true answer to whether and when to try again.
import t from "tap";
import type { Address } from "viem";
import { ERRORS } from "../../server/errors.ts";
import { limitsOnWire } from "../../server/plugins/guardrails/available.ts";
import { denialError, Guardrails, type Denial } from "../../server/plugins/guardrails/decide.ts";
import type { ReservationRow } from "../../server/plugins/guardrails/store.ts";
import type { Snapshot } from "../../server/plugins/guardrails/rules.ts";
import type { ReserveRequest } from "../../server/plugins/guardrails/types.ts";
import { bare, USDC } from "./rule-cases.ts";

const WALLET: Address = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8";
const AT = new Date("2026-05-01T12:00:00.123Z");
/** Refused for its balance by the rules; all numbers differ from each other. */
const snapshot: Snapshot = {
  ...bare,
  requested: 3n * USDC,
  spent: 1_500_000n,
  reserved: 500_000n,
  outstanding: 250_000n,
};

const denial = (over: Partial<Denial>): Denial => ({
  code: "agent_paused",
  rule: "status",
  snapshot,
  paymentId: "pay_1",
  nextReleaseAt: null,
  availableAt: null,
  walletAddress: WALLET,
  detail: "Said so.",
  ...over,
});

t.test("a rule without its own texts uses those of the error catalogue", async (t) => {
  const error = denialError(denial({}));
  t.equal(error.message, "Said so.");
  t.equal(error.status, 403);
  t.match(error.extra, {
    blocked: true,
    paymentId: "pay_1",
    retryable: ERRORS.agent_paused.retryable,
    suggestion: ERRORS.agent_paused.help,
    policy: { rule: "status", requested: "3" },
  });
  t.notOk("availableAt" in error.extra, "no time where waiting does not help");
  t.notOk("fundingAddress" in error.extra);
  t.equal(denialError(denial({ code: "agent_expired", rule: "expiry" })).extra["retryable"], false);
});

t.test("a daily limit returns the time to wait for, or that waiting does not help", async (t) => {
  const daily = { code: "daily_limit_exceeded", rule: "daily_limit" } as const;
  t.match(denialError(denial({ ...daily, availableAt: AT, nextReleaseAt: AT })).extra, {
    retryable: true,
    availableAt: "2026-05-01T12:00:00.123Z",
    nextReleaseAt: "2026-05-01T12:00:00.123Z",
    suggestion: /^Wait until 2026-05-01T12:00:00\.123Z, .*Do not split the payment\.$/,
  });
  const never = { ...snapshot, requested: 6n * USDC };
  t.match(denialError(denial({ ...daily, snapshot: never, nextReleaseAt: AT })).extra, {
    retryable: false,
    availableAt: null,
    suggestion: /above the whole daily limit of 5 USDC: .*Do not split the payment\.$/,
  });
});

t.test("each time window has its own numbers and text", async (t) => {
  const counts = { hourlyLimit: 3n, hourlySpent: 2n, hourlyReserved: 1n };
  const often = {
    code: "payment_rate_exceeded",
    rule: "payments_per_hour",
    snapshot: { ...snapshot, ...counts },
  } as const;
  const rate = denialError(denial({ ...often, availableAt: AT, nextReleaseAt: AT })).extra;
  t.match(rate, {
    retryable: true,
    availableAt: "2026-05-01T12:00:00.123Z",
    suggestion: /^Wait until 2026-05-01T12:00:00\.123Z, or ask the owner/,
    policy: { window: "1h", limit: "3", spent: "2", reserved: "1", remaining: "0", requested: "3" },
  });
  t.match(denialError(denial({ ...often, snapshot: { ...snapshot, hourlyLimit: 0n } })).extra, {
    retryable: false,
    suggestion: /above the whole limit of payments per hour of 0 payments/,
  });
  const week = { weeklyLimit: 9n * USDC, weeklySpent: 8n * USDC, weeklyReserved: 0n };
  const weekly = denial({
    code: "weekly_limit_exceeded",
    rule: "weekly_limit",
    snapshot: { ...snapshot, ...week },
  });
  t.match(denialError(weekly).extra, {
    retryable: false,
    suggestion: /^This amount is above another limit/,
    policy: { window: "7d", limit: "9", spent: "8", reserved: "0", remaining: "1" },
  });
});

t.test("an empty wallet error contains the missing amount and the address to fund", async (t) => {
  const error = denialError(denial({ code: "insufficient_funds", rule: "balance" }));
  t.equal(error.status, 402);
  t.match(error.extra, {
    retryable: true,
    balance: "2",
    outstanding: "0.25",
    required: "3",
    fundingAddress: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
  });
});

const row = (over: Partial<ReservationRow>): ReservationRow => ({
  outcome: "blocked",
  code: "insufficient_funds",
  paymentId: "pay_1",
  validBefore: null,
  decidedAtMicros: 0n,
  snapshot,
  nextReleaseAt: null,
  availableAt: null,
  releases: [],
  statusCode: null,
  response: null,
  ...over,
});
const request: ReserveRequest = {
  agentId: "agt_1",
  apiKeyId: null,
  kind: "x402",
  chainId: 1,
  asset: WALLET,
  to: WALLET,
  amountAtomic: 3_000_000n,
  nonce: "0x00",
  validForSeconds: 60,
  requestId: null,
  balance: { atomic: 0n, blockNumber: 0n },
  walletAddress: WALLET,
};
/** What the log, the metrics and the database got. */
const noted: unknown[] = [];
const guardrails = (answer: Partial<ReservationRow>) =>
  new Guardrails({
    reserve: async ({ dryRun, paymentId, agentId }) => {
      noted.push({ dryRun, paymentId, agentId });
      return row(answer);
    },
    denied: (code) => noted.push(code),
    log: {
      info: (fields, message) => noted.push([message, fields]),
      error: (fields, message) => noted.push([message, fields]),
    },
  });
/** What was noted since the last call. */
const notes = () => noted.splice(0);

t.test("decisions of the database become results and errors", async (t) => {
  t.match(await guardrails({}).reserve(request), {
    kind: "denied",
    code: "insufficient_funds",
    error: { message: /the wallet has 2 USDC/ },
  });
  t.match(
    await guardrails({
      code: "listing_mismatch",
      snapshot: { ...snapshot, refusal: "listing_mismatch" },
    }).reserve({ ...request, refusal: { code: "listing_mismatch", detail: "Twice the price." } }),
    { kind: "denied", error: { message: "Twice the price." } },
    "the detail comes from the check that refused the target",
  );
  t.match(await guardrails({ outcome: "running" }).reserve(request), {
    kind: "in_progress",
    paymentId: "pay_1",
  });
  t.match(await guardrails({ outcome: "running", paymentId: null }).reserve(request), {
    kind: "in_progress",
    paymentId: null,
  });
  t.same(
    await guardrails({ outcome: "replay", statusCode: 200, response: '{"a":1}' }).reserve(request),
    { kind: "replay", statusCode: 200, response: '{"a":1}', paymentId: "pay_1" },
  );
  t.same(await guardrails({ outcome: "key_reused" }).reserve(request), { kind: "key_reused" });
  t.match(await guardrails({ outcome: "unauthorized", code: "api_key_revoked" }).reserve(request), {
    kind: "denied",
    paymentId: null,
    error: { status: 401, headers: { "www-authenticate": "Bearer" } },
  });
  await t.rejects(guardrails({ outcome: "not_found" }).reserve(request), { code: "not_found" });
  t.match(
    await guardrails({
      outcome: "reserved",
      code: null,
      validBefore: 99n,
      snapshot: { ...snapshot, requested: 1_000_000n },
    }).reserve(request),
    { kind: "reserved", validBeforeSeconds: 99n, remainingAtomic: 2_000_000n },
  );
});

t.test("every refusal is logged and counted, and says whether the owner may lift it", async (t) => {
  notes();
  t.match(await guardrails({}).reserve(request), { liftable: false, paymentId: "pay_1" });
  const balance = await guardrails({}).reserve(request);
  t.notOk(balance.kind === "denied" && "payTo" in balance.error.extra, "the payee is allowed");
  notes();
  await guardrails({}).reserve(request);
  const [asked, ...after] = notes();
  t.match(asked, { dryRun: false, agentId: "agt_1", paymentId: /^pay_/ });
  t.same(after, [
    [
      "payment refused by a guardrail",
      { agentId: "agt_1", paymentId: "pay_1", code: "insufficient_funds" },
    ],
    "insufficient_funds",
  ]);
  const unlisted = {
    code: "recipient_not_allowed",
    snapshot: { ...snapshot, allowed: false },
    nextReleaseAt: AT,
  };
  const checksummed = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
  t.match(await guardrails(unlisted).reserve(request), {
    liftable: true,
    error: {
      extra: {
        approvable: true,
        payTo: checksummed,
        site: null,
        suggestion: `Ask the owner to allow ${checksummed}.`,
      },
    },
  });
  t.match(await guardrails(unlisted).reserve({ ...request, site: "https://a.example" }), {
    error: {
      extra: {
        site: "https://a.example",
        suggestion: `Ask the owner to allow ${checksummed}, for https://a.example or for all sites.`,
      },
    },
  });
  const nobody = await guardrails(unlisted).reserve({ ...request, to: null });
  t.equal(nobody.kind === "denied" && nobody.error.extra["payTo"], undefined);
  const bound = { ...unlisted, code: "payee_bound_to_site" };
  const elsewhere = await guardrails({
    ...bound,
    snapshot: { ...unlisted.snapshot, payeeSites: ["https://a.example"] },
  }).reserve(request);
  t.match(elsewhere, {
    error: { extra: { payTo: checksummed, suggestion: ERRORS.payee_bound_to_site.help } },
  });
  const plain = new Guardrails({
    reserve: async () => row({}),
    log: { info: () => undefined, error: () => undefined },
  });
  t.match(await plain.reserve(request), { kind: "denied" }, "without metrics");
});

t.test("nothing is decided while the service cannot know enough", async (t) => {
  t.same(await guardrails({ outcome: "canceled" }).reserve(request), { kind: "canceled" });
  t.match(await guardrails({ outcome: "replay", statusCode: null }).reserve(request), {
    statusCode: 200,
  });
  t.match(await guardrails({ outcome: "unauthorized", code: "api_key_expired" }).reserve(request), {
    code: "api_key_expired",
    liftable: false,
  });
  const unavailable = { code: "chain_unavailable", message: /Nothing was signed/ };
  notes();
  await t.rejects(guardrails({ outcome: "clock_apart" }).reserve(request), {
    ...unavailable,
    message: /too far apart/,
  });
  t.same(notes().at(-1), [
    "the clocks of the database and the chain are far apart",
    { agentId: "agt_1", chainId: 1 },
  ]);
  await t.rejects(guardrails({ outcome: "held" }).reserve(request), {
    ...unavailable,
    message: /behind the chain/,
  });
  const complete = { outcome: "reserved", code: null, validBefore: 9n } as const;
  for (const [what, missing] of [
    ["snapshot", { snapshot: null }],
    ["payment id", { paymentId: null }],
    ["validBefore", { validBefore: null }],
  ] as const)
    await t.rejects(
      guardrails({ ...complete, ...missing }).reserve(request),
      new RegExp(`without a ${what}`),
    );
  const allowed = { ...snapshot, requested: 1n, floor: 1n };
  await t.rejects(
    guardrails({ code: null, snapshot: allowed }).reserve(request),
    /refused without a code/,
  );
});

t.test("limits as agents and owners read them", async (t) => {
  const window = (limit: bigint, nextReleaseAt: Date | null = null) => ({
    limitAtomic: limit,
    spentAtomic: limit - 3n,
    reservedAtomic: 1n,
    remainingAtomic: 2n,
    nextReleaseAt,
  });
  const limits = {
    ...window(5n * USDC, AT),
    weekly: null,
    monthly: null,
    hourly: null,
    payees: new Map(),
  };
  const daily = {
    limit: "5",
    spent: "4.999997",
    reserved: "0.000001",
    remaining: "0.000002",
    nextReleaseAt: AT.toISOString(),
  };
  t.same(limitsOnWire(limits, null), {
    ...daily,
    available: null,
    boundBy: null,
    weekly: null,
    monthly: null,
    hourly: null,
    budgets: [],
  });
  const full = {
    ...limits,
    nextReleaseAt: null,
    weekly: window(6n * USDC, AT),
    monthly: window(7n * USDC),
    hourly: window(8n, AT),
    budgets: [
      {
        id: "bud_1",
        name: "Research",
        hours: 168,
        limitAtomic: 5n,
        usedAtomic: 9n,
        availableAt: AT,
      },
    ],
  };
  t.same(limitsOnWire(full, { atomic: 2n, boundBy: "balance" }), {
    ...daily,
    nextReleaseAt: null,
    available: "0.000002",
    boundBy: "balance",
    weekly: { ...daily, limit: "6", spent: "5.999997" },
    monthly: { ...daily, limit: "7", spent: "6.999997", nextReleaseAt: null },
    hourly: { limit: 8, spent: 5, reserved: 1, remaining: 2, nextReleaseAt: AT.toISOString() },
    budgets: [
      {
        id: "bud_1",
        name: "Research",
        window: "7d",
        limit: "0.000005",
        available: "0",
        availableAt: AT.toISOString(),
      },
    ],
  });
  t.match(limitsOnWire({ ...full, hourly: window(8n) }, null).hourly, { nextReleaseAt: null });
});

t.test("a refusal that the rules cannot reproduce is a fault, not a payment", async (t) => {
  await t.rejects(guardrails({ code: "agent_paused" }).reserve(request), /guardrails disagree/);
  const allowed = { ...snapshot, requested: 1n, floor: 1n };
  const refused = { outcome: "denied", code: "agent_paused", snapshot: allowed } as const;
  await t.rejects(guardrails(refused).evaluate(request), /guardrails disagree/);
});

t.test("a refusal by a rule of a newer release is refused by name", async (t) => {
  const unknown = { status: 503, code: "policy_version_unknown", message: /newer.*in_quiet_hours/ };
  // Whether or not a rule of this release refuses too.
  for (const facts of [snapshot, { ...snapshot, requested: 1n, floor: 1n }]) {
    const newer = { code: "in_quiet_hours", snapshot: facts };
    await t.rejects(guardrails(newer).reserve(request), unknown);
    await t.rejects(guardrails({ ...newer, outcome: "denied" }).evaluate(request), unknown);
  }
});

t.test("a dry run returns the same denial and reserves nothing", async (t) => {
  t.match(await guardrails({ outcome: "denied" }).evaluate(request), {
    allowed: false,
    code: "insufficient_funds",
    policy: { rule: "balance" },
    remainingAtomic: 3_000_000n,
  });
  const full = { monthlyLimit: 4n * USDC, monthlySpent: 2n * USDC, monthlyReserved: 0n };
  const rule = "monthly_limit" as const;
  const verdict = await guardrails({
    outcome: "denied",
    code: "monthly_limit_exceeded",
    snapshot: { ...snapshot, ...full, balance: 9n * USDC },
    availableAt: AT,
    releases: [
      { rule: "daily_limit", nextReleaseAt: null, availableAt: new Date(0) },
      { rule, nextReleaseAt: AT, availableAt: AT },
    ],
  }).evaluate(request);
  t.match(verdict, {
    code: "monthly_limit_exceeded",
    availableAt: AT.toISOString(),
    nextReleaseAt: null,
    error: { extra: { paymentId: "pay_1", availableAt: AT.toISOString() } },
  });
  t.match(notes().at(-1), { dryRun: true, agentId: "agt_1", paymentId: /^pay_/ });
  const early = await guardrails({
    outcome: "denied",
    code: "agent_paused",
    snapshot: { ...snapshot, status: "paused" },
    nextReleaseAt: AT,
    releases: [{ rule: "daily_limit", nextReleaseAt: AT, availableAt: null }],
  }).evaluate(request);
  t.match(early, { availableAt: null, nextReleaseAt: AT.toISOString() });
  t.same(
    early.trace.find((one) => one.rule === "daily_limit"),
    {
      rule: "daily_limit",
      passed: null,
      detail: "Not checked: an earlier rule refused the payment.",
      availableAt: null,
    },
    "a rule that was not checked has one",
  );
  t.notOk("availableAt" in (early.trace.find((one) => one.rule === "balance") ?? {}));
  await t.rejects(
    guardrails({ outcome: "unauthorized", code: "api_key_expired" }).evaluate(request),
    { code: "api_key_expired", headers: { "www-authenticate": "Bearer" } },
  );
  await t.rejects(guardrails({ outcome: "not_found", snapshot: null }).evaluate(request), {
    code: "not_found",
  });
  const traced = new Map(verdict.trace.map((one) => [one.rule, one]));
  t.match(traced.get(rule), { passed: false, availableAt: AT.toISOString() });
  t.equal(traced.get("daily_limit")?.availableAt, undefined, "a passed rule has no time");
  t.match(
    await guardrails({
      outcome: "allowed",
      code: null,
      snapshot: { ...snapshot, requested: 1n, floor: 1n },
    }).evaluate(request),
    { allowed: true, error: null, code: null, policy: null },
  );
});
