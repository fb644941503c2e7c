// Goal: from any list of offers, in any order and beside any invalid ones, the cheapest valid one is chosen, and no other can be.
import * as fc from "fast-check";
import t from "tap";
import { MAX_VALID_SECONDS } from "../../server/plugins/payments/steps.ts";
import { chooseTerms, type Choice } from "../../server/plugins/x402-client/choose.ts";
import { parseOffer } from "../../server/plugins/x402-client/ask.ts";
import type { OfferedTerms } from "../../server/plugins/x402-client/terms.ts";
import { ARC, BASE_SEPOLIA as BASE, PAYER as WALLET } from "./payment-samples.ts";

const NETWORKS = [ARC, BASE];
const PAYEES = [
  "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
  "0x90f79bf6eb2c4f870365e785982e1f101e93b906",
] as const;

type Entry = Record<string, unknown>;
interface Made {
  entry: Entry;
  /** The expected terms; undefined where the entry must not be paid. */
  good: { price: bigint; isPreferred: boolean; isCancelable: boolean; seconds: number } | undefined;
}

const good: fc.Arbitrary<Made> = fc
  .record({
    isArc: fc.boolean(),
    price: fc.bigInt({ min: 1n, max: 6n }),
    isPermit2: fc.boolean(),
    payTo: fc.constantFrom(...PAYEES),
    seconds: fc.integer({ min: 4, max: 1_600 }).map((quarters) => quarters / 4),
    isLoud: fc.boolean(),
  })
  .map(({ isArc, price, isPermit2, payTo, seconds, isLoud }) => {
    const { id, usdc } = isArc ? ARC : BASE;
    const asset = isLoud ? usdc.address : usdc.address.toLowerCase();
    return {
      entry: {
        scheme: "exact",
        network: id,
        amount: String(price),
        asset,
        payTo,
        maxTimeoutSeconds: seconds,
        extra: isPermit2
          ? { assetTransferMethod: "permit2", name: usdc.name, version: usdc.version }
          : { name: usdc.name, version: usdc.version },
      },
      good: { price, isPreferred: isArc, isCancelable: !isPermit2, seconds },
    };
  });

/** Each of these alone makes an entry that must not be paid. */
const FAULTS: readonly ((entry: Entry) => Entry)[] = [
  (entry) => ({ ...entry, scheme: "batch-settlement" }),
  (entry) => ({ ...entry, network: "eip155:1" }),
  (entry) => ({ ...entry, asset: WALLET }),
  (entry) => ({ ...entry, amount: "0" }),
  (entry) => ({ ...entry, amount: "01" }),
  (entry) => ({ ...entry, amount: "1e0" }),
  (entry) => ({ ...entry, amount: "-1" }),
  (entry) => ({ ...entry, payTo: WALLET }),
  (entry) => ({ ...entry, payTo: entry["asset"] }),
  (entry) => ({ ...entry, payTo: `0x${"0".repeat(40)}` }),
  (entry) => ({ ...entry, payTo: "nobody" }),
  (entry) => ({ ...entry, maxTimeoutSeconds: 0.5 }),
  (entry) => ({ ...entry, extra: { name: "GatewayWalletBatched" } }),
  (entry) => ({ ...entry, extra: { name: "USDC", version: "2", verifyingContract: WALLET } }),
  (entry) => ({ ...entry, extra: { assetTransferMethod: "erc7710" } }),
];
const bad: fc.Arbitrary<Made> = fc
  .tuple(good, fc.constantFrom(...FAULTS))
  .map(([{ entry }, fault]) => ({ entry: fault(entry), good: undefined }));
const made = fc.oneof({ weight: 3, arbitrary: good }, bad);

/** As `readTerms` returns them. */
const termsOf = ({ entry }: Made): OfferedTerms =>
  ({ protocol: "x402", ...entry, raw: entry }) as unknown as OfferedTerms;
const choose = (list: readonly Made[]): Choice => chooseIn(list.map(termsOf));

const chooseIn = (accepts: OfferedTerms[], refuse?: Parameters<typeof chooseTerms>[1]["refuse"]) =>
  chooseTerms(
    { x402Version: 2, accepts, resource: undefined, extensions: undefined, error: undefined },
    {
      networks: NETWORKS,
      wallet: WALLET,
      preferredNetwork: ARC.id,
      ...(refuse && { refuse }),
    },
  );

/** Price; then the agent's own network; then cancelable; then the seller's order. */
function referenceChoice(list: readonly Made[]): Made | undefined {
  let best: Made | undefined;
  for (const one of list) {
    if (!one.good) continue;
    const now = best?.good;
    const isBetter =
      !now ||
      one.good.price < now.price ||
      (one.good.price === now.price &&
        ((one.good.isPreferred && !now.isPreferred) ||
          (one.good.isPreferred === now.isPreferred &&
            one.good.isCancelable &&
            !now.isCancelable)));
    if (isBetter) best = one;
  }
  return best;
}

