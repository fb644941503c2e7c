/** The SSRF guard of outbound requests: which URLs and addresses may be requested, and how failures are reported. */
import ipaddr from "ipaddr.js";
import { lookup as systemLookup } from "node:dns";
import { isIP, type LookupFunction } from "node:net";
import { callbackify } from "node:util";
import { buildConnector } from "undici";

export interface TargetRules {
  /** Allows plain http too (local mode). Private origins may always use it. */
  isHttpAllowed: boolean;
  /** Exact origins (scheme, host, port) whose address is not checked. */
  privateOrigins: readonly string[];
}

interface Target {
  url: URL;
  isPrivate: boolean;
}

const MAX_URL_LENGTH = 4_096;
/** Shown for every address that is refused, so that it reveals nothing about one. */
const EXCEPTIONS = "The operator can allow a private origin in FETCH_PRIVATE_ORIGINS.";

/**
 * Ports on which an HTTP request could be taken for another protocol: the list of the Fetch standard
 * (https://fetch.spec.whatwg.org/#port-blocking), which browsers refuse as well.
 */
const BAD_PORTS = new Set(
  `1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113
   115 117 119 123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554
   556 563 587 601 636 989 990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6566 6665
   6666 6667 6668 6669 6679 6697 10080`.split(/\s+/),
);

/**
 * Parses and checks a URL before DNS resolution. The WHATWG parser turns decimal, octal, hexadecimal and short forms of
 * IPv4 into dotted form here, so later checks see one form.
 */
export function parseTarget(text: string | URL, rules: TargetRules): Target {
  const source = String(text);
  if (source.length > MAX_URL_LENGTH || !URL.canParse(source))
    throw new OutboundError("blocked", { detail: "This URL cannot be fetched" });
  const url = new URL(source);
  if (url.protocol !== "https:" && url.protocol !== "http:")
    throw new OutboundError("blocked", { detail: "Only http(s) URLs can be fetched" });
  if (url.username !== "" || url.password !== "")
    throw new OutboundError("blocked", { detail: "URLs with credentials cannot be fetched" });
  url.hash = "";
  const isPrivate = rules.privateOrigins.includes(url.origin);
  if (url.protocol === "http:" && !rules.isHttpAllowed && !isPrivate)
    throw new OutboundError("blocked", { detail: `Only https URLs can be fetched. ${EXCEPTIONS}` });
  if (BAD_PORTS.has(url.port))
    throw new OutboundError("blocked", { detail: "This port is not used for HTTP" });
  // RFC 6761: always this machine, whatever a resolver returns.
  if (!isPrivate && /(^|\.)localhost\.?$/.test(url.hostname)) throw new OutboundError("blocked");
  return { url, isPrivate };
}

type Cidr = [ipaddr.IPv4 | ipaddr.IPv6, number];
const ranges = (...texts: string[]): Cidr[] => texts.map((text) => ipaddr.parseCIDR(text));

const FORBIDDEN_V4 = ranges(
  "0.0.0.0/8", // "this network"; 0.0.0.0 reaches the machine itself on Linux
  "10.0.0.0/8", // private
  "100.64.0.0/10", // carrier-grade NAT; one cloud's metadata service is at 100.100.100.200
  "127.0.0.0/8", // loopback
  "168.63.129.16/32", // a cloud's host agent, on an address that looks public
  "169.254.0.0/16", // link-local, metadata services
  "172.16.0.0/12", // private
  "192.0.0.0/24", // IETF protocol assignments
  "192.0.2.0/24", // documentation
  "192.31.196.0/24", // AS112
  "192.52.193.0/24", // AMT
  "192.88.99.0/24", // 6to4 relays
  "192.168.0.0/16", // private
  "192.175.48.0/24", // AS112
  "198.18.0.0/15", // benchmarking
  "198.51.100.0/24", // documentation
  "203.0.113.0/24", // documentation
  "224.0.0.0/4", // multicast
  "240.0.0.0/4", // reserved, and the broadcast address
);

