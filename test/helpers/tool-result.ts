// What a model reads of a tool's result: our own JSON, and the third parties' JSON behind the line that marks it.
interface Called {
  content?: unknown;
  [member: string]: unknown;
}

export interface ToolText {
  own: string;
  /** Undefined where no third party wrote anything. */
  thirdParty: string | undefined;
}

export function toolText({ content }: Called): ToolText {
  const [own = "", ...marked] = (content as { type: string; text?: string }[])
    .filter(({ type }) => type === "text")
    .map(({ text }) => text ?? "");
  const part = marked.find((text) => /^UNTRUSTED[^\n]*\n/.test(text));
  return { own, thirdParty: part?.slice(part.indexOf("\n") + 1) };
}

/** Both parts as one value. */
export function toolResult(called: Called): Record<string, unknown> {
  const { own, thirdParty } = toolText(called);
  const value: unknown = JSON.parse(own);
  return (thirdParty === undefined ? value : merged(value, JSON.parse(thirdParty))) as Record<
    string,
    unknown
  >;
}

function merged(own: unknown, theirs: unknown): unknown {
  if (Array.isArray(own) && Array.isArray(theirs))
    return own.map((item: { id?: unknown }) =>
      merged(item, theirs.find((other: { id?: unknown }) => other.id === item.id) ?? {}),
    );
  if (typeof own !== "object" || own === null || typeof theirs !== "object") return theirs ?? own;
  const names = new Set([...Object.keys(own), ...Object.keys(theirs as object)]);
  const left = own as Record<string, unknown>;
  const right = theirs as Record<string, unknown>;
  return Object.fromEntries(
    [...names].map((name) => [name, name in right ? merged(left[name], right[name]) : left[name]]),
  );
}
