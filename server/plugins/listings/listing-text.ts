/**
 * Cleans the texts of a listing, whether its owner wrote them or our probe read them from the seller. Every write to
 * the table passes through here.
 */
import { isRecord, plainJson, plainWords } from "../../core/foreign-text.ts";

export interface ListingText {
  name: string;
  description: string;
  category: string;
  mimeType: string | null;
  sample: string | null;
  tags?: string[];
  /** The bazaar extension of the live 402. */
  extensions: object | null;
  /** The accepted payment requirement of the live 402. */
  requirement: object;
}

export const LONGEST = {
  name: 80,
  description: 500,
  category: 40,
  mimeType: 100,
  sample: 1_000,
  tag: 40,
  term: 100,
};
const MOST_TAGS = 5;
const MAX_EXTENSIONS_BYTES = 16 * 1024;
const MAX_REQUIREMENT_BYTES = 8 * 1024;

const orNull = (text: string): string | null => (text === "" ? null : text);

const TERMS = ["scheme", "network", "amount", "asset", "payTo", "maxTimeoutSeconds"];
const TERMS_OF_SCHEMES = ["name", "version", "assetTransferMethod"];
const TERMS_OF_CHANNELS = ["receiverAuthorizer", "withdrawDelay", "minDeposit"];

/** Of a requirement that is too large to store: what a payment is made from. */
function shortRequirement(requirement: object): object {
  const { extra, ...terms } = requirement as { extra?: unknown };
  return {
    ...shortMembers(terms, TERMS),
    ...(isRecord(extra) && {
      extra: shortMembers(extra, [...TERMS_OF_SCHEMES, ...TERMS_OF_CHANNELS]),
    }),
  };
}

function shortMembers(all: Record<string, unknown>, names: string[]): object {
  const short: Record<string, string | number> = {};
  for (const name of names) {
    const value = all[name];
    if (typeof value === "number") short[name] = value;
    else if (typeof value === "string") short[name] = plainWords(value, LONGEST.term);
  }
  return short;
}

/** The given texts in the form to store; other members stay unchanged. */
export function plainListing<T extends Partial<ListingText>>(facts: T): T {
  const { name, description, category, mimeType, sample, tags, extensions, requirement } = facts;
  const plain: Partial<ListingText> = {};
  if (name !== undefined) plain.name = plainWords(name, LONGEST.name);
  if (description !== undefined) plain.description = plainWords(description, LONGEST.description);
  if (category !== undefined) plain.category = plainWords(category, LONGEST.category);
  if (mimeType !== undefined) plain.mimeType = orNull(plainWords(mimeType, LONGEST.mimeType));
  if (sample !== undefined) plain.sample = orNull(plainWords(sample, LONGEST.sample));
  if (tags !== undefined)
    plain.tags = tags.slice(0, MOST_TAGS).map((tag) => plainWords(tag, LONGEST.tag));
  if (extensions !== undefined)
    plain.extensions = plainJson(extensions, MAX_EXTENSIONS_BYTES) ?? null;
  if (requirement !== undefined)
    plain.requirement =
      plainJson(requirement, MAX_REQUIREMENT_BYTES) ?? shortRequirement(requirement);
  return { ...facts, ...plain };
}
