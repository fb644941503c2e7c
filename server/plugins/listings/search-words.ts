/** A search as the database takes it (purser_search): its words, and what else they may mean. */
import { RELATED_WORDS } from "./related-words.ts";

/** Nearly every listing has these, so they count only in a search for nothing else. */
const EVERYWHERE = new Set(["api", "apis", "http", "https", "www", "com", "x402"]);
const MOST_WORDS = 10;
const MOST_PHRASES = 4;
const LONGEST_WORD = 40;
const PHRASE_LENGTHS = [2, 3, 4];
export interface SearchWords {
  /** Words and phrases as Postgres tsqueries. */
  words: string[];
  /** The same for what each may also mean, or "". */
  related: string[];
}

/** The same words as purser_search_words finds in a listing. */
export const wordsOfText = (text: string): string[] =>
  text
    .normalize("NFKD")
    .replaceAll(/[\u0300-\u036f]/g, "")
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word !== "")
    .map((word) => word.slice(0, LONGEST_WORD));

/** Without the endings of a plural or a verb: enough to find a word among the related ones. */
const stem = (word: string): string =>
  word.length > 4 ? word.replace(/(?:ies|ing|ers?|ed|es|s|e|y)$/, "") : word.replace(/s$/, "");

const keyOf = (phrase: string): string => phrase.split(" ").map(stem).join(" ");

/** What else a word or phrase may mean, by its stem. */
const related = new Map<string, Set<string>>();
for (const line of RELATED_WORDS)
  for (const phrase of line) {
    const others = related.get(keyOf(phrase)) ?? new Set();
    for (const other of line) if (other !== phrase) others.add(other);
    related.set(keyOf(phrase), others);
  }

const asQuery = (phrases: Iterable<string>): string =>
  Array.from(phrases, (phrase) => phrase.replaceAll(" ", " <-> ")).join(" | ");

/**
 * Undefined if the text has no word. A phrase among the related words ("hay fever") is one more word, with spaces.
 */
export function searchWords(text: string | undefined): SearchWords | undefined {
  const all = wordsOfText(text ?? "");
  const telling = all.filter((word) => !EVERYWHERE.has(word));
  const words = (telling.length === 0 ? all : telling).slice(0, MOST_WORDS);
  if (words.length === 0) return undefined;
  const phrases = words.flatMap((_, at) =>
    PHRASE_LENGTHS.map((length) => words.slice(at, at + length))
      .filter((part, index) => part.length === PHRASE_LENGTHS[index])
      .map((part) => part.join(" "))
      .filter((phrase) => related.has(keyOf(phrase))),
  );
  const terms = [...words, ...phrases.slice(0, MOST_PHRASES)];
  return {
    words: terms.map((term) => term.replaceAll(" ", " <-> ")),
    related: terms.map((term) => asQuery(related.get(keyOf(term)) ?? [])),
  };
}
