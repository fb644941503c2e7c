// Goal: a fee is never more than a tenth of its payment, rounds in the payee's favour, and a wrong configuration does not start.
import t from "tap";
import { loadConfig } from "../../server/config.ts";
import { feeOn, formatPerMille } from "../../server/core/fees.ts";
import { Fees } from "../../server/plugins/fees/payee-fees.ts";
import { problemsOf } from "../helpers/config-problems.ts";

const ADDRESS = "0x00000000000000000000000000000000000fee00" as const;
const PAYEE = "0x00000000000000000000000000000000000c0ffe";
const terms = (perSettlementAtomic: bigint, partsPerMillion: bigint) => ({
  perSettlementAtomic,
  partsPerMillion,
  creditAtomic: 100n,
  payTo: ADDRESS,
});

t.test("the fee of an amount", async (t) => {
  t.equal(feeOn(terms(0n, 0n), 10n ** 12n), 0n);
  t.equal(feeOn(terms(1_000n, 0n), 1_000_000n), 1_000n);
  t.equal(feeOn(terms(1_000n, 2_500n), 1_000_000n), 3_500n);
  t.equal(feeOn(terms(0n, 2_500n), 399n), 0n, "down");
  t.equal(feeOn(terms(0n, 2_500n), 400n), 1n);
  t.equal(feeOn(terms(1_000n, 0n), 5_009n), 500n, "a tenth, down");
  t.equal(feeOn(terms(1_000n, 0n), 9n), 0n, "no fee on dust");
  for (let amount = 0n; amount < 3_000n; amount += 7n)
    t.ok(feeOn(terms(1_000n, 100_000n), amount) * 10n <= amount, `at most a tenth of ${amount}`);
  t.same([0n, 1n, 2_500n, 100_000n].map(formatPerMille), ["0", "0.001", "2.5", "100"]);
});

t.test("configuration", async (t) => {
  const fee = { FEE_PER_SETTLEMENT: "0.001", FEE_ADDRESS: ADDRESS };
  t.match(loadConfig({}).fees, { perSettlementAtomic: 0n, partsPerMillion: 0n, payTo: undefined });
  t.same(loadConfig({ ...fee, FEE_PER_MILLE: "2.5", FEE_CREDIT: "0" }).fees, {
    perSettlementAtomic: 1_000n,
    partsPerMillion: 2_500n,
    creditAtomic: 0n,
    payTo: ADDRESS,
  });
  t.match(problemsOf({ FEE_PER_MILLE: "1" }), [/FEE_ADDRESS is missing/]);
  for (const text of ["-1", "1e3", "0.0000001", " 1", "01"])
    t.match(problemsOf({ ...fee, FEE_PER_SETTLEMENT: text }), [/FEE_PER_SETTLEMENT must be/], text);
  for (const text of ["100.001", "101", "1.2345", "2.", ".5", "1,5", "+1"])
    t.match(problemsOf({ ...fee, FEE_PER_MILLE: text }), [/FEE_PER_MILLE must be/], text);
  for (const text of [
    "0x0000000000000000000000000000000000000000",
    "0x12",
    "0x000000000000000000000000000000000000c0fFE0",
    "0x3600000000000000000000000000000000000000",
  ])
    t.match(problemsOf({ ...fee, FEE_ADDRESS: text }), [/FEE_ADDRESS/], text);
});

t.test("what is charged and credited, and to whom", async (t) => {
  let owing = 0n;
  const fees = new Fees({
    terms: terms(10n, 0n),
    exempt: ["0x00000000000000000000000000000000000000aa"],
    owed: async () => owing,
    payUrl: (account) => `https://f.example${account}`,
  });
  t.same(fees.feeFor(PAYEE, 1_000n), { account: PAYEE, amount: "10" });
  t.equal(fees.feeFor(PAYEE, 9n), undefined, "no fee, no entry");
  t.equal(fees.feeFor(ADDRESS, 1_000n), undefined, "a payment of fees has no fee");
  t.equal(fees.feeFor("0x00000000000000000000000000000000000000AA", 1_000n), undefined, "our own");

  const pay = `https://any.example/api/merchant/fees/pay?account=${PAYEE}&network=eip155:1`;
  t.same(fees.paymentFor(ADDRESS, pay), { account: PAYEE });
  t.equal(fees.paymentFor(PAYEE, pay), undefined, "another payee");
  for (const url of [
    undefined,
    "https://any.example/paid",
    "https://any.example/api/merchant/fees/pay",
    "https://any.example/api/merchant/fees/pay?account=0x12",
    `https://any.example/x/api/merchant/fees/pay?account=${PAYEE}`,
  ])
    t.equal(fees.paymentFor(ADDRESS, url), undefined, String(url));

  const payment = {
    payer: PAYEE,
    payTo: PAYEE,
    amountAtomic: 1_000n,
    network: { chainId: 1 },
  } as unknown as Parameters<Fees["refusal"]>[0];
  owing = 90n;
  t.equal(await fees.refusal(payment), undefined, "exactly the credit");
  owing = 91n;
  t.match(await fees.refusal(payment), { reason: "fees_unpaid", message: /owes .* 0.000091 USDC/ });
  t.equal(await fees.refusal({ ...payment, amountAtomic: 9n }), undefined, "it has no fee");
});
