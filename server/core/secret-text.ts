/**
 * Removes secrets from text that leaves the process: endpoint URLs with a key in their path, query or user name, which
 * libraries and nodes repeat in their errors, and plain secrets.
 */

export type Hide = (text: string) => string;

const CENSOR = "[secret]";
/** Shorter path segments are versions and names (`v2`, `rpc`); keys are longer. */
const SHORTEST_PATH_KEY = 8;
const SHORTEST_KEY = 4;
/** Common words in the paths of endpoint URLs, which are no keys. */
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

/** Replaces every occurrence of these secrets. */
export function hideSecrets(secrets: readonly string[]): Hide {
  const parts = [...new Set(secrets)]
    .filter((part) => part.length >= SHORTEST_KEY)
    // Longest first, so that a URL is replaced as a whole.
    .toSorted((left, right) => right.length - left.length);
  if (parts.length === 0) return (text) => text;
  const pattern = new RegExp(
    parts.map((part) => part.replaceAll(/[^\w]/g, String.raw`\$&`)).join("|"),
    "g",
  );
  return (text) => text.replaceAll(pattern, CENSOR);
}

/**
 * Removes the secrets from an error: its message and stack, viem's additional fields (details, metaMessages), and its
 * causes.
 */
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
