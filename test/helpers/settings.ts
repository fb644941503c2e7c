// Values of settings, for tests that walk the tables of packages/rules.
import type { Field } from "../../packages/rules/src/fields.ts";
import type { Choice, Value, Wire } from "../../packages/rules/src/kinds.ts";

/** For each kind a value that is tighter than "not set", and one that is tighter still. */
const SAMPLES: Record<string, readonly [Wire, Wire]> = {
  amount: ["10", "9.5"],
  count: [50, 49],
  time: ["2036-01-01T00:00:00.000Z", "2035-12-31T23:59:59.000Z"],
};

function samplesOf({ kind }: Field): readonly [Wire, Wire] {
  if (kind.name === "choice") {
    const tightest = Object.keys((kind as Choice<string>).choices).at(-1) ?? "";
    return [tightest, tightest];
  }
  const found = SAMPLES[kind.name];
  if (!found) throw new Error(`test/helpers/settings.ts has no values of kind ${kind.name}`);
  return found;
}

export const sampleOf = (field: Field): Wire => samplesOf(field)[0];
export const tighterOf = (field: Field): Wire => samplesOf(field)[1];

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
export const widestOf = ({ kind, required }: Field): Wire =>
  required === true ? "1000000" : kind.wire(kind.unset);
