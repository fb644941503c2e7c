/** A website as the place where a payee may be paid: its origin (scheme, host, port), in one spelling. */
import { domainToUnicode } from "node:url";

/** Where a request to this URL goes. Compared byte by byte: another port, a last dot, a lookalike is another site. */
export const siteOf = (url: URL): string => url.origin;

type ReadSite = { ok: true; site: string } | { ok: false; reason: string };

const EXAMPLE = "must be an origin such as https://api.example.com";

/** An origin and nothing else. International names become punycode, upper case lower, a scheme's own port none. */
export function parseSite(text: string): ReadSite {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^https?:$/.test(url.protocol)) return { ok: false, reason: EXAMPLE };
  // Blanks around it and backslashes are read as something else than what a person sees.
  if (url.href !== `${url.origin}/` || /[?#\\\s@]/.test(text))
    return { ok: false, reason: `${EXAMPLE}, without user, path or query` };
  if (url.hostname.endsWith(".")) return { ok: false, reason: "must not end with a dot" };
  return { ok: true, site: siteOf(url) };
}

/** As its people write it, where that differs: shown beside the punycode, never instead of it. */
export function readableSite(site: string): string | null {
  if (!site.includes("xn--") || !URL.canParse(site)) return null;
  const { protocol, hostname, port } = new URL(site);
  const name = domainToUnicode(hostname);
  // A name that would not lead here is no name of this site.
  if (name === hostname || !URL.canParse(`https://${name}`)) return null;
  if (new URL(`https://${name}`).hostname !== hostname) return null;
  return `${protocol}//${name}${port === "" ? "" : `:${port}`}`;
}
