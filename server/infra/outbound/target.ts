import { OutboundError } from "./errors.ts";

export interface TargetRules {
  /** Plain http is allowed too (local mode). Origins named as private may always use it. */
  isHttpAllowed: boolean;
  /** Exact origins (scheme, host, port) whose address is not checked. */
  privateOrigins: readonly string[];
}

export interface Target {
  url: URL;
  isPrivate: boolean;
}

const MAX_URL_LENGTH = 4_096;

/**
 * Ports on which an HTTP request could be taken for another protocol: the list of the Fetch
 * standard (https://fetch.spec.whatwg.org/#port-blocking), which browsers refuse as well.
 */
const BAD_PORTS = new Set(
  `1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113
   115 117 119 123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554
   556 563 587 601 636 989 990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6566 6665
   6666 6667 6668 6669 6679 6697 10080`.split(/\s+/),
);

/**
 * Parses and judges a URL before anything is resolved. The WHATWG parser turns decimal, octal,
 * hexadecimal and short spellings of IPv4 into dotted form here, so later checks see one spelling.
 */
export function parseTarget(text: string | URL, rules: TargetRules): Target {
  const source = String(text);
  if (source.length > MAX_URL_LENGTH || !URL.canParse(source))
    throw new OutboundError("blocked", { detail: "This is not a URL that can be fetched" });
  const url = new URL(source);
  if (url.protocol !== "https:" && url.protocol !== "http:")
    throw new OutboundError("blocked", { detail: "Only http(s) URLs can be fetched" });
  if (url.username !== "" || url.password !== "")
    throw new OutboundError("blocked", { detail: "URLs with credentials are not fetched" });
  url.hash = "";
  const isPrivate = rules.privateOrigins.includes(url.origin);
  if (url.protocol === "http:" && !rules.isHttpAllowed && !isPrivate)
    throw new OutboundError("blocked", { detail: "Only https URLs can be fetched" });
  if (BAD_PORTS.has(url.port))
    throw new OutboundError("blocked", { detail: "This port is not used for HTTP" });
  // RFC 6761: always this machine, whatever a resolver makes of it.
  if (!isPrivate && /(^|\.)localhost\.?$/.test(url.hostname)) throw new OutboundError("blocked");
  return { url, isPrivate };
}
