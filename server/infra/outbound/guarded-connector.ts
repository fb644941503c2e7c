/**
 * Which IP addresses the service may talk to on somebody else's behalf: only
 * those the IANA special-purpose registries call globally reachable. Everything else (our own
 * network, the machine itself, a cloud's metadata service) is refused.
 */
import ipaddr from "ipaddr.js";
import { lookup as systemLookup } from "node:dns";
import { type LookupFunction, isIP } from "node:net";
import { callbackify } from "node:util";
import { buildConnector } from "undici";
import { OutboundError } from "./errors.ts";

type Cidr = [ipaddr.IPv4 | ipaddr.IPv6, number];
const ranges = (...texts: string[]): Cidr[] => texts.map((text) => ipaddr.parseCIDR(text));

const FORBIDDEN_V4 = ranges(
  "0.0.0.0/8", // "this network"; 0.0.0.0 reaches the machine itself on Linux
  "10.0.0.0/8", // private
  "100.64.0.0/10", // carrier-grade NAT; a cloud's metadata service lives at 100.100.100.200
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

/** All global unicast IPv6 is in here; loopback, ULA, link-local, mapped and compatible are not. */
const GLOBAL_V6: Cidr = ipaddr.parseCIDR("2000::/3");
const FORBIDDEN_V6 = ranges(
  "2001::/23", // protocol assignments: Teredo, ORCHID, benchmarking
  "2001:db8::/32", // documentation
  "2002::/16", // 6to4 carries an IPv4 address of the sender's choice
  "2620:4f:8000::/48", // AS112
  "3fff::/20", // documentation
);
/** NAT64: on IPv6-only networks every IPv4 name resolves into it, so the embedded address decides. */
const NAT64: Cidr = ipaddr.parseCIDR("64:ff9b::/96");

const within = (address: ipaddr.IPv4 | ipaddr.IPv6, [network, bits]: Cidr): boolean =>
  address.kind() === network.kind() && address.match(network, bits);

/** True for text that is no address at all: what cannot be judged is not connected to. */
export function isForbiddenAddress(text: string): boolean {
  if (!ipaddr.isValid(text)) return true;
  const address = ipaddr.parse(text);
  if (address instanceof ipaddr.IPv4) return FORBIDDEN_V4.some((range) => within(address, range));
  // An interface of this machine: only link-local addresses carry one.
  if (address.zoneId !== undefined) return true;
  if (within(address, NAT64)) return isForbiddenAddress(address.toByteArray().slice(12).join("."));
  return !within(address, GLOBAL_V6) || FORBIDDEN_V6.some((range) => within(address, range));
}

/**
 * Connects sockets, and only to addresses that may be talked to.
 *
 * The check sits inside the socket's own lookup: the addresses it approves are the ones the socket
 * connects to, so a name that resolves differently a moment later (rebinding) gains nothing. Every
 * address of a name must be allowed; one forbidden among them refuses the name. Literal addresses
 * skip the lookup in node:net, so they are checked before.
 */

export interface ResolvedAddress {
  address: string;
  family: number;
}
/** Resolves a name to all its addresses. Tests give their own. */
export type Resolver = (hostname: string) => Promise<ResolvedAddress[]>;

export const systemResolver: Resolver = (hostname) =>
  new Promise((resolve, reject) => {
    systemLookup(hostname, { all: true, verbatim: true }, (error, addresses) =>
      error ? reject(error) : resolve(addresses),
    );
  });

export interface GuardedConnectorOptions {
  resolver: Resolver;
  connectTimeoutMs: number;
  /** False only for origins the operator named: their addresses are his business. */
  isChecked: boolean;
}

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
    connect(target, callback);
  };
}

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
      // node:net asks for all of them when it races address families, else for one.
      else if (lookupOptions.all) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}
