/** Redirect URIs of OAuth clients: which are safe, which are equal, and how they are shown to people. */
import { CONNECTION_LABEL } from "../../core/orders.ts";

const MAX_LENGTH = 500;
const LOOPBACK = new Set(["127.0.0.1", "[::1]", "localhost"]);
/**
 * URI schemes without a dot, of editors and assistants that register with MCP servers. Any other app's scheme must be a
 * reversed domain name (RFC 8252 section 7.1), so that it can never be one that browsers or the system handle
 * (javascript, data, file, mailto, ...).
 */
const APP_SCHEMES = new Set([
  "claude",
  "cursor",
  "vscode",
  "vscode-insiders",
  "vscodium",
  "windsurf",
  "windsurf-next",
  "kiro",
  "zed",
  "goose",
  "raycast",
  "warp",
  "lmstudio",
  "jetbrains",
]);
const REVERSED_DOMAIN = /^[a-z][a-z0-9-]*(\.[a-z0-9-]+)+$/;

/** The reason why a redirect URI is refused; undefined if it is valid. */
export function whyNotRedirect(text: string): string | undefined {
  if (text.length > MAX_LENGTH) return `is longer than ${MAX_LENGTH} characters`;
  // Characters that a URL parser would drop or rewrite: the compared text must be the opened URL.
  if (!/^[\x21-\x7e]+$/.test(text) || /[\\<>"^`{|}]/.test(text))
    return "has characters that are not allowed in an address";
  if (!URL.canParse(text)) return "is not an absolute URL";
  if (text.includes("#")) return "has a fragment";
  const url = new URL(text);
  if (url.username !== "" || url.password !== "") return "names a user";
  if (/(^|\/)(\.|%2e){1,2}(\/|$)/i.test(text.split("?", 1)[0] ?? "")) return "has dot segments";
  const scheme = url.protocol.slice(0, -1);
  if (/^https?$/.test(scheme) && !/^https?:\/\/[^/]/i.test(text)) return "is not an absolute URL";
  if (scheme === "https") return undefined;
  if (scheme === "http")
    return LOOPBACK.has(url.hostname) ? undefined : "must be https, or http on this computer";
  if (APP_SCHEMES.has(scheme) || REVERSED_DOMAIN.test(scheme)) return undefined;
  return `has the scheme ${scheme}:, which is not an app's own scheme`;
}

/**
 * Must equal a registered URI. On loopback any port is accepted, because a program uses a free one (RFC 8252 section
 * 7.3).
 */
export function isRegistered(redirectUri: string, registered: readonly string[]): boolean {
  if (whyNotRedirect(redirectUri) !== undefined) return false;
  if (registered.includes(redirectUri)) return true;
  const plain = withoutPort(redirectUri);
  return plain !== undefined && registered.some((one) => withoutPort(one) === plain);
}

const withoutPort = (text: string): string | undefined =>
  /^http:\/\/(127\.0\.0\.1|\[::1\]|localhost)(:[0-9]{1,5})?(?=[/?]|$)/.test(text)
    ? text.replace(/^(http:\/\/(?:127\.0\.0\.1|\[::1\]|localhost))(?::[0-9]{1,5})?/, "$1")
    : undefined;

/** The place as shown to people and by the wallet. */
export function placeOfRedirect(redirectUri: string): string {
  const url = new URL(redirectUri);
  if (url.protocol === "https:") return url.host;
  if (url.protocol === "http:") return "this computer";
  return `${url.protocol}// app`;
}

/** The redirect URI with the response parameters. Its existing parameters stay. */
export function redirectTo(
  redirectUri: string,
  parameters: Readonly<Record<string, string | null>>,
): string {
  const added = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    if (value !== null) added.append(name, value);
  const joint = !redirectUri.includes("?") ? "?" : /[?&]$/.test(redirectUri) ? "" : "&";
  return `${redirectUri}${joint}${added.toString()}`;
}

const MAX_LABEL = 80;
const MAX_PLACE = 36;

/**
 * The label of the key, which the owner's wallet shows and signs: first the redirect's place, which the program cannot
 * choose freely, then the program's own name.
 */
export function labelOf(clientName: string, redirectUri: string): string {
  const place = placeOfRedirect(redirectUri);
  // The end of a long host name is kept, because it identifies its owner.
  const shown = place.length > MAX_PLACE ? `…${place.slice(1 - MAX_PLACE)}` : place;
  const [before, after] = [`${CONNECTION_LABEL}${shown}, named "`, '"'];
  const room = MAX_LABEL - before.length - after.length;
  const name = Array.from(clientName.replaceAll('"', "")).slice(0, room).join("").trim();
  return `${before}${name}${after}`;
}
