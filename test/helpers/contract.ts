// Checks a response against the published contract. The contract is written by hand and independent of the server's schemas.
import type { Test } from "tap";

type Kind = "string" | "number" | "boolean" | "object" | "array";
/** A type, a string pattern, an exact value, the fields of an object, the items of a list, or any of these or null. */
type Expected =
  | { is: Kind }
  | { pattern: RegExp }
  | { exactly: string | number | boolean | null }
  | { fields: Fields }
  | { listOf: Expected }
  | { orNull: Expected };
export type Fields = Record<string, Expected>;

export const text: Expected = { is: "string" };
export const flag: Expected = { is: "boolean" };
export const count: Expected = { is: "number" };
export const money: Expected = { pattern: /^(0|[1-9][0-9]*)(\.[0-9]{0,5}[1-9])?$/ };
export const atomic: Expected = { pattern: /^(0|[1-9][0-9]*)$/ };
export const address: Expected = { pattern: /^0x[0-9a-fA-F]{40}$/ };
export const hash: Expected = { pattern: /^0x[0-9a-f]{64}$/ };
export const network: Expected = { pattern: /^eip155:[1-9][0-9]*$/ };
export const time: Expected = { pattern: /^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/ };
export const exactly = (value: string | number | boolean | null): Expected => ({ exactly: value });
export const fields = (members: Fields): Expected => ({ fields: members });
export const listOf = (item: Expected): Expected => ({ listOf: item });
export const orNull = (expected: Expected): Expected => ({ orNull: expected });
export const pageOf = (item: Fields): Expected =>
  fields({ items: listOf(fields(item)), nextCursor: orNull(text) });

/** Responses may contain more than the contract names, never less, and never another type. */
export function holds(t: Test, value: unknown, expected: Expected, where: string): void {
  const wrong = differences(value, expected, "");
  t.same(wrong, [], where);
}

function differences(value: unknown, expected: Expected, path: string): string[] {
  const mismatch = (wanted: string): string[] => [
    `${path === "" ? "the answer" : path}: ${wanted} wanted, not ${JSON.stringify(value)}`,
  ];
  if ("orNull" in expected) return value === null ? [] : differences(value, expected.orNull, path);
  if ("exactly" in expected)
    return value === expected.exactly ? [] : mismatch(JSON.stringify(expected.exactly));
  if ("pattern" in expected)
    return typeof value === "string" && expected.pattern.test(value)
      ? []
      : mismatch(String(expected.pattern));
  if ("is" in expected) {
    const kind = Array.isArray(value) ? "array" : value === null ? "null" : typeof value;
    return kind === expected.is ? [] : mismatch(expected.is);
  }
  if ("listOf" in expected) {
    if (!Array.isArray(value)) return mismatch("a list");
    return value.flatMap((item: unknown, index) =>
      differences(item, expected.listOf, `${path}[${index}]`),
    );
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return mismatch("an object");
  return Object.entries(expected.fields).flatMap(([name, member]) =>
    differences(
      (value as Record<string, unknown>)[name],
      member,
      path === "" ? name : `${path}.${name}`,
    ),
  );
}
