/**
 * Validates a Host header, which is text from the caller: only a host with an optional port may become part
 * of a URL.
 */
import { isIPv6 } from "node:net";

const LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?";
const HOST = new RegExp(
  String.raw`^(?:\[(?<v6>[0-9a-f:.]+)\]|(?<name>${LABEL}(?:\.${LABEL})*\.?))(?::(?<port>[1-9][0-9]{0,4}))?$`,
  "i",
);
const MAX_NAME = 254;
const MAX_PORT = 65_535;

/** The name in lower case, without the port; undefined where the text is not exactly `host[:port]`. */
export function readHostName(text: string): string | undefined {
  const { v6, name, port = "1" } = HOST.exec(text)?.groups ?? {};
  if (Number(port) > MAX_PORT) return undefined;
  if (v6 !== undefined) return isIPv6(v6) ? `[${v6.toLowerCase()}]` : undefined;
  if (name === undefined || name.length > MAX_NAME) return undefined;
  const lower = name.toLowerCase();
  // URL parsing turns 127.1 and 0x7f000001 into IP addresses. Before Node 24 it also refuses some names that begin with
  // xn--.
  const url = `http://${lower}`;
  return URL.canParse(url) && new URL(url).hostname === lower ? lower : undefined;
}
