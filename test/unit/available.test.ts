// Goal: `available` is exactly the largest payment that the rules allow, and `boundBy` names the rule that refuses a larger one.
import * as fc from "fast-check";
import t from "tap";
import {
  availableOf,
  largestPayment,
  type WalletFacts,
} from "../../server/plugins/guardrails/available.ts";
import { evaluate } from "../../server/plugins/guardrails/decide.ts";
import { RULES, type AgentState } from "../../server/plugins/guardrails/rules.ts";
import { GENERAL_RULES, type GeneralRule } from "../../server/schemas/agents.ts";
import { bare, fine, switches, USDC } from "./rule-cases.ts";

/** Values in a small range, so that limits are often equal, used up, or lowered below the amount already used. */
const amount = fc.bigInt({ min: 0n, max: 20n });
const limit = fc.option(amount, { nil: undefined });
const rarely = fc.oneof({ weight: 12, arbitrary: fc.constant(false) }, fc.constant(true));
const facts = fc
  .record({
    switched: switches(GENERAL_RULES),
    hasNoPayee: rarely,
    isGasShort: rarely,
    perPaymentLimit: fc.option(amount),
    limit: amount,
    spent: fc.bigInt({ min: 0n, max: 3n }),
    reserved: fc.bigInt({ min: 0n, max: 2n }),
    weeklyLimit: limit,
    weeklySpent: fc.bigInt({ min: 0n, max: 3n }),
    weeklyReserved: fc.bigInt({ min: 0n, max: 2n }),
    monthlyLimit: limit,
    monthlySpent: fc.bigInt({ min: 0n, max: 3n }),
    monthlyReserved: fc.bigInt({ min: 0n, max: 2n }),
    budgetLimit: limit,
    budgetUsed: fc.bigInt({ min: 0n, max: 5n }),
    hourlyLimit: limit,
    hourlySpent: fc.bigInt({ min: 0n, max: 3n }),
    hourlyReserved: fc.bigInt({ min: 0n, max: 2n }),
    balance: amount,
    outstanding: fc.bigInt({ min: 0n, max: 3n }),
    floor: fc.constantFrom(0n, 0n, 0n, 3n),
  })
  .map(({ hasNoPayee, isGasShort, switched, ...rest }) => ({
    status: "active",
    expired: false,
    refusal: null,
    maxAmount: null,
    ...switched,
    ...rest,
    allowed: !hasNoPayee,
    ...(isGasShort && { gasShort: "owner" }),
  }));

t.test("for any facts the largest payment is allowed, and a larger one is not", async (t) => {
  const seen = new Set<GeneralRule>();
  let positive = 0;
  fc.assert(
    fc.property(facts, fc.bigInt({ min: 1n, max: 12n }), (known, more) => {
      const { atomic, boundBy } = largestPayment(known);
      seen.add(boundBy);
      if (atomic > 0n) positive += 1;
      if (atomic > 0n && !evaluate({ ...known, requested: atomic }).allowed) return false;
      if (evaluate({ ...known, requested: atomic + more }).allowed) return false;
      // Except at the gas rule, try one atomic unit more. For the gas rule start at the floor, which refuses smaller amounts first.
      const next = boundBy === "gas" && known.floor > atomic ? known.floor : atomic + 1n;
      const refused = evaluate({ ...known, requested: next });
      return !refused.allowed && refused.rule === boundBy;
    }),
    { numRuns: 8_000 },
  );
  t.same(
    [...seen].sort(),
    [...GENERAL_RULES].sort(),
    "every rule was the limiting one at least once",
  );
  t.ok(positive > 800, `${positive} times a payment was possible`);
});

t.test("general rules have the same names and order as in denials", async (t) => {
  const aboutOnePayment = /^(target|max_amount|channels|payee_|denied_payee|task)/;
  t.same(
    RULES.map(({ name }) => name).filter((name) => !aboutOnePayment.test(name)),
    GENERAL_RULES,
  );
  // The facts of these three come with the wallet.
  const ofWallet = ["balance", "floor", "gas"];
  for (const rule of RULES.filter(({ name }) => !ofWallet.includes(name)))
    if (GENERAL_RULES.includes(rule.name as GeneralRule))
      t.ok("factsOf" in rule, `${rule.name} has facts without a payment`);
});

