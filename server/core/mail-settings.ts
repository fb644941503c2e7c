/** E-mail settings: SMTP_URL and MAIL_FROM. */
import { isLoopbackHost } from "./client-address.ts";
import { formed, InvalidSetting } from "./setting.ts";

export interface MailSettings {
  host: string;
  port: number;
  /** TLS from the first byte (smtps://). */
  isSecure: boolean;
  /** STARTTLS is required before anything else is sent. */
  needsTls: boolean;
  /** A server on this machine needs no TLS. */
  isLoopback: boolean;
  user: string | undefined;
  password: string | undefined;
  from: { name: string; address: string };
  /** Must not appear in any log. */
  secrets: string[];
}

const SMTP_PORT = 587;
const SMTPS_PORT = 465;
const MAX_ADDRESS = 254;
const SHORTEST_PASSWORD = 12;
const LOCAL_PART = /^[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+)*$/;
const LABEL = /^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$/;

type ParsedEmail = { ok: true; address: string } | { ok: false; reason: string };

/**
 * Parses one plain address (RFC 5321 without quotes, comments and literals), with its domain in lower case. Anything
 * more unusual is mostly an attempt to put more than an address into a header.
 */
export function parseEmail(text: string): ParsedEmail {
  const at = text.lastIndexOf("@");
  const local = text.slice(0, Math.max(0, at));
  const domain = text.slice(at + 1).toLowerCase();
  const labels = domain.split(".");
  if (text.length > MAX_ADDRESS || local.length > 64)
    return { ok: false, reason: "is too long for an address" };
  if (!LOCAL_PART.test(local) || labels.length < 2 || !labels.every((label) => LABEL.test(label)))
    return {
      ok: false,
      reason:
        "must be one address such as you@example.com, in ASCII letters (use xn--... for other domains)",
    };
  if (/^[0-9]+$/.test(labels.at(-1) ?? ""))
    return { ok: false, reason: "must have a domain name, not an IP address" };
  return { ok: true, address: `${local}@${domain}` };
}

/**
 * The mailbox that different spellings of an address share at the usual providers: without letter case, dots, and the
 * part after a plus.
 */
export function mailboxOf(address: string): string {
  const [local = "", domain = ""] = address.toLowerCase().split("@");
  const plain = (local.split("+", 1)[0] ?? "").replaceAll(".", "");
  return `${plain === "" ? local : plain}@${domain}`;
}

/** Everything but the sender, which is MAIL_FROM. */
export const smtpUrl = formed(
  "smtp(s)://[user:password@]host[:port] with nothing after it",
  readSmtpUrl,
);

function readSmtpUrl(text: string): Omit<MailSettings, "from"> | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isSmtp =
    url !== undefined &&
    /^smtps?:$/.test(url.protocol) &&
    url.hostname !== "" &&
    /^\/?$/.test(url.pathname + url.search + url.hash);
  if (!isSmtp) return undefined;
  const [user, password] = [decoded(url.username), decoded(url.password)];
  if ((user === "") !== (password === ""))
    throw new InvalidSetting(["has a user without a password, or a password without a user"]);
  const isSecure = url.protocol === "smtps:";
  const isLoopback = isLoopbackHost(url.hostname);
  return {
    host: url.hostname.replaceAll(/^\[|\]$/g, ""),
    port: url.port === "" ? (isSecure ? SMTPS_PORT : SMTP_PORT) : Number(url.port),
    isSecure,
    needsTls: !isSecure && !isLoopback,
    isLoopback,
    user: user === "" ? undefined : user,
    password: password === "" ? undefined : password,
    secrets: password === "" ? [] : secretsOf(text, url, user, password),
  };
}

export const mailFrom = formed(
  "an address such as purser@example.com or Purser <purser@example.com>",
  (text): MailSettings["from"] | undefined => {
    const [, name = "", bracketed] = /^([^<>"\r\n]{0,60})<([^<>]+)>$/.exec(text.trim()) ?? [];
    const parsed = parseEmail(bracketed ?? text.trim());
    return parsed.ok ? { name: name.trim() || "Purser", address: parsed.address } : undefined;
  },
);

/**
 * The secrets as written and as SMTP sends them (AUTH PLAIN and LOGIN), because a server or library may repeat them.
 */
function secretsOf(text: string, url: URL, user: string, password: string): string[] {
  const base64 = (part: string): string => Buffer.from(part).toString("base64");
  const whole = [text, url.href, base64(`\0${user}\0${password}`)];
  // Hiding a word such as "postfix" would make every line unreadable.
  return password.length < SHORTEST_PASSWORD
    ? whole
    : [...whole, url.password, password, base64(password)];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
