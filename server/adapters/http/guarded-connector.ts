/**
 * Connects sockets, and only to addresses that may be talked to.
 *
 * The check sits inside the socket's own lookup: the addresses it approves are the ones the socket
 * connects to, so a name that resolves differently a moment later (rebinding) gains nothing. Every
 * address of a name must be allowed; one forbidden among them refuses the name. Literal addresses
 * skip the lookup in node:net, so they are checked before.
 */
import { lookup as systemLookup } from "node:dns";
import { isIP, type LookupFunction } from "node:net";
import { callbackify } from "node:util";
import { buildConnector } from "undici";
import { isForbiddenAddress } from "./address-rules.ts";
import { OutboundError } from "./errors.ts";

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
