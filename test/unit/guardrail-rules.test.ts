// Goal: the first refusing rule decides, in the listed order, and its text and numbers are true.
import t from "tap";
import { AGENT_FIELDS, PAYEE_FIELDS } from "../../packages/rules/src/fields.ts";
import { AddAllowlistBody, CreateAgentBody, UpdateAgentBody } from "../../server/schemas/agents.ts";
import { ERRORS } from "../../server/errors.ts";
import { evaluate, policyOf } from "../../server/plugins/guardrails/decide.ts";
import {
  channelNeeds,
  DENIAL_CODES,
  readFacts,
  RULES,
  type RuleName,
  type Snapshot,
} from "../../server/plugins/guardrails/rules.ts";
import type { FormField } from "../../server/plugins/guardrails/rules.ts";
import { bare, FAULTS, fine, USDC } from "./rule-cases.ts";

t.test("every rule has a case here, in its place", async (t) => {
  t.same(
    RULES.map(({ name }) => name),
    [...new Set(FAULTS.map(({ rule }) => rule))],
  );
});

t.test("a payment exactly at every limit is allowed", async (t) => {
  const { allowed, trace } = evaluate(fine);
  t.equal(allowed, true);
  t.same(
    trace.map(({ rule, passed }) => [rule, passed]),
    RULES.filter(({ name }) => !/^(target|denied_payee|pause_.*)$/.test(name)).map(({ name }) => [
      name,
      true,
    ]),
    "all passed; the target had no facts to check, nothing is denied, and no rule paused the agent",
  );
});

for (const [place, { rule, code, wrong, detailPattern }] of FAULTS.entries())
  t.test(`${rule} refuses, before all that come after it`, async (t) => {
    const others = FAULTS.slice(place + 1).map((fault) => fault.wrong);
    for (const snapshot of [
      { ...fine, ...wrong },
      Object.assign({ ...fine }, ...others, wrong) as Snapshot,
    ]) {
      const evaluation = evaluate(snapshot);
      t.match(evaluation, { allowed: false, rule, code, detail: detailPattern });
      const at = evaluation.trace.findIndex((verdict) => verdict.rule === rule);
      t.match(evaluation.trace[at], { passed: false, detail: detailPattern });
      t.ok(evaluation.trace.slice(0, at).every(({ passed }) => passed === true));
      t.ok(evaluation.trace.slice(at + 1).every(({ passed }) => passed === null));
    }
  });

