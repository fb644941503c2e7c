/**
 * Reads `/.well-known/x402`: `{"version": 1, "resources": [...]}`. x402scan reads this shape and most hosts that have the
 * document publish it, with whole URLs. Entries with a method before the URL, and objects with `url`, are in use too.
 */
import { isRecord, parseForeignJson, plainWords } from "../../core/foreign-text.ts";
import { brokenLine } from "./json-line.ts";

export const WELL_KNOWN = "/.well-known/x402";
export const WELL_KNOWN_LIMITS = { timeoutMs: 5_000, maxBytes: 64 * 1024 };
export const MOST_RESOURCES = 50;
const MAX_URL_LENGTH = 2_048;

interface Problem {
  kind: "broken" | "other-host";
  /** The line, or the member, of the document. */
  where: string;
  because: string;
  /** The host's own text, plain and short. */
  found?: string;
}

export interface WellKnownDocument {
  /** Of the same origin, in order, at most MOST_RESOURCES. */
  resources: { url: URL; method: string }[];
  problems: Problem[];
  /** How many entries were not read. */
  more: number;
}

export function readWellKnown(text: string, documentUrl: URL): WellKnownDocument {
  const broken = (where: string, because: string): WellKnownDocument => ({
    resources: [],
    problems: [{ kind: "broken", where, because }],
    more: 0,
  });
  const parsed = parseForeignJson(text);
  if (!parsed.ok) return broken(`line ${brokenLine(text)}`, `It ${parsed.why}.`);
  const { value } = parsed;
  if (!isRecord(value)) return broken("line 1", "It is no JSON object.");
  const { version, resources } = value;
  if (!Array.isArray(resources)) return broken("resources", "It has no list `resources` of URLs.");
  const problems: Problem[] = [];
  if (version !== 1)
    problems.push({ kind: "broken", where: "version", because: "`version` must be 1." });
  const found = new Map<string, { url: URL; method: string }>();
  for (const [at, entry] of resources.slice(0, MOST_RESOURCES).entries()) {
    const read = readEntry(entry, documentUrl);
    if ("url" in read) found.set(`${read.method} ${read.url.href}`, read);
    else {
      const shown = plainWords(typeof entry === "string" ? entry : "", 120);
      problems.push({ ...read, where: `resources[${at}]`, ...(shown !== "" && { found: shown }) });
    }
  }
  const more = Math.max(0, resources.length - MOST_RESOURCES);
  return { resources: [...found.values()], problems, more };
}

function readEntry(
  entry: unknown,
  documentUrl: URL,
): { url: URL; method: string } | Pick<Problem, "kind" | "because"> {
  const text = isRecord(entry) ? entry["url"] : entry;
  const named = isRecord(entry) ? entry["method"] : undefined;
  if (typeof text !== "string" || text.length > MAX_URL_LENGTH)
    return { kind: "broken", because: "It is no URL." };
  const [, before, target = ""] = /^(?:([A-Z]{3,7})\s+)?(\S+)$/.exec(text.trim()) ?? [];
  const isWhole = /^https?:\/\//i.test(target);
  if ((!isWhole && !target.startsWith("/")) || !URL.canParse(target, documentUrl.href))
    return { kind: "broken", because: "It is no URL." };
  const url = new URL(target, documentUrl);
  if (url.username !== "" || url.password !== "")
    return { kind: "broken", because: "Its URL contains a user or a password." };
  url.hash = "";
  if (url.origin !== documentUrl.origin)
    return { kind: "other-host", because: "Only the other host can name its own URLs." };
  return { url, method: before ?? (typeof named === "string" ? named.toUpperCase() : "GET") };
}