t.test("the choice equals that of a simple reference implementation", async (t) => {
  let none = 0;
  fc.assert(
    fc.property(fc.array(made, { minLength: 1, maxLength: 8 }), (list) => {
      const choice = choose(list);
      const best = referenceChoice(list);
      if (!choice.ok) {
        none += 1;
        return best === undefined && choice.reasons.length === list.length;
      }
      const { chosen, ranked, offers } = choice;
      return (
        chosen.terms.raw === best?.entry &&
        chosen.amountAtomic === best.good?.price &&
        chosen.validForSeconds === Math.floor(Math.min(best.good.seconds, MAX_VALID_SECONDS)) &&
        chosen.payTo === String(best.entry["payTo"]).toLowerCase() &&
        ranked.length === list.filter((one) => one.good).length &&
        offers.every(({ payable, refused, place }) => {
          const isGood = list[place - 1]?.good !== undefined;
          return (payable !== undefined) === isGood && (refused === undefined) === isGood;
        })
      );
    }),
    { numRuns: 1_000 },
  );
  t.ok(none > 5, `${none} times there was nothing to pay`);
});

t.test("order and additional bad offers do not change the payment", async () => {
  const terms = ({ chosen }: Extract<Choice, { ok: true }>) =>
    `${chosen.amountAtomic} ${chosen.network.id} ${"cancelDigest" in chosen.scheme}`;
  fc.assert(
    fc.property(
      fc.array(made, { minLength: 1, maxLength: 7 }),
      fc.array(bad, { maxLength: 3 }),
      fc.array(fc.nat(), { minLength: 10, maxLength: 10 }),
      (list, others, seeds) => {
        const all = [...list, ...others];
        const turnedList = all
          .map((one, index) => ({ one, at: seeds[index] ?? 0 }))
          .sort((one, other) => one.at - other.at)
          .map(({ one }) => one);
        const [alone, turned] = [choose(list), choose(turnedList)];
        if (!alone.ok || !turned.ok) return alone.ok === turned.ok;
        return terms(alone) === terms(turned);
      },
    ),
    { numRuns: 700 },
  );
});

t.test("a condition of the caller is a bound: the next best offer is paid", async () => {
  fc.assert(
    fc.property(
      fc.array(made, { minLength: 1, maxLength: 7 }),
      fc.bigInt({ min: 1n, max: 6n }),
      (list, least) => {
        const accepts = list.map(termsOf);
        const choice = chooseIn(accepts, ({ amountAtomic }) =>
          amountAtomic < least ? "too cheap" : undefined,
        );
        const best = referenceChoice(list.filter((one) => (one.good?.price ?? 0n) >= least));
        return choice.ok ? choice.chosen.terms.raw === best?.entry : best === undefined;
      },
    ),
    { numRuns: 500 },
  );
});

t.test("with any member replaced, a payment is still USDC to a payee, for a time", async (t) => {
  const odd = fc.oneof(
    fc.jsonValue({ maxDepth: 1 }),
    fc.constantFrom<unknown>(
      WALLET,
      WALLET.toLowerCase(),
      ARC.usdc.address,
      BASE.usdc.address,
      "exact",
      "upto",
      ARC.id,
      BASE.id,
      "1",
      "1.0",
      " 1",
      "0x1",
      String(2n ** 256n),
      String(2n ** 256n - 1n),
      1e300,
      Number.MAX_SAFE_INTEGER,
    ),
  );
  const NAMES = [
    "scheme",
    "network",
    "amount",
    "asset",
    "payTo",
    "maxTimeoutSeconds",
    "extra",
  ] as const;
  let paid = 0;
  fc.assert(
    fc.property(good, fc.constantFrom(...NAMES), odd, ({ entry }, name, value) => {
      const text = JSON.stringify({ x402Version: 2, accepts: [{ ...entry, [name]: value }] });
      const parsed = parseOffer(Buffer.from(text).toString("base64"), Buffer.alloc(0));
      if (!parsed.ok) return true;
      const choice = chooseIn(parsed.offer.accepts);
      if (!choice.ok) return choice.reasons.length === 1;
      paid += 1;
      const { chosen } = choice;
      const written = chosen.terms.raw;
      return (
        NETWORKS.includes(chosen.network) &&
        chosen.network.id === written["network"] &&
        chosen.asset === chosen.network.usdc.address.toLowerCase() &&
        chosen.asset === String(written["asset"]).toLowerCase() &&
        /^[1-9][0-9]*$/.test(String(written["amount"])) &&
        chosen.amountAtomic === BigInt(String(written["amount"])) &&
        chosen.amountAtomic < 2n ** 256n &&
        chosen.payTo === String(written["payTo"]).toLowerCase() &&
        /^0x[0-9a-f]{40}$/.test(chosen.payTo) &&
        chosen.payTo !== WALLET.toLowerCase() &&
        chosen.payTo !== chosen.asset &&
        Number.isInteger(chosen.validForSeconds) &&
        chosen.validForSeconds >= 1 &&
        chosen.validForSeconds <= Math.min(MAX_VALID_SECONDS, Number(written["maxTimeoutSeconds"]))
      );
    }),
    { numRuns: 700 },
  );
  t.ok(paid > 5, `${paid} times it could still be paid`);
});
