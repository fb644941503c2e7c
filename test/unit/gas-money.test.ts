// Goal: a gas amount is never shown too low, never above the operator's caps, and no amount gains or loses a digit anywhere.
import * as fc from "fast-check";
import t from "tap";
import {
  accountsOf,
  costOf,
  formatGas,
  GAS_BUDGET,
  gasHoldOf,
  readGasBudget,
  unitsOf,
  type GasBudgetName,
} from "../../server/core/gas.ts";
import { outcomeOf } from "../helpers/outcome-of.ts";
import { formatAtomic, parseAtomic, parseDecimal, parsePayable } from "../../server/core/money.ts";
import { gasCostOf } from "../../server/plugins/settlement/receipts.ts";
import { canonical, formatUsdc, parseUsdc, toDecimal } from "../../web/src/lib/money.ts";

const upTo = (max: bigint) => fc.bigInt({ min: 0n, max });
const amount = fc.oneof(upTo(3_000_000n), upTo(10n ** 30n));

t.test("an amount has one spelling, and amounts read back as the same number", async () => {
  fc.assert(
    fc.property(amount, (atomic) => {
      const text = formatAtomic(atomic);
      const parsed = parseDecimal(text);
      return (
        /^(0|[1-9][0-9]*)(\.[0-9]{0,5}[1-9])?$/.test(text) &&
        parsed.ok &&
        parsed.atomic === atomic &&
        parsePayable(text).ok === atomic > 0n &&
        formatAtomic(-atomic) === (atomic === 0n ? "0" : `-${text}`) &&
        parseAtomic(String(atomic)) === atomic
      );
    }),
    { numRuns: 3_000 },
  );
});

t.test("digits after the point are exact millionths, without float errors", async () => {
  fc.assert(
    fc.property(
      upTo(10n ** 20n),
      fc.nat({ max: 999_999 }),
      fc.nat({ max: 6 }),
      (whole, part, places) => {
        const digits = String(part).padStart(6, "0").slice(0, places);
        const parsed = parseDecimal(places === 0 ? String(whole) : `${whole}.${digits}`);
        let expected = whole * 1_000_000n;
        let unit = 100_000n;
        for (const digit of digits) {
          expected += BigInt(digit) * unit;
          unit /= 10n;
        }
        return parsed.ok && parsed.atomic === expected;
      },
    ),
    { numRuns: 2_000 },
  );
});

t.test("any text but a plain number of atomic units is refused", async () => {
  const near = fc
    .array(fc.constantFrom("0", "1", "9", ".", "-", "+", "e", "x", " ", "\n", "_", "１", "n"), {
      maxLength: 5,
    })
    .map((parts) => parts.join(""));
  fc.assert(
    fc.property(fc.oneof(near, fc.anything({ maxDepth: 1 })), (value) => {
      const isPlain = typeof value === "string" && /^(0|[1-9][0-9]*)$/.test(value);
      const isDecimal = typeof value === "string" && /^(0|[1-9][0-9]*)(\.[0-9]{1,6})?$/.test(value);
      return (
        (parseAtomic(value) !== undefined) === (isPlain && !value.includes("\n")) &&
        parseDecimal(value).ok === (isDecimal && !value.includes("\n"))
      );
    }),
    { numRuns: 3_000 },
  );
});

t.test("the web app and the server write and read the same amounts", async () => {
  fc.assert(
    fc.property(amount, (atomic) => {
      const text = formatAtomic(atomic);
      const [whole = "", part = ""] = formatUsdc(atomic).split(".");
      return (
        toDecimal(atomic) === text &&
        parseUsdc(text) === atomic &&
        canonical(` ${text} `) === text &&
        part.length >= 2 &&
        parseUsdc(`${whole.replaceAll(",", "")}.${part}`) === atomic &&
        /^[0-9]{1,3}(,[0-9]{3})*$/.test(whole)
      );
    }),
    { numRuns: 1_500 },
  );
});

const wei = upTo(10n ** 14n);
const price = fc.bigInt({ min: 1n, max: 10n ** 11n });

t.test("a cost is rounded up by less than a unit, and parts cover the whole", async () => {
  fc.assert(
    fc.property(upTo(10n ** 24n), upTo(10n ** 24n), price, (one, other, price) => {
      const cost = costOf(one, price);
      const exact = one * price;
      const isRound = cost * 1_000_000n >= exact && cost * 1_000_000n - exact < 1_000_000n;
      return isRound && costOf(one, price) + costOf(other, price) >= costOf(one + other, price);
    }),
    { numRuns: 2_000 },
  );
});

t.test("used gas is never shown as less, nor as nothing", async () => {
  fc.assert(
    fc.property(fc.oneof(upTo(10n ** 13n), upTo(10n ** 30n)), (units) => {
      const shown = parseDecimal(formatGas(units));
      if (!shown.ok) return false;
      const back = unitsOf(shown.atomic);
      return back >= units && back - units < unitsOf(1n) && formatGas(-units - 1n) === "0";
    }),
    { numRuns: 2_000 },
  );
});

