/**
 * How an environment key is declared in core/configuration.ts: a TypeBox schema of its text, with the transform to its
 * value and what its documentation says.
 */
import { Type, type TCodec, type TOptional, type TString } from "typebox";
import { parseDecimal } from "./money.ts";

interface About {
  meaning: string;
  /** Who would change it, and when. A key that nobody would change is a constant. */
  who: string;
  default?: string;
  /** Shown as the default if there is no fixed one. */
  usually?: string;
  /** Also read from the file that `<key>_FILE` names. Its value is in no message. */
  secret?: true;
}

/** Throws InvalidSetting. `form` is the end of "must be ...", if one sentence says it all. */
type Transform<T> = ((text: string) => T) & { form?: string };

export type Documented = About & { form?: string };
export type Setting<T> = TCodec<TString, T> & Documented;

export function setting<T>(read: Transform<T>, about: About & { default: string }): Setting<T>;
export function setting<T>(read: Transform<T>, about: About): TOptional<Setting<T>>;
export function setting<T>(read: Transform<T>, about: About): Setting<T> {
  const schema = Type.Decode(Type.String({ ...about, form: read.form }), read) as Setting<T>;
  return about.default === undefined ? (Type.Optional(schema) as Setting<T>) : schema;
}

export class InvalidSetting extends Error {
  /** Each follows the key in a sentence. None contains a secret. */
  readonly reasons: readonly string[];
  /** The valid part, with which other keys can still be checked. */
  readonly value: unknown;
  constructor(reasons: readonly string[], value?: unknown) {
    super(reasons.join("; "));
    this.name = "InvalidSetting";
    this.reasons = reasons;
    this.value = value;
  }
}

/** Returns the value, or throws the reasons why it is invalid. */
export function valid<T>(value: T, reasons: readonly string[]): T {
  if (reasons.length > 0) throw new InvalidSetting(reasons, value);
  return value;
}

/** A transform that returns undefined for a text that does not have this form. */
export const formed = <T>(form: string, read: (text: string) => T | undefined): Transform<T> => {
  const transform = (text: string): T => {
    const value = read(text);
    if (value === undefined) throw new InvalidSetting([`must be ${form}`]);
    return value;
  };
  return Object.assign(transform, { form });
};

/** Splits a comma-separated list. */
export const listed = (text: string): string[] =>
  text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "");

export const hasTwice = (entries: readonly string[]): boolean =>
  new Set(entries).size !== entries.length;

export const asWritten = (text: string): string => text;

export const matching = <T extends string = string>(pattern: RegExp, form: string) =>
  formed(form, (text) => (pattern.test(text) ? (text as T) : undefined));

export const oneOf = <const T extends string>(...values: T[]) =>
  formed(values.length === 2 ? values.join(" or ") : `one of ${values.join(", ")}`, (text) =>
    values.find((value) => value === text),
  );

export const trueOrFalse = formed("true or false", (text) =>
  text === "true" || text === "false" ? text === "true" : undefined,
);

export const wholeNumber = (least: number, most: number) =>
  formed(`a whole number from ${least} to ${most}`, (text) => {
    const value = /^[0-9]{1,9}$/.test(text) ? Number(text) : Number.NaN;
    return value >= least && value <= most ? value : undefined;
  });

/** In atomic units. */
export const usdc = formed("an amount of USDC with at most 6 decimals, such as 0.0001", (text) => {
  const parsed = parseDecimal(text);
  return parsed.ok && parsed.atomic < 10n ** 12n ? parsed.atomic : undefined;
});

export function originOf(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isHttp = url?.protocol === "http:" || url?.protocol === "https:";
  return isHttp && url.pathname + url.search + url.username === "/" ? url.origin : undefined;
}

/** Reads `name=value,...`, an operator's changes to a table. */
export function readChanges<Name extends string, T>(
  text: string,
  table: Readonly<Record<Name, T>>,
  { what, read }: { what: string; read: (text: string, usual: T) => T | undefined },
): Record<Name, T> {
  const values: Record<Name, T> = { ...table };
  const reasons: string[] = [];
  for (const entry of listed(text)) {
    const [, name = "", given = ""] = /^([^=]*)=([^=]*)$/.exec(entry) ?? [];
    const isKnown = Object.hasOwn(table, name);
    const value = isKnown ? read(given, table[name as Name]) : undefined;
    if (value === undefined)
      reasons.push(`has "${entry}"; it lists name=${what} of ${Object.keys(table).join(", ")}`);
    else values[name as Name] = value;
  }
  return valid(values, reasons);
}