/** All global unicast IPv6 addresses; loopback, ULA, link-local, mapped and compatible ones are outside. */
const GLOBAL_V6: Cidr = ipaddr.parseCIDR("2000::/3");
const FORBIDDEN_V6 = ranges(
  "2001::/23", // protocol assignments: Teredo, ORCHID, benchmarking
  "2001:db8::/32", // documentation
  "2002::/16", // 6to4 carries an IPv4 address of the sender's choice
  "2620:4f:8000::/48", // AS112
  "3fff::/20", // documentation
);
/** NAT64: on IPv6-only networks every IPv4 host resolves into this range, so the embedded address is checked. */
const NAT64: Cidr = ipaddr.parseCIDR("64:ff9b::/96");

const within = (address: ipaddr.IPv4 | ipaddr.IPv6, [network, bits]: Cidr): boolean =>
  address.kind() === network.kind() && address.match(network, bits);

/**
 * True unless the IANA special-purpose registries call the address globally reachable. This refuses our own network,
 * the machine itself and a cloud's metadata service, and also text that is not an address.
 */
export function isForbiddenAddress(text: string): boolean {
  if (!ipaddr.isValid(text)) return true;
  const address = ipaddr.parse(text);
  if (address instanceof ipaddr.IPv4) return FORBIDDEN_V4.some((range) => within(address, range));
  // A zone names an interface of this machine; only link-local addresses have one.
  if (address.zoneId !== undefined) return true;
  if (within(address, NAT64)) return isForbiddenAddress(address.toByteArray().slice(12).join("."));
  return !within(address, GLOBAL_V6) || FORBIDDEN_V6.some((range) => within(address, range));
}

export interface ResolvedAddress {
  address: string;
  family: number;
}
/** Resolves a name to all its addresses. Tests pass their own. */
export type Resolver = (hostname: string) => Promise<ResolvedAddress[]>;

export const systemResolver: Resolver = (hostname) =>
  new Promise((resolve, reject) => {
    systemLookup(hostname, { all: true, verbatim: true }, (error, addresses) =>
      error ? reject(error) : resolve(addresses),
    );
  });

interface GuardedConnectorOptions {
  resolver: Resolver;
  connectTimeoutMs: number;
  /** False only for origins that the operator named, who is responsible for their addresses. */
  isChecked: boolean;
}

/**
 * Connects sockets, and only to allowed addresses. The check is inside the socket's own lookup: the socket connects to
 * exactly the addresses that were checked, so DNS rebinding does not work. If one address of a name is forbidden, the
 * name is refused. Literal addresses skip the lookup in node:net, so they are checked before.
 */
export function guardedConnector(options: GuardedConnectorOptions): buildConnector.connector {
  const connect = buildConnector({
    timeout: options.connectTimeoutMs,
    lookup: guardedLookup(options),
  });
  return (target, callback) => {
    if (options.isChecked && isIP(target.hostname) !== 0 && isForbiddenAddress(target.hostname)) {
      callback(new OutboundError("blocked"), null);
      return;
    }
    connect(target, (...[error, socket]) => {
      if (error) {
        connectFailures.add(error);
        callback(error, null);
      } else callback(null, socket);
    });
  };
}

/** Errors of attempts that never had a socket, so that nothing was sent. */
const connectFailures = new WeakSet<Error>();