t.test("a gas reservation covers the current price and ends at the caps", async () => {
  const facts = fc.record({
    baseFeeWei: wei,
    priorityFeeWei: wei,
    maxFeeWei: wei,
    maxTipWei: wei,
    nativePriceAtomic: price,
    gas: fc.bigInt({ min: 21_000n, max: 30_000_000n }),
  });
  fc.assert(
    fc.property(facts, wei, ({ maxFeeWei, maxTipWei, ...rest }, more) => {
      const caps = { maxFeeWei, priorityFeeWei: maxTipWei };
      const hold = gasHoldOf({ ...rest, caps });
      const { gas, baseFeeWei, priorityFeeWei, nativePriceAtomic } = rest;
      const most = costOf(gas * maxFeeWei, nativePriceAtomic);
      const tip = priorityFeeWei < maxTipWei ? priorityFeeWei : maxTipWei;
      const now = costOf(gas * (baseFeeWei + tip), nativePriceAtomic);
      return (
        hold <= most &&
        (hold === most || hold >= now) &&
        gasHoldOf({ ...rest, caps, baseFeeWei: baseFeeWei + more }) >= hold &&
        gasHoldOf({ ...rest, caps, gas: gas + more }) >= hold
      );
    }),
    { numRuns: 1_500 },
  );
});

t.test("a receipt's cost is its gas at its price, or at the offered fee", async () => {
  const hex = (value: bigint) => `0x${value.toString(16)}` as const;
  fc.assert(
    fc.property(
      wei,
      wei,
      wei,
      fc.option(wei),
      fc.option(wei),
      (gasUsed, offered, other, paid, l1) => {
        const receipt = {
          transactionHash: "0x0a",
          gasUsed: hex(gasUsed),
          ...(paid !== null && paid > 0n && { effectiveGasPrice: hex(paid) }),
          ...(l1 !== null && { l1Fee: hex(l1) }),
        } as unknown as Parameters<typeof gasCostOf>[2];
        const attempts = [
          { hash: "0x0b", maxFeeWei: other },
          { hash: "0x0a", maxFeeWei: offered },
        ] as unknown as Parameters<typeof gasCostOf>[1]["attempts"];
        const network = { nativePriceAtomic: 1_000_000n } as Parameters<
          typeof gasCostOf
        >[0]["network"];
        const each = paid !== null && paid > 0n ? paid : offered;
        return gasCostOf({ network }, { attempts }, receipt) === gasUsed * each + (l1 ?? 0n);
      },
    ),
    { numRuns: 1_000 },
  );
});

t.test("a gas budget changes the named shares, or is a problem as a whole", async () => {
  const names = Object.keys(GAS_BUDGET) as GasBudgetName[];
  const name = fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom(...names) },
    fc.constantFrom("payers", "", "toString", "__proto__", "payer "),
  );
  const usdc = fc.oneof(
    { weight: 3, arbitrary: upTo(10n ** 12n).map(formatAtomic) },
    fc.constantFrom("", "-1", "1e3", "1.0000001", "1=2", "=1", "01", "9".repeat(17), "1 USDC"),
  );
  fc.assert(
    fc.property(fc.array(fc.tuple(name, usdc), { maxLength: 4 }), (entries) => {
      const text = entries.map(([name, usdc]) => `${name}=${usdc}`).join(", ");
      const { value: budget, reasons } = outcomeOf(() => readGasBudget(text));
      const expected = new Map<string, bigint>();
      let wrong = 0;
      for (const [name, usdc] of entries) {
        const [whole = "", part = ""] = usdc.split(".");
        const isRight =
          names.includes(name as GasBudgetName) &&
          /^(0|[1-9][0-9]*)(\.[0-9]{1,6})?$/.test(usdc) &&
          usdc.length <= 16;
        if (isRight) expected.set(name, BigInt(whole + part.padEnd(6, "0")) * 10n ** 12n);
        else wrong += 1;
      }
      return (
        reasons.length === wrong &&
        names.every(
          (name) => budget[name] === (expected.get(name) ?? BigInt(GAS_BUDGET[name]) * 10n ** 18n),
        )
      );
    }),
    { numRuns: 1_000 },
  );
});

t.test("each payment is charged to one share, and only to its own accounts", async () => {
  const address = fc.stringMatching(/^0x[0-9a-fA-F]{40}$/);
  fc.assert(
    fc.property(
      address,
      address,
      fc.option(fc.stringMatching(/^mk_[a-z0-9]{4}$/), { nil: undefined }),
      (from, to, merchant) => {
        const accounts = accountsOf({ from, to, merchant });
        const lower = accountsOf({ from: from.toLowerCase(), to: to.toLowerCase(), merchant });
        const shares = accounts.filter((name) => !name.includes(":"));
        const others = accounts.filter((name) => name.includes(":"));
        const expected = merchant
          ? [`merchant:${merchant}`]
          : [`payee:${to.toLowerCase()}`, `payer:${from.toLowerCase()}`];
        return (
          accounts.join() === lower.join() &&
          shares.join() === (merchant ? "merchants" : "strangers") &&
          others.join() === expected.join()
        );
      },
    ),
    { numRuns: 300 },
  );
});
