// Goal: a refused agent is given the reason, the numbers and the true answer to whether and when to try again.
import t from "tap";
import type { Address } from "viem";
import { ERRORS } from "../../server/errors.ts";
import { Guardrails } from "../../server/plugins/guardrails/decide.ts";
import { denialError, type Denial } from "../../server/plugins/guardrails/explain.ts";
import type { ReservationRow } from "../../server/plugins/guardrails/store.ts";
import type { ReserveRequest, Snapshot } from "../../server/plugins/guardrails/types.ts";
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
const guardrails = (answer: Partial<ReservationRow>) =>
  new Guardrails({
    reserve: async () => row(answer),
    log: { info: () => undefined, error: () => undefined },
  });

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
  t.match(verdict, { code: "monthly_limit_exceeded", availableAt: AT.toISOString() });
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