const window = (limitAtomic: bigint, spentAtomic: bigint) => ({
  limitAtomic,
  spentAtomic,
  reservedAtomic: 0n,
  remainingAtomic: limitAtomic - spentAtomic,
  nextReleaseAt: null,
});
const agent: AgentState = {
  status: "active",
  expired: false,
  perPaymentLimitAtomic: 8n * USDC,
  hasPayees: true,
  limits: {
    ...window(10n * USDC, 1n * USDC),
    weekly: window(20n * USDC, 13n * USDC),
    monthly: window(60n * USDC, 1n * USDC),
    hourly: window(5n, 4n),
    payees: new Map([["any", window(1n, 1n)]]),
  },
};
const wallet: WalletFacts = {
  balance: 9n * USDC,
  outstanding: 0n,
  floor: 0n,
  gasShort: undefined,
  isBehind: false,
};

t.test("the smallest of all limits, the balance and the floor decides", async (t) => {
  const { limits } = agent;
  const bound = (known: Partial<AgentState>, held: Partial<WalletFacts> = {}) => {
    const found = availableOf({ ...agent, ...known }, { ...wallet, ...held });
    return found && [found.atomic, found.boundBy];
  };
  t.same(bound({}), [7n * USDC, "weekly_limit"]);
  t.same(bound({ perPaymentLimitAtomic: 2n }), [2n, "per_payment_limit"]);
  t.same(bound({ limits: { ...limits, ...window(10n, 4n) } }), [6n, "daily_limit"]);
  t.same(bound({ limits: { ...limits, monthly: window(10n, 5n) } }), [5n, "monthly_limit"]);
  t.same(bound({ limits: { ...limits, hourly: window(4n, 4n) } }), [0n, "payments_per_hour"]);
  t.same(
    bound({ limits: { ...limits, weekly: null, monthly: null, hourly: null } }),
    [8n * USDC, "per_payment_limit"],
    "limits that are not set",
  );
  t.same(bound({}, { outstanding: 4n * USDC }), [5n * USDC, "balance"]);
  t.same(
    bound({}, { balance: 1n, outstanding: 4n }),
    [0n, "balance"],
    "more is promised than the wallet holds",
  );
  t.same(bound({}, { floor: 8n * USDC }), [0n, "floor"], "the rest is not worth its gas");
  t.same(bound({}, { gasShort: "agents" }), [0n, "gas"]);
  t.same(bound({ hasPayees: false }), [0n, "allowlist"]);
  t.same(bound({ expired: true }), [0n, "expiry"]);
  t.same(bound({ status: "archived", expired: true }), [0n, "status"], "the first rule decides");
});

t.test("an unknown balance yields no amount, but a full refusal needs none", async (t) => {
  for (const unknown of [undefined, { ...wallet, isBehind: true }]) {
    t.equal(availableOf(agent, unknown), null);
    t.same(availableOf({ ...agent, status: "paused" }, unknown), {
      atomic: 0n,
      boundBy: "status",
    });
    const limits = { ...agent.limits, ...window(2n, 2n) };
    t.same(availableOf({ ...agent, limits }, unknown), { atomic: 0n, boundBy: "daily_limit" });
  }
});

t.test("limits of one payee are not counted", async (t) => {
  const { requested: _requested, ...known } = { ...bare, floor: 0n };
  const {
    requested: _fine,
    price: _price,
    ...strict
  } = { ...fine, payeeLimit: 0n, payeeExpired: true };
  t.same(largestPayment(known), { atomic: 1n * USDC, boundBy: "daily_limit" });
  t.same(largestPayment(strict), { atomic: 1n * USDC, boundBy: "per_payment_limit" });
});
