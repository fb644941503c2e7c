/** JSON as Postgres takes it: strangers' text may hold NUL, which jsonb refuses. */
export function toJsonb(value: unknown): string {
  return JSON.stringify(clean(value)) ?? "null";
}

function clean(value: unknown): unknown {
  if (typeof value === "string") return cleanText(value);
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return value.map(clean);
  if (typeof value !== "object" || value === null) return value;
  if ("toJSON" in value) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [cleanText(name), clean(member)]),
  );
}

/** Lone surrogates are refused by jsonb as well. */
const cleanText = (text: string): string => text.replaceAll(/\0|\p{Surrogate}/gu, "\uFFFD");
