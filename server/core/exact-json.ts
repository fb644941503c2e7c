/**
 * JSON that keeps numbers exactly. JSON.parse turns numbers into doubles: 12345678901234567890 changes, 1e400 becomes
 * Infinity (and then null), 0.1000 becomes 0.1. Numbers that are only passed on stay text.
 */
import { randomBytes } from "node:crypto";

/** The original JSON text: of a whole document, or of one number that a double would change. */
export class ExactJson {
  readonly text: string;

  /** `text` must be valid JSON: the caller has parsed it. */
  constructor(text: string) {
    this.text = text;
  }

  /**
   * For serializers that do not support this class (such as an SDK's): a string of its digits instead of a changed
   * number.
   */
  toJSON(): string {
    return this.text;
  }
}

/** A random marker that the author of the JSON cannot know. Short, because a document may contain a million numbers. */
const newMark = (): string => randomBytes(9).toString("base64url");

const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;

/** Like JSON.parse, but a number that a double would change becomes an ExactJson. */
export function parseExact(text: string): unknown {
  const plain: unknown = JSON.parse(text);
  const mark = newMark();
  const marked = markNumbers(text, mark);
  if (marked === undefined) return plain;
  return JSON.parse(marked, (_name, value: unknown) =>
    typeof value === "string" && value.startsWith(mark)
      ? new ExactJson(value.slice(mark.length))
      : value,
  );
}

/** The JSON with those numbers replaced by marked strings; undefined if there are none. */
function markNumbers(json: string, mark: string): string | undefined {
  const parts: string[] = [];
  let done = 0;
  for (let at = 0; at < json.length;) {
    const code = json.charCodeAt(at);
    if (code === QUOTE) {
      at = afterString(json, at);
    } else if (code === 0x2d || (code >= 0x30 && code <= 0x39)) {
      NUMBER.lastIndex = at;
      const number = NUMBER.exec(json)?.[0] ?? "";
      if (String(Number(number)) !== number) {
        parts.push(json.slice(done, at), `"${mark}${number}"`);
        done = at + number.length;
      }
      at += number.length;
    } else at += 1;
  }
  return parts.length === 0 ? undefined : parts.join("") + json.slice(done);
}

/**
 * Whether an object in valid JSON has two members of one name. Parsers keep different ones, so what a proxy checked would
 * not be what is paid. `value` is the parsed text, not nested too deep.
 */
export function repeatsName(json: string, value: unknown): boolean {
  let named = 0;
  for (let at = 0; at < json.length;) {
    const code = json.charCodeAt(at);
    if (code === COLON) named += 1;
    at = code === QUOTE ? afterString(json, at) : at + 1;
  }
  return named !== countMembers(value);
}

function countMembers(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  const members: unknown[] = Object.values(value);
  const own = Array.isArray(value) ? 0 : members.length;
  return members.reduce<number>((sum, member) => sum + countMembers(member), own);
}

/**
 * The members of one JSON object. An array or object longer than `longest` stays text: only a few members of a response
 * are read, however large its data is.
 */
export function parseMembers(json: string, longest = 0): Record<string, unknown> {
  const mark = newMark();
  const texts: string[] = [];
  const parts: string[] = [];
  let done = 0;
  let start = 0;
  let depth = 0;
  for (let at = 0; at < json.length;) {
    const code = json.charCodeAt(at);
    if (code === QUOTE) {
      at = afterString(json, at);
      continue;
    }
    if (code === 0x7b || code === 0x5b) {
      depth += 1;
      if (depth === 2) start = at;
    } else if (code === 0x7d || code === 0x5d) {
      depth -= 1;
      if (depth === 1) {
        parts.push(json.slice(done, start), `"${mark}${texts.length}"`);
        done = at + 1;
        texts.push(json.slice(start, done));
      }
    }
    at += 1;
  }
  const members = parseExact(parts.join("") + json.slice(done)) as Record<string, unknown>;
  for (const [name, value] of Object.entries(members)) {
    if (typeof value === "string" && value.startsWith(mark)) {
      const text = texts[Number(value.slice(mark.length))] ?? "null";
      members[name] = text.length > longest ? new ExactJson(text) : parseExact(text);
    }
  }
  return members;
}

/** Searches for the closing quote: a string may be megabytes long, too much for a regular expression. */
function afterString(json: string, start: number): number {
  for (let end = json.indexOf('"', start + 1); ; end = json.indexOf('"', end + 1)) {
    let slashes = 0;
    while (json.charCodeAt(end - 1 - slashes) === BACKSLASH) slashes += 1;
    if (slashes % 2 === 0) return end + 1;
  }
}

/** Like JSON.stringify, with every ExactJson in its original text. */
export function stringifyExact(value: unknown): string {
  const mark = newMark();
  const texts: string[] = [];
  const json = JSON.stringify(value, function withMarks(this: unknown, name, member: unknown) {
    const own = (this as Record<string, unknown>)[name];
    if (!(own instanceof ExactJson)) return typeof member === "bigint" ? String(member) : member;
    texts.push(own.text);
    return `${mark}${texts.length - 1}`;
  });
  if (json === undefined) return "null";
  if (texts.length === 0) return json;
  return json.replaceAll(new RegExp(`"${mark}(\\d+)"`, "g"), (_all, at) => texts[Number(at)] ?? "");
}

/** The size in bytes of a text as a JSON string, without its quotes. */
export function jsonStringBytes(text: string): number {
  let extra = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE || code === BACKSLASH) extra += 1;
    // Five control characters have a two-character escape; the others have one of six.
    else if (code < 0x20) extra += code >= 0x08 && code <= 0x0d && code !== 0x0b ? 1 : 5;
  }
  return Buffer.byteLength(text) + extra;
}
