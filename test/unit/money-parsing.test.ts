// Goal: money is parsed exactly or refused, and written so that it reads back; never a float, never two meanings.
import * as fc from "fast-check";
import t from "tap";
import { formatAtomic, parseAtomic, parseDecimal, parsePayable } from "../../server/core/money.ts";

const RUNS = { numRuns: 10_000 };
const MAX = 10n ** 46n - 1n;

t.test("a written amount reads back", async (t) => {
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: MAX }), (atomic) => {
      const parsed = parseDecimal(formatAtomic(atomic));
      return parsed.ok && parsed.atomic === atomic;
    }),
    RUNS,
  );
  t.pass("10,000 amounts");
});

t.test("an amount is the number that its digits mean", async (t) => {
  const digits = fc.bigInt({ min: 0n, max: 10n ** 40n - 1n }).map(String);
  const fraction = fc.stringMatching(/^[0-9]{0,6}$/);
  fc.assert(
    fc.property(digits, fraction, (whole, part) => {
      const parsed = parseDecimal(part === "" ? whole : `${whole}.${part}`);
      return parsed.ok && parsed.atomic === BigInt(whole + part.padEnd(6, "0"));
    }),
    RUNS,
  );
  t.pass("10,000 texts");
});

t.test("a text that is not a plain decimal is refused", async (t) => {
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 12 }), (text) => {
      const isPlain = /^(0|[1-9][0-9]{0,39})(\.[0-9]{1,6})?$/.test(text);
      return parseDecimal(text).ok === isPlain;
    }),
    RUNS,
  );
  const refused = [
    "1e3",
    "+1",
    " 1",
    "1 ",
    "1.",
    ".5",
    "-1",
    "0.0000001",
    "Infinity",
    "NaN",
    "0x10",
    "1,5",
    "1_000",
    "01",
    "00",
    "1.2.3",
    "",
    "١",
    "１",
    "1\u200b",
    "1\n",
    `1${"0".repeat(40)}`,
  ];
  for (const text of refused) t.notOk(parseDecimal(text).ok, JSON.stringify(text));
  for (const value of [1, 0.1, 10n, null, undefined, true, {}, ["1"]])
    t.notOk(parseDecimal(value).ok, typeof value);
});

t.test("a refusal names what is wrong with the digits", async (t) => {
  for (const text of ["0.0000001", "1.2345678", `0.${"0".repeat(40)}`])
    t.match(parseDecimal(text), { reason: /too many decimals: USDC has 6 decimals/ }, text);
  for (const text of ["1,2345678", "-1.2345678", "1.2345678e3"])
    t.match(parseDecimal(text), { reason: /plain decimal/ }, text);
});

t.test("zero may be a limit, but not a payment", async (t) => {
  for (const text of ["0", "0.0", "0.000000"]) {
    t.ok(parseDecimal(text).ok, text);
    t.notOk(parsePayable(text).ok, text);
  }
  t.ok(parsePayable("0.000001").ok);
});

t.test("atomic amounts of the protocol: a uint256 in decimal digits", async (t) => {
  fc.assert(
    fc.property(
      fc.bigInt({ min: 0n, max: 2n ** 256n - 1n }),
      (value) => parseAtomic(String(value)) === value,
    ),
    RUNS,
  );
  for (const text of [String(2n ** 256n), "-1", "1.0", "01", "", "1e3", "0x1", 1])
    t.equal(parseAtomic(text), undefined, String(text));
});