t.test("what an approval lifts, and what passes without it", async (t) => {
  const approval = { id: "apr_1", nonce: "0x01" } as const;
  for (const facts of [fine, { ...fine, approval }])
    for (const { rule, passed, detail, liftable } of evaluate(facts).trace) {
      t.equal(passed, true, rule);
      t.notMatch(detail, /approval/, `${rule} needed none`);
      t.equal(liftable, undefined, `${rule} refused nothing`);
    }
  const { trace } = evaluate({ ...fine, approval, limit: 1n });
  const daily = trace.find(({ rule }) => rule === "daily_limit");
  t.match(daily, { passed: true, detail: /The owner's approval apr_1 allows it once\.$/ });
});

t.test("one payment, several payments", async (t) => {
  const made = (hourlySpent: bigint, hourlyReserved: bigint) => {
    const { trace } = evaluate({ ...fine, hourlySpent, hourlyReserved });
    return trace.find(({ rule }) => rule === "payments_per_hour")?.detail;
  };
  t.equal(made(0n, 1n), "1 payment of 5 made in the last hour.");
  t.equal(made(1n, 1n), "2 payments of 5 made in the last hour.");
});

t.test("a rule without facts is not evaluated", async (t) => {
  const { trace } = evaluate(bare);
  t.same(
    trace.map(({ rule }) => rule),
    ["status", "expiry", "allowlist", "daily_limit", "balance", "floor", "gas"],
    "no limit but the daily one, and no facts about the payee",
  );
});

t.test("the numbers of each rule", async (t) => {
  t.same(policyOf(fine, "per_payment_limit"), {
    rule: "per_payment_limit",
    window: "payment",
    limit: "1",
    spent: "0",
    reserved: "0",
    remaining: "1",
    requested: "1",
  });
  const daily = { window: "24h", limit: "5", spent: "3", reserved: "1", remaining: "1" };
  t.same(policyOf(fine, "daily_limit"), { rule: "daily_limit", ...daily, requested: "1" });
  const numbers = (rule: RuleName) => {
    const { window, limit, spent, reserved, remaining, requested } = policyOf(fine, rule);
    return [window, limit, spent, reserved, remaining, requested].join(" ");
  };
  t.equal(numbers("payments_per_hour"), "1h 5 3 1 1 1");
  t.equal(numbers("payee_limit"), "24h 2 0 1 1 1");
  t.equal(numbers("weekly_limit"), "7d 9 7 1 1 1");
  t.equal(numbers("monthly_limit"), "30d 20 18 1 1 1");
  t.equal(numbers("payee_per_payment_limit"), "payment 1 0 0 1 1");
  t.equal(numbers("channels"), "held 4 3 0 1 1");
  t.same(
    policyOf(fine, "allowlist"),
    { rule: "allowlist", ...daily, requested: "1" },
    "a rule without numbers shows those of the day",
  );
  t.equal(
    policyOf({ ...fine, limit: 2n * USDC }, "daily_limit").remaining,
    "0",
    "a lowered limit leaves zero, not less",
  );
});

t.test(
  "a payment through a channel: its price, its deposit and what the owner must sign",
  async (t) => {
    const refusalOf = (facts: Partial<Snapshot>) => {
      const found = evaluate({ ...fine, ...facts });
      return found.allowed ? undefined : [found.code, found.detail.split(";")[0]];
    };
    const small = { requested: 1n, price: USDC, floor: null };
    t.equal(refusalOf(small), undefined);
    const less = USDC - 1n;
    const [max, single, payees] = [
      { maxAmount: less },
      { perPaymentLimit: less },
      { payeePerPaymentLimit: less },
    ];
    t.same(refusalOf({ ...small, ...max }), ["price_exceeds_max", "1 USDC requested"]);
    t.same(refusalOf({ ...small, ...single }), ["per_payment_limit_exceeded", "1 USDC requested"]);
    t.same(refusalOf({ ...small, ...payees }), [
      "payee_per_payment_limit_exceeded",
      "1 USDC requested",
    ]);
    const snapshot = { ...fine, ...small };
    for (const rule of ["max_amount", "per_payment_limit", "payee_per_payment_limit"] as const)
      t.equal(policyOf(snapshot, rule).requested, "1", rule);
    t.equal(policyOf(snapshot, "daily_limit").requested, "0.000001", "what the ceiling grows by");
    t.same(refusalOf({ balance: USDC }), ["insufficient_funds", "1 USDC to deposit"]);
    t.equal(refusalOf({ balance: USDC, channelDeposit: 0n }), undefined, "the channel has room");
    t.equal(policyOf({ ...fine, channelDeposit: 7n }, "balance").requested, "0.000007");
    // What is held already is not refused: only more of it.
    const lowered = { channelLimit: 1n, payeeChannelLimit: 1n, channelDeposit: 0n };
    t.equal(refusalOf(lowered), undefined);
    t.same(channelNeeds({ ...fine, ...lowered }), {});
    t.same(channelNeeds({ ...fine, channelLimit: 0n }), { channelHeld: "4" });
    t.same(channelNeeds({ ...fine, payeeChannelLimit: 0n, channelDelay: 90_000n }), {
      payeeChannelHeld: "2",
      channelDelay: 90_000,
    });
    t.same(
      channelNeeds({ channelDeposit: 0n, channelLimit: 0n, channelHeld: 0n }),
      { channelHeld: "0.000001" },
      "0 allows none",
    );
  },
);

t.test("codes are in the catalogue, and each belongs to one rule", async (t) => {
  t.same([...new Set(DENIAL_CODES)], DENIAL_CODES);
  for (const code of DENIAL_CODES) t.ok(code in ERRORS, code);
  for (const { code } of FAULTS) t.ok(DENIAL_CODES.includes(code), code);
});

t.test("a form field is one that the owner can send", async (t) => {
  const sent = { ...CreateAgentBody.properties, ...UpdateAgentBody.properties };
  const fields: FormField[] = RULES.flatMap(({ field, otherFields = [] }) => [
    ...(field ? [field] : []),
    ...otherFields,
  ]);
  const settings = [
    "allowlist",
    ...AGENT_FIELDS.map(({ name }) => name),
    ...PAYEE_FIELDS.map(({ name }) => `payee.${name}`),
  ];
  t.same(
    fields.map(({ name, of }) => (of === "payee" ? `payee.${name}` : name)).toSorted(),
    settings.toSorted(),
    "each setting is the field of one rule",
  );
  for (const { name, of, label, help } of fields) {
    t.ok(name in (of === "payee" ? AddAllowlistBody.properties : sent), name);
    t.ok(label !== "" && help !== "");
  }
});

t.test("stored facts read back as the same facts", async (t) => {
  const huge = 2n ** 200n;
  const facts = { ...fine, status: "paused", refusal: "url_blocked", limit: huge, maxAmount: null };
  const stored: unknown = JSON.parse(
    JSON.stringify(facts, (_name, value: unknown) =>
      typeof value === "bigint" ? String(value) : value,
    ),
  );
  t.same(readFacts(stored as object), facts);
  t.same(readFacts({ status: "12345" }), { status: "12345" }, "a text that consists of digits");
});
