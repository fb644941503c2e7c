/**
 * JSON whose numbers are not ours to change. JSON.parse keeps a number as a double: 12345678901234567890 comes out as
 * another one, 1e400 as Infinity (and then null), 0.1000 as 0.1. What is only passed on stays text.
 */
import { randomBytes } from "node:crypto";

/** JSON as it was written: a whole document, or one number that a double would change. */
export class ExactJson {
  readonly text: string;

  /** `text` must be JSON: the caller has parsed it. */
  constructor(text: string) {
    this.text = text;
  }

  /** For a serializer that knows nothing of this (an SDK's): its digits as a string, rather than another number. */
  toJSON(): string {
    return this.text;
  }
}

/** Nobody who wrote JSON knows it. Short, as a document may hold a million numbers. */
const newMark = (): string => randomBytes(9).toString("base64url");

const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** As JSON.parse, but a number whose digits a double would not keep is an ExactJson. */
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

/** Valid JSON with those numbers as marked strings; undefined where there are none. */
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
 * The members of one JSON object. An array or object that is longer than `longest` stays text: an answer is read for its
 * own few words, however many elements the data in it has.
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

/** By the place of its quotes: strings may be megabytes long, too much for a pattern. */
function afterString(json: string, start: number): number {
  for (let end = json.indexOf('"', start + 1); ; end = json.indexOf('"', end + 1)) {
    let slashes = 0;
    while (json.charCodeAt(end - 1 - slashes) === BACKSLASH) slashes += 1;
    if (slashes % 2 === 0) return end + 1;
  }
}

/** As JSON.stringify, with every ExactJson as it was written. */
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

/** How many bytes text takes as a string in JSON, without its quotes. */
export function jsonStringBytes(text: string): number {
  let extra = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE || code === BACKSLASH) extra += 1;
    // Five of the controls have an escape of two characters; the others have one of six.
    else if (code < 0x20) extra += code >= 0x08 && code <= 0x0d && code !== 0x0b ? 1 : 5;
  }
  return Buffer.byteLength(text) + extra;
}
