// Goal: "does it loosen" and "is it covered" agree with the meaning of the rules, field by field, and a digest contains every field.
import t from "tap";
import * as fc from "fast-check";
import { hashTypedData, type Address } from "viem";
import {
  ORDER_KINDS,
  orderDigest,
  policyOrder,
  readOrder,
  rulesOfPolicy,
  typedDataOf,
  typesOf,
  type OrderKind,
  type Orders,
  FORMS,
} from "../../server/core/orders.ts";
import {
  coverOf,
  loosens,
  rulesDigest,
  type Payee,
  type RulesInForce,
} from "../../server/core/rules.ts";

const address = (digit: string): Address => `0x${digit.repeat(40)}`;
const limit = fc.option(fc.bigInt({ min: 0n, max: 4n }), { nil: null });
const payeeWith = (digit: string): fc.Arbitrary<Payee> =>
  fc.record({
    address: fc.constant(address(digit)),
    label: fc.constantFrom("", "Shop"),
    site: fc.constantFrom("", "https://a.example", "https://b.example"),
    dailyLimitAtomic: limit,
    perPaymentLimitAtomic: limit,
    expiresAtSeconds: limit,
  });
const rules: fc.Arbitrary<RulesInForce> = fc.record({
  status: fc.constantFrom("active" as const, "paused" as const),
  dailyLimitAtomic: fc.bigInt({ min: 0n, max: 4n }),
  weeklyLimitAtomic: limit,
  monthlyLimitAtomic: limit,
  perPaymentLimitAtomic: limit,
  paymentsPerHour: limit,
  fetch: fc.constantFrom("any" as const, "sites" as const),
  expiresAtSeconds: limit,
  payees: fc
    .tuple(fc.option(payeeWith("1"), { nil: null }), fc.option(payeeWith("2"), { nil: null }))
    .map((payees) => payees.filter((payee) => payee !== null)),
});
const SITES = [undefined, "https://a.example", "https://b.example"];
const facts = { agentId: "agt_1", walletAddress: address("9"), version: 1, name: "a" };
const single = { nonce: `0x${"ab".repeat(32)}` as const, deadlineSeconds: 99n };

/** Every payment that these rules cover, of all possible ones in this small world. */
function covered(rulesOf: RulesInForce): Set<string> {
  const judge = coverOf(rulesOf);
  const found = new Set<string>();
  if (rulesOf.status !== "active") return found;
  for (const digit of ["1", "2", "3"])
    for (const site of SITES)
      for (let value = 0n; value <= 5n; value += 1n)
        for (let now = 0n; now <= 5n; now += 1n)
          if (
            judge({
              payee: address(digit),
              valueAtomic: value,
              nowSeconds: now,
              ...(site !== undefined && { site }),
            }).covered
          )
            found.add(`${digit} ${site} ${value} ${now}`);
  return found;
}

t.test("rules that do not loosen cover no additional payment", async (t) => {
  fc.assert(
    fc.property(rules, rules, (current, wanted) => {
      if (loosens(current, wanted)) return;
      const before = covered(current);
      for (const payment of covered(wanted)) if (!before.has(payment)) throw new Error(payment);
    }),
    { numRuns: 300 },
  );
  t.pass();
});

t.test("rules never loosen themselves; two different rule sets loosen one way", async (t) => {
  fc.assert(
    fc.property(rules, rules, (one, two) => {
      if (loosens(one, one)) throw new Error("itself");
      const isSame = rulesDigest(one) === rulesDigest(two);
      if (!isSame && !loosens(one, two) && !loosens(two, one))
        throw new Error("differ, and neither loosens");
      if (isSame && loosens(one, two)) throw new Error("the same, and loosens");
    }),
    { numRuns: 500 },
  );
  t.pass();
});

