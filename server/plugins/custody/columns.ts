/**
 * The settings of rules in the columns that decisions use, as text: before each signature custody compares this text
 * with that of the sealed rules. The SQL and the text follow from the tables of packages/rules.
 */
import {
  AGENT_FIELDS,
  PAYEE_FIELDS,
  valueIn,
  type Field,
} from "../../../packages/rules/src/fields.ts";
import type { Value } from "../../../packages/rules/src/kinds.ts";
import type { Payee, RulesInForce } from "../../core/rules.ts";

const SEPARATOR = "|";
const sqlOf =
  (row: string) =>
  ({ kind, column }: Field): string =>
    kind.column === "timestamp" ? `extract(epoch FROM ${row}.${column})` : `${row}.${column}`;
const concatenated = (parts: readonly string[]): string =>
  `concat(${parts.join(`, '${SEPARATOR}', `)})`;

/** Of a row of `agents`: the text of `columnsText`. What a stop or a rule paused is sealed as active. */
export const agentSql = (row: string): string =>
  concatenated([
    `${row}.network`,
    `CASE WHEN ${row}.paused_by IS NULL THEN ${row}.status ELSE 'active' END`,
    ...AGENT_FIELDS.map(sqlOf(row)),
  ]);

/** Of a row of `allowlist_entries`: the text of `payeeText`. */
export const payeeSql = (row: string): string =>
  concatenated([`${row}.site`, ...PAYEE_FIELDS.map(sqlOf(row))]);

/** The same as a JSON array, which `readPayee` reads. A label may contain the separator. */
export const payeeJsonSql = (row: string): string =>
  `jsonb_build_array(${row}.address, ${row}.label, ${row}.site${PAYEE_FIELDS.map(
    (field) => `, ${sqlOf(row)(field)}::text`,
  ).join("")})`;

function textOf(field: Field, settings: object): string {
  const value = valueIn(settings, field);
  if (value === null) return "";
  // Postgres' text of a time in seconds.
  return field.kind.column === "timestamp" ? `${String(value)}.000000` : String(value);
}

/** A value that nobody can sign, such as an infinite time, is read as one that is in no signed rule. */
function readColumn({ kind }: Field, text: string): Value {
  // No text setting can be unset yet; a newer release may have one.
  if (kind.column === "text") return text === "" && kind.unset === null ? null : text;
  if (text === "") return kind.unset;
  const digits = kind.column === "timestamp" ? text.replace(/\.0+$/, "") : text;
  return /^-?[0-9]+$/.test(digits) ? BigInt(digits) : -1n;
}

const readColumns = (fields: readonly Field[], texts: readonly (string | null)[]) =>
  Object.fromEntries(
    fields.map((field, index) => [field.member, readColumn(field, texts[index] ?? "")]),
  );

export const columnsText = (network: string, rules: RulesInForce): string =>
  [network, rules.status, ...AGENT_FIELDS.map((field) => textOf(field, rules))].join(SEPARATOR);

export const payeeText = (payee: Payee): string =>
  [payee.site, ...PAYEE_FIELDS.map((field) => textOf(field, payee))].join(SEPARATOR);

/** Reads the text of `agentSql` and the arrays of `payeeJsonSql`. */
export function readRules(
  columns: string,
  payees: readonly (readonly (string | null)[])[],
): RulesInForce {
  const [, status, ...texts] = columns.split(SEPARATOR);
  return {
    ...readColumns(AGENT_FIELDS, texts),
    status,
    payees: payees.map(([address, label, site, ...payeeTexts]) => ({
      ...readColumns(PAYEE_FIELDS, payeeTexts),
      address,
      label: label ?? "",
      site: site ?? "",
    })),
  } as unknown as RulesInForce;
}
