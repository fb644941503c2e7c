// Values of settings, for tests that walk the tables of packages/rules.
import type { Field } from "../../packages/rules/src/fields.ts";
import type { Choice, PaymentMoment, Value, Wire } from "../../packages/rules/src/kinds.ts";

interface Samples {
  /** A value that is tighter than "not set", and one that is tighter still. Both allow a payment now. */
  values: readonly [Wire, Wire];
  /** For a kind with `refuses`: payments that the first value refuses and allows, as close as possible. */
  refused?: PaymentMoment;
  allowed?: PaymentMoment;
  /** For a kind of text that is typed: some signed texts. */
  texts?: readonly string[];
  /** For a kind without `refuses`: why one payment is not enough, and who decides. */
  decided?: string;
  /** Allows more than any sample; without it, or where null is a value, "not set" does. */
  widest?: Wire;
  /** A value that nobody can set, as SQL. */
  impossible: string;
}

/** A payment from what an earlier deposit left in a channel. */
const CHANNEL = {
  valueAtomic: 1n,
  nowSeconds: 0n,
  depositAtomic: 0n,
  withdrawDelaySeconds: 900n,
} as const;

const BY_OTHERS = "needs the other payments: the guardrails, in test/spending";

/** For each kind. */
const SAMPLES: Record<string, Samples> = {
  amount: {
    values: ["10", "9.5"],
    refused: { valueAtomic: 10_000_001n, nowSeconds: 0n },
    allowed: { valueAtomic: 10_000_000n, nowSeconds: 0n },
    widest: "1000000",
    impossible: "-1",
  },
  held: {
    values: ["10", "9.5"],
    refused: { ...CHANNEL, depositAtomic: 10_000_001n },
    allowed: { ...CHANNEL, depositAtomic: 10_000_000n },
    widest: "1000000",
    impossible: "-1",
  },
  duration: {
    values: [3_600, 900],
    refused: { ...CHANNEL, withdrawDelaySeconds: 3_601n },
    allowed: { ...CHANNEL, withdrawDelaySeconds: 3_600n },
    widest: 2_592_000,
    impossible: "899",
  },
  // On a Thursday (1 January 1970) at midnight.
  hours: {
    values: ["00:01-00:00", "00:02-00:00"],
    refused: { valueAtomic: 1n, nowSeconds: 59n },
    allowed: { valueAtomic: 1n, nowSeconds: 60n },
    impossible: "'00:00-24:00'",
    texts: ["", "08:00-18:00", "22:00-06:00", "00:00-00:01", "none"],
  },
  days: {
    values: ["mon,tue,wed,thu,fri,sat", "mon,tue,wed,thu,fri"],
    refused: { valueAtomic: 1n, nowSeconds: 3n * 86_400n },
    allowed: { valueAtomic: 1n, nowSeconds: 3n * 86_400n - 1n },
    impossible: "'someday'",
    texts: ["", "mon", "mon,tue", "sat,sun", "none"],
  },
  failures: { values: [50, 49], impossible: "0", decided: BY_OTHERS },
  factor: { values: [50, 49], impossible: "1", decided: BY_OTHERS },
  count: { values: [50, 49], impossible: "-1", decided: BY_OTHERS },
  time: {
    values: ["2036-01-01T00:00:00.000Z", "2035-12-31T23:59:59.000Z"],
    refused: { valueAtomic: 1n, nowSeconds: 2_082_758_400n },
    allowed: { valueAtomic: 1n, nowSeconds: 2_082_758_399n },
    impossible: "'infinity'",
  },
};

function samplesOf({ kind }: Field): Samples {
  if (kind.name === "choice") {
    const tightest = Object.keys((kind as Choice<string>).choices).at(-1) ?? "";
    const decided = "needs the payees' sites: coverOf, in test/unit/settings.test.ts";
    return { values: [tightest, tightest], impossible: "'other'", decided };
  }
  const found = SAMPLES[kind.name];
  if (!found) throw new Error(`test/helpers/settings.ts has no values of kind ${kind.name}`);
  return found;
}

export const sampleOf = (field: Field): Wire => samplesOf(field).values[0];
export const tighterOf = (field: Field): Wire => samplesOf(field).values[1];
export const impossibleOf = (field: Field): string => samplesOf(field).impossible;

export const signedTextsOf = (field: Field): readonly string[] =>
  samplesOf(field).texts ?? (field.kind.offers as readonly string[]);
export const decidedElsewhere = (field: Field): string | undefined => samplesOf(field).decided;

/** Payments that the setting refuses and allows when its value is the sample. */
export function paymentsOf(field: Field): { refused: PaymentMoment; allowed: PaymentMoment } {
  const { refused, allowed } = samplesOf(field);
  if (refused && allowed) return { refused, allowed };
  throw new Error(`test/helpers/settings.ts has no payments for kind ${field.kind.name}`);
}

export function valueOf({ kind }: Field, wire: Wire): Value {
  const read = kind.readWire(wire);
  if (!read.ok) throw new Error(read.reason);
  return read.value;
}

/** The value in its column, as SQL. */
export function sqlOf({ kind }: Field, wire: Wire): string {
  const value = valueOf({ kind } as Field, wire);
  if (value === null) return "NULL";
  if (kind.column === "timestamp") return `to_timestamp(${String(value)})`;
  return kind.column === "text" ? `'${String(value)}'` : String(value);
}

/** A value that allows more than any sample. */
export function widestOf(field: Field): Wire {
  const { kind } = field;
  const { widest } = samplesOf(field);
  return kind.unset === null || widest === undefined ? kind.wire(kind.unset) : widest;
}
