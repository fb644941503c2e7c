/** A website where a payee may be paid: its origin (scheme, host, port), in one canonical form. */
import { domainToUnicode } from "node:url";
import { getAddress } from "viem";

/** The site of a URL. Compared byte by byte: another port, a trailing dot or a lookalike is another site. */
export const siteOf = (url: URL): string => url.origin;

type ReadSite = { ok: true; site: string } | { ok: false; reason: string };

const EXAMPLE = "must be an origin such as https://api.example.com";

/**
 * Parses an origin and nothing else. International names become punycode, upper case becomes lower, and a default port
 * is removed.
 */
export function parseSite(text: string): ReadSite {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^https?:$/.test(url.protocol)) return { ok: false, reason: EXAMPLE };
  // Spaces around it and backslashes are parsed differently from what a person sees.
  if (url.href !== `${url.origin}/` || /[?#\\\s@]/.test(text))
    return { ok: false, reason: `${EXAMPLE}, without user, path or query` };
  if (url.hostname.endsWith(".")) return { ok: false, reason: "must not end with a dot" };
  return { ok: true, site: siteOf(url) };
}

/** The Unicode name, if it differs: shown next to the punycode, never instead of it. */
export function readableSite(site: string): string | null {
  if (!site.includes("xn--") || !URL.canParse(site)) return null;
  const { protocol, hostname, port } = new URL(site);
  const name = domainToUnicode(hostname);
  // A name that does not map back to this host is not shown.
  if (name === hostname || !URL.canParse(`https://${name}`)) return null;
  if (new URL(`https://${name}`).hostname !== hostname) return null;
  return `${protocol}//${name}${port === "" ? "" : `:${port}`}`;
}

/** An entry of an owner's denied payees, an address or a site, as people read it and as it is signed. */
export const shownDenied = (entry: string): string =>
  entry.startsWith("0x") ? getAddress(entry) : entry;