function guardedLookup({ resolver, isChecked }: GuardedConnectorOptions): LookupFunction {
  const resolveAllowed = callbackify(async (hostname: string): Promise<ResolvedAddress[]> => {
    const addresses = await resolver(hostname);
    if (addresses.length === 0) throw new OutboundError("unreachable");
    if (isChecked && addresses.some(({ address }) => isForbiddenAddress(address)))
      throw new OutboundError("blocked");
    return addresses;
  });
  return (hostname, lookupOptions, callback) => {
    resolveAllowed(hostname, (error, addresses) => {
      const [first] = addresses ?? [];
      if (error || !first) callback(error, []);
      // node:net requests all addresses if it races address families, otherwise one.
      else if (lookupOptions.all) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}

/** Why an outbound request has no response. Clients see only this kind. */
export type OutboundFailure =
  /** The target is not allowed; nothing was sent. */
  | "blocked"
  /** No connection, or no HTTP on it. */
  | "unreachable"
  /** The time allowed ran out. */
  | "timeout"
  /** Larger than we accept, in headers, on the wire or decompressed. */
  | "too_large"
  /** The compressed body is invalid. */
  | "undecodable";

/**
 * The messages are the same for a closed port and one with another protocol, and for every forbidden address, so that
 * the service cannot be used as a port scanner. The reason (`cause`) goes to the log only.
 */
const MESSAGES: Record<OutboundFailure, string> = {
  blocked: `This URL cannot be fetched: only public http(s) addresses are allowed. ${EXCEPTIONS}`,
  unreachable: "The target could not be reached, or its response was not HTTP",
  timeout: "The target did not answer in time",
  too_large: "The target's answer is larger than allowed",
  undecodable: "The target's answer could not be decompressed",
};

export class OutboundError extends Error {
  readonly failure: OutboundFailure;
  /**
   * True if there never was a connection, which proves that no byte of the request arrived. A timeout, a reset or a
   * closed connection proves nothing.
   */
  readonly neverSent: boolean;

  constructor(
    failure: OutboundFailure,
    options: { detail?: string; cause?: unknown; neverSent?: boolean } = {},
  ) {
    super(options.detail ?? MESSAGES[failure], { cause: options.cause });
    this.name = "OutboundError";
    this.failure = failure;
    this.neverSent = options.neverSent ?? failure === "blocked";
  }
}

const TIMEOUT_CODES = new Set([
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
  "ETIMEDOUT",
]);
const SIZE_CODES = new Set(["UND_ERR_HEADERS_OVERFLOW", "UND_ERR_RES_EXCEEDED_MAX_SIZE"]);

/** Maps any error of undici, the socket or the resolver to one of our five failures. */
export function toOutboundError(error: unknown): OutboundError {
  let neverSent = false;
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof OutboundError) return cause;
    neverSent ||= connectFailures.has(cause);
    const options = { cause: error, neverSent };
    const code = "code" in cause && typeof cause.code === "string" ? cause.code : "";
    if (TIMEOUT_CODES.has(code) || cause.name === "TimeoutError")
      return new OutboundError("timeout", options);
    if (SIZE_CODES.has(code)) return new OutboundError("too_large", options);
    // Several addresses were tried; the first error decides for all of them.
    if (cause instanceof AggregateError && cause.errors.length > 0) {
      const { failure } = toOutboundError(cause.errors[0]);
      return new OutboundError(failure, options);
    }
  }
  return new OutboundError("unreachable", { cause: error, neverSent });
}

const NO_NAME_CODES = new Set(["ENOTFOUND", "EAI_AGAIN", "EAI_FAIL", "EAI_NONAME", "ENODATA"]);
const CERTIFICATE_CODE =
  /^(CERT_|ERR_TLS_CERT|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|HOSTNAME_MISMATCH|INVALID_CA)/;

/**
 * More about a failure, for a seller who asks why it is not reached. Only what DNS and a certificate say in public: a
 * closed port and one with another protocol are still the same.
 */
export function reasonOf(error: OutboundError): "name" | "certificate" | "headers" | undefined {
  for (let cause: unknown = error.cause; cause instanceof Error; cause = cause.cause) {
    const code = "code" in cause && typeof cause.code === "string" ? cause.code : "";
    if (NO_NAME_CODES.has(code)) return "name";
    if (CERTIFICATE_CODE.test(code)) return "certificate";
    if (code === "UND_ERR_HEADERS_OVERFLOW") return "headers";
  }
  return undefined;
}
