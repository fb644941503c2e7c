/** Client addresses for rate limits and trusted proxies. */
import ipaddr from "ipaddr.js";
import { InvalidSetting } from "./setting.ts";
import { LastKnown } from "./shared-answers.ts";

const IPV6_SITE_BITS = 64;

/**
 * The rate-limit bucket of an address: an IPv4 address, or an IPv6 /64 network, which is the least that one customer
 * gets. An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) counts as its IPv4 address.
 */
export const addressBucket = (text: string): string =>
  buckets.get(text) ?? buckets.keep(text, bucketOf(text));

/** A cache for frequent callers. */
const buckets = new LastKnown<string>(4_096);

function bucketOf(text: string): string {
  if (!ipaddr.isValid(text)) return "unknown";
  const address = ipaddr.process(text);
  if (address instanceof ipaddr.IPv4) return address.toString();
  const bytes = address.toByteArray().map((byte, index) => (index < IPV6_SITE_BITS / 8 ? byte : 0));
  return `${ipaddr.fromByteArray(bytes).toString()}/${IPV6_SITE_BITS}`;
}

/** True for addresses that only this machine can reach. */
export function isLoopbackHost(host: string): boolean {
  const name = host.replace(/^\[|\]$/g, "").toLowerCase();
  if (name === "localhost") return true;
  return ipaddr.isValid(name) && ipaddr.process(name).range() === "loopback";
}

/** Which connections may name the client for which they forward (`X-Forwarded-For`). */
export type Trust = false | string[] | ((address: string, hop: number) => boolean);

/** Names that Fastify accepts besides addresses. */
const NAMED = new Set(["loopback", "linklocal", "uniquelocal"]);
const MAX_HOPS = 10;
const HOW = "set the number of proxies in front (1 to 10), or their addresses or networks";

/**
 * `1` (one proxy in front), or `10.0.0.0/8, 192.0.2.7`. Trusting every proxy would let a caller choose its own address.
 */
export function readTrust(text: string): Trust {
  const wrong = (reason: string) => new InvalidSetting([`${reason}: ${HOW}`]);
  if (text === "false" || text === "0") return false;
  if (text.trim().toLowerCase() === "true") throw wrong("must not trust everyone");
  if (/^[0-9]+$/.test(text)) {
    const hops = Number(text);
    if (hops > MAX_HOPS) throw wrong(`counts ${text} proxies`);
    return (_address, hop) => hop < hops;
  }
  const entries = text.split(",").map((entry) => entry.trim());
  for (const entry of entries) {
    if (NAMED.has(entry) || ipaddr.isValid(entry)) continue;
    if (!ipaddr.isValidCIDR(entry)) throw wrong(`has "${entry}", which is not an address`);
    if (ipaddr.parseCIDR(entry)[1] === 0) throw wrong("must not trust everyone");
  }
  return entries;
}
