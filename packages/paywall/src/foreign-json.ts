/**
 * Parses untrusted JSON and limits its nesting depth. JSON.parse accepts any depth, but hashing, storing or
 * serializing a few thousand nested arrays overflows the stack. Text is checked before it is parsed, because
 * parsing megabytes of brackets takes seconds.
 */

/** Deeper than any payment, JSON schema or order, and far from what overflows a stack. */
export const MAX_JSON_DEPTH = 64;

type ForeignJson = { ok: true; value: unknown } | { ok: false; why: string };

/** `parse` is JSON.parse, or a codec that ends in it. */
export function readForeignJson(parse: () => unknown): ForeignJson {
  let value: unknown;
  try {
    value = parse();
  } catch {
    return { ok: false, why: "is not JSON" };
  }
  return isTooDeep(value)
    ? { ok: false, why: `is nested deeper than ${MAX_JSON_DEPTH} levels` }
    : { ok: true, value };
}

/** The same for text. */
export const parseForeignJson = (text: string): ForeignJson =>
  isTextTooDeep(text)
    ? { ok: false, why: `is nested deeper than ${MAX_JSON_DEPTH} levels` }
    : readForeignJson(() => JSON.parse(text) as unknown);

function isTextTooDeep(text: string): boolean {
  let depth = 0;
  let isInString = false;
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (char === '"') isInString = !isInString;
    else if (isInString) at += char === "\\" ? 1 : 0;
    else if (char === "[" || char === "{") depth += 1;
    else if (char === "]" || char === "}") depth -= 1;
    if (depth > MAX_JSON_DEPTH) return true;
  }
  return false;
}

/** Whether arrays and objects are nested more than `levels` deep. */
export function isTooDeep(value: unknown, levels = MAX_JSON_DEPTH): boolean {
  if (typeof value !== "object" || value === null) return false;
  const members: readonly unknown[] = Array.isArray(value) ? value : Object.values(value);
  return levels === 0 || members.some((member) => isTooDeep(member, levels - 1));
}

/** A JSON object, in contrast to an array, null or a scalar. */
export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const ESCAPES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};
/** For text and for quoted attributes. */
export const escapeHtml = (text: string): string =>
  text.replaceAll(/[&<>"']/g, (character) => ESCAPES[character] ?? "");
