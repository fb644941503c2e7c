/** The payment schemes we speak. The only place that lists them. */
import type { AuthorizationRef } from "../core/authorization.ts";
import { isRecord } from "../core/foreign-text.ts";
import type { NetworkFacts } from "../core/networks.ts";
import { exactEip3009 } from "./exact-eip3009/index.ts";
import { findServed, payerOf, refuse, takeApart, type ReadPayment, type Scheme } from "./scheme.ts";

/** The first reads what names no scheme of ours, to say what is wrong with it. */
export const SCHEMES: readonly [Scheme, ...Scheme[]] = [exactEip3009];

/** One of each name: what the facilitator announces, and what a paywall asks for. */
export const NAMED_SCHEMES: readonly Scheme[] = SCHEMES.filter(
  ({ name }, index) => SCHEMES.findIndex((scheme) => scheme.name === name) === index,
);

/** Of several ways to move the asset under one name, `extra` says which; the first where it says none of ours. */
export function findScheme(name: unknown, extra: unknown): Scheme | undefined {
  const named = SCHEMES.filter((scheme) => scheme.name === name);
  const method = isRecord(extra) ? extra["assetTransferMethod"] : undefined;
  return named.find(({ transferMethod }) => transferMethod === method) ?? named[0];
}

/** The scheme of an authorization we sign or have stored: all of them are EIP-3009's. */
export const schemeOf = (_authorization: AuthorizationRef): Scheme => exactEip3009;

/** Reads the protocol's `{x402Version, paymentPayload, paymentRequirements}`: strict on what moves money, blind to extra fields. */
export function readPayment(body: unknown, networks: readonly NetworkFacts[]): ReadPayment {
  const parts = takeApart(body);
  if ("reason" in parts) return parts;
  const { scheme, extra, network } = parts.requirements;
  // What another facilitator may serve is told by name, before its shape is judged by ours.
  const payer = payerOf({ payload: parts.payload });
  if (typeof scheme === "string" && !SCHEMES.some(({ name }) => name === scheme))
    return refuse("unsupported_scheme", payer);
  const isElsewhere =
    typeof network === "string" &&
    parts.accepted["network"] === network &&
    !findServed(parts.version, network, networks);
  if (isElsewhere) return refuse("invalid_network", payer);
  return (findScheme(scheme, extra) ?? SCHEMES[0]).read(parts, networks);
}
