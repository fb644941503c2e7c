/** Numbers and strings say the same thing in what a stranger wrote; an object says nothing we could compare. */
export const plainText = (value: unknown): string | undefined =>
  typeof value === "string" || typeof value === "number" ? String(value) : undefined;

/** A stranger's text in a sentence of ours: short, and quoted. */
export const quoted = (value: unknown): string =>
  JSON.stringify((plainText(value) ?? typeof value).slice(0, 80));
