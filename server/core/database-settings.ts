/** The database URLs: DATABASE_URL may name several hosts, and DATABASE_DIRECT_URL bypasses a transaction pooler. */
import { formed, valid } from "./setting.ts";

export interface DatabaseSettings {
  /** A direct connection to Postgres, on which everything works, including sessions. */
  databaseUrl: string | undefined;
  /** Set if most connections use a transaction pooler. */
  databasePooledUrl: string | undefined;
  /** A streaming standby for reads that decide nothing. */
  databaseReadUrl?: string | undefined;
}

const AUTHORITY = /^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?)([^/?#]*)(.*)$/s;
const SESSIONS = new Set(["read-write", "primary", "prefer-standby", "any"]);
/** We always connect to the primary, so these values are accepted. */
const WRITABLE = new Set(["read-write", "primary"]);
const SESSION_ATTRIBUTES = "target_session_attrs";

/** One URL per host of `postgres://user:password@one:5432,other:5433/name`, read like libpq, in order. */
export function urlsOfHosts(databaseUrl: string): string[] {
  const [, before = "", hosts = "", after = ""] = AUTHORITY.exec(databaseUrl) ?? [];
  const urls = hosts.includes(",")
    ? hosts.split(",").map((host) => `${before}${host.trim()}${after}`)
    : [databaseUrl];
  return urls.map((text) => {
    if (!URL.canParse(text)) return text;
    const url = new URL(text);
    if (!url.searchParams.has(SESSION_ATTRIBUTES)) return text;
    url.searchParams.delete(SESSION_ATTRIBUTES);
    return url.href;
  });
}

function readDatabaseUrl(text: string): string | undefined {
  if (!AUTHORITY.test(text)) return undefined;
  const reasons: string[] = [];
  if (!urlsOfHosts(text).every((url) => URL.canParse(url)))
    reasons.push(
      "must be a URL such as postgres://user:password@host:5432/name, several hosts separated by commas, with what is not a letter or digit of the password percent-encoded",
    );
  const wanted = new RegExp(`[?&]${SESSION_ATTRIBUTES}=([\\w-]+)`).exec(text)?.[1];
  if (wanted !== undefined && !WRITABLE.has(wanted))
    reasons.push(
      `asks for ${SESSION_ATTRIBUTES}=${SESSIONS.has(wanted) ? wanted : "something unknown"}: remove it or use read-write, because the service writes`,
    );
  return valid(text, reasons);
}

export const databaseUrl = formed("a postgres:// URL", readDatabaseUrl);

export const databaseReadUrl = formed("a postgres:// URL with one host", (text) =>
  urlsOfHosts(text).length === 1 ? readDatabaseUrl(text) : undefined,
);