t.test("a policy reads back as the same rules, and its digest equals the wallet's", async (t) => {
  fc.assert(
    fc.property(rules, fc.constantFrom(...FORMS), (given, form) => {
      const order = policyOrder({ ...facts, rules: given, ...single });
      const read = readOrder("AgentPolicy", JSON.parse(JSON.stringify(order)) as typeof order);
      if (!read) throw new Error("not read");
      const back = { ...rulesOfPolicy(read), status: given.status };
      if (rulesDigest(back) !== rulesDigest(given)) throw new Error("other rules");
      const digest = orderDigest("AgentPolicy", read, 5, form);
      const wallets = hashTypedData(typedDataOf("AgentPolicy", order, 5, form) as never);
      if (digest !== wallets) throw new Error("another digest");
      if (digest === orderDigest("AgentPolicy", read, 6, form))
        throw new Error("the same on another chain");
    }),
    { numRuns: 100 },
  );
  t.pass();
});

const hexOf = (bytes: number) =>
  fc.uint8Array({ minLength: bytes, maxLength: bytes }).map((some) => {
    return `0x${Buffer.from(some).toString("hex")}`;
  });

/** Any value that an order's structs allow, with its members in any order. */
function anyStruct(kind: OrderKind, name: string): fc.Arbitrary<Record<string, unknown>> {
  const any = (type: string): fc.Arbitrary<unknown> => {
    if (type.endsWith("[]")) return fc.array(anyStruct(kind, type.slice(0, -2)), { maxLength: 3 });
    if (type === "string") return fc.string({ unit: "binary", maxLength: 40 });
    if (type === "uint256") return fc.bigInt({ min: 0n, max: 2n ** 256n - 1n }).map(String);
    return hexOf(type === "address" ? 20 : 32);
  };
  const fields = typesOf(kind, {})[name] ?? [];
  return fc.record(Object.fromEntries(fields.map((field) => [field.name, any(field.type)])));
}

t.test("the digest of every kind of order is the one a wallet signs", async (t) => {
  for (const kind of ORDER_KINDS)
    fc.assert(
      fc.property(
        anyStruct(kind, kind),
        fc.integer({ min: 1, max: 2 ** 40 }),
        fc.constantFrom(...FORMS),
        (any, chainId, form) => {
          const order = readOrder(kind, any as unknown as Orders[OrderKind]);
          if (!order) throw new Error("not read");
          const wallets = hashTypedData(typedDataOf(kind, order, chainId, form) as never);
          if (orderDigest(kind, order, chainId, form) !== wallets)
            throw new Error("another digest");
        },
      ),
      { numRuns: 60 },
    );
  t.throws(
    () =>
      orderDigest(
        "MoveOwner",
        { from: "0x1", to: "0x", nonce: "0x00", deadline: "1" },
        1,
        "numbers",
      ),
    "a short nonce",
  );
  t.pass();
});

t.test("every field changes the digest", async (t) => {
  const payee: Payee = {
    address: address("1"),
    label: "a",
    site: "",
    dailyLimitAtomic: 1n,
    perPaymentLimitAtomic: 1n,
    expiresAtSeconds: 1n,
  };
  const given: RulesInForce = {
    status: "active",
    dailyLimitAtomic: 1n,
    weeklyLimitAtomic: 1n,
    monthlyLimitAtomic: 1n,
    perPaymentLimitAtomic: 1n,
    paymentsPerHour: 1n,
    fetch: "any",
    expiresAtSeconds: 1n,
    payees: [payee],
  };
  const order = policyOrder({ ...facts, rules: given, ...single });
  const form = "readable";
  const digest = orderDigest("AgentPolicy", order, 1, form);
  const other = (value: unknown): unknown =>
    typeof value !== "string"
      ? []
      : value.startsWith("0x")
        ? value.replace(/.$/, (last) => (last === "0" ? "1" : "0"))
        : /^[0-9]+$/.test(value)
          ? String(BigInt(value) + 1n)
          : `${value}!`;
  for (const [name, value] of Object.entries(order)) {
    const changed = readOrder("AgentPolicy", { ...order, [name]: other(value) });
    t.ok(changed && orderDigest("AgentPolicy", changed, 1, form) !== digest, name);
  }
  const [shown] = order.payees;
  for (const [name, value] of Object.entries(shown ?? {})) {
    const payees = [{ ...shown, [name]: other(value) }] as typeof order.payees;
    const changed = readOrder("AgentPolicy", { ...order, payees });
    t.ok(changed && orderDigest("AgentPolicy", changed, 1, form) !== digest, `payee's ${name}`);
  }
});
