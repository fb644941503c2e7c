/** Where owners' passkeys sign, from the configuration. */
import ipaddr from "ipaddr.js";
import { isLoopbackHost } from "./client-address.ts";
import type { PasskeyPlaces } from "./passkeys.ts";

/** Undefined for an IP address, which can have no passkeys. `domain`: another one than that of the pages. */
export function passkeyPlaces(publicUrl: string, domain?: string): PasskeyPlaces | undefined {
  const url = new URL(publicUrl);
  if (isLoopbackHost(url.hostname)) url.hostname = "localhost";
  if (domain === undefined && isIpAddress(url.hostname)) return undefined;
  return { domain: domain ?? url.hostname, origins: new Set([url.origin]) };
}

const isIpAddress = (host: string): boolean => ipaddr.isValid(host.replaceAll(/^\[|\]$/g, ""));
