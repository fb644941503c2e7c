/**
 * Takes what an operator must keep to himself out of text that leaves the process: endpoint URLs with a key in their
 * path, query or user name, as libraries and nodes repeat them in their errors, and plain secrets.
 */

export type Hide = (text: string) => string;

const CENSOR = "[secret]";
/** Shorter parts of a path are versions and names (`v2`, `rpc`); a key is longer. */
const SHORTEST_PATH_KEY = 8;
const SHORTEST_KEY = 4;
/** Words that endpoint URLs have in their paths and that are no key. */
const PLAIN_WORDS =
  /^(ethereum|arbitrum|optimism|avalanche|polygon|mainnet|testnet|base|sepolia|jsonrpc|public|evm|rpc|eth|arc|one|ext|api|[-_])+$/i;

/** Every part of an endpoint's URL that may be its key, as written and decoded. */
export function secretsOfUrl(text: string): string[] {
  if (!URL.canParse(text)) return [];
  const url = new URL(text);
  const path = url.pathname.split("/").filter((part) => part.length >= SHORTEST_PATH_KEY);
  const query = [...url.searchParams.values(), ...url.search.slice(1).split(/[&=]/)];
  const parts = [
    ...path.filter((part) => !PLAIN_WORDS.test(part)),
    ...query.filter((part) => part.length >= SHORTEST_PATH_KEY && !PLAIN_WORDS.test(part)),
    ...url.searchParams.values(),
    url.username,
    url.password,
  ];
  const isBare = url.pathname === "/" && url.search === "" && url.username + url.password === "";
  const whole = isBare ? [] : [text, url.href, `${url.pathname}${url.search}`];
  const credentials = `${decoded(url.username)}:${decoded(url.password)}`;
  return [
    ...whole,
    ...parts,
    ...(credentials === ":" ? [] : [Buffer.from(credentials).toString("base64")]),
  ].flatMap((part) => [part, decoded(part)]);
}

/** Replaces each of these wherever it stands. */
export function hideSecrets(secrets: readonly string[]): Hide {
  const parts = [...new Set(secrets)]
    .filter((part) => part.length >= SHORTEST_KEY)
    // The longest first: a URL goes as a whole, not piece by piece.
    .toSorted((left, right) => right.length - left.length);
  if (parts.length === 0) return (text) => text;
  const pattern = new RegExp(
    parts.map((part) => part.replaceAll(/[^\w]/g, String.raw`\$&`)).join("|"),
    "g",
  );
  return (text) => text.replaceAll(pattern, CENSOR);
}

/** The same error without them: its message and stack, what viem keeps beside (details, metaMessages), and its causes. */
export function hideInError<T>(error: T, hide: Hide, depth = 0): T {
  if (!(error instanceof Error) || depth > 8) return error;
  const fields = error as unknown as Record<string, unknown>;
  for (const name of ["message", "stack", "details", "shortMessage", "url", "path", "address"])
    if (typeof fields[name] === "string") fields[name] = hide(fields[name]);
  if (Array.isArray(fields["metaMessages"]))
    fields["metaMessages"] = fields["metaMessages"].map((line) => hide(String(line)));
  if (Array.isArray(fields["errors"]))
    for (const inner of fields["errors"]) hideInError(inner, hide, depth + 1);
  hideInError(error.cause, hide, depth + 1);
  return error;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
