/** The patterns of the API's fields in words, for refusals: a reader of a refusal does not read regular expressions. */

const WHOLE_NUMBER = 'must be a whole number in digits, such as "25"';
const BASE64URL = "may contain only letters, digits, `_` and `-`";
const hex = (count: string) => `must be 0x and ${count} hexadecimal digits`;

const WORDS: ReadonlyMap<string, string> = new Map([
  ["^[^\\u0000]*$", "must not contain a NUL character"],
  ["\\S", "must not be empty"],
  ["^[^\\u0000-\\u001f\\u007f]*\\S.*$", "must be one line of text, and not only spaces"],
  ["^([1-9][0-9]?|100)$", "must be a whole number from 1 to 100"],
  ["^([1-9][0-9]{0,2}|1000)$", "must be a whole number from 1 to 1000"],
  ["^([1-9]|[1-4][0-9]|50)$", "must be a whole number from 1 to 50"],
  ["^([0-9]|[12][0-9]|30)$", "must be a whole number from 0 to 30"],
  ["^(0|[1-9][0-9]{0,8})$", WHOLE_NUMBER],
  ["^(0|[1-9][0-9]{0,14})$", WHOLE_NUMBER],
  ["^(0|[1-9][0-9]{0,77})$", WHOLE_NUMBER],
  ["^(7|30|90)$", "must be 7, 30 or 90"],
  [
    "^([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])$",
    "must be two times of the day such as 09:00-17:00",
  ],
  ["^\\d{4}-\\d{2}-\\d{2}$", "must be a date such as 2026-11-01"],
  ["^0x[0-9a-f]{40}$", hex("40")],
  ["^0x[0-9a-fA-F]{40}$", hex("40")],
  ["^0x[0-9a-f]{64}$", hex("64")],
  ["^0x[0-9a-fA-F]{64}$", hex("64")],
  ["^[0-9a-f]{64}$", "must be 64 hexadecimal digits"],
  [
    "^0x([0-9a-fA-F]{2}){1,24576}$",
    "must be 0x and an even number of hexadecimal digits, at most 24,576 bytes",
  ],
  [
    "^0x([0-9a-fA-F]{2}){1,8192}$",
    "must be 0x and an even number of hexadecimal digits, at most 8,192 bytes",
  ],
  ["^[A-Za-z0-9_-]+$", BASE64URL],
  ["^[A-Za-z0-9_-]{1,1400}$", BASE64URL],
  ["^[A-Za-z0-9_-]{16,64}$", "must be 16 to 64 letters, digits, `_` and `-`"],
  ["^[A-Za-z0-9_-]{22}$", "must be 16 bytes in base64url"],
  ["^[A-Za-z0-9_-]{87}$", "must be 65 bytes in base64url"],
  [
    "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
    "must be 1 to 64 letters, digits, `_`, `.` and `-`, and begin with a letter or a digit",
  ],
  [
    "^[a-z0-9][a-z0-9-]{0,39}$",
    "must be 1 to 40 lower-case letters, digits and `-`, and begin with a letter or a digit",
  ],
  [
    "^(0[xX][0-9a-fA-F]{64}|[A-Za-z][A-Za-z0-9_]{0,63})$",
    "must be a transaction hash, or the id of a settlement",
  ],
]);

/** `^(a|b)(,(a|b))*$`, also with a bound: a list of words. */
const LIST = /^\^\(([a-z0-9_|-]+)\)\(,\(\1\)\)(?:\*|\{[0-9,]+\})\$$/;

export function describePattern(pattern: string): string {
  const words = LIST.exec(pattern)?.[1]?.split("|").join(", ");
  return (
    WORDS.get(pattern) ??
    (words === undefined
      ? "does not have the form that this field needs"
      : `must be one or more of ${words}, separated by commas`)
  );
}
