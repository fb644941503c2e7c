/** The payment schemes we speak. The only place that lists them. */
import type { AuthorizationRef, SchemeTerms } from "../core/authorization.ts";
import { isRecord } from "../core/foreign-text.ts";
import type { NetworkFacts } from "../core/networks.ts";
import { exactEip3009 } from "./exact-eip3009/index.ts";
import { exactPermit2 } from "./exact-permit2/index.ts";
import { upto } from "./upto/index.ts";
import {
  findServed,
  payerOf,
  refuse,
  takeApart,
  type Desk,
  type ReadPayment,
  type Scheme,
} from "./scheme.ts";

/** What the token itself logs, whichever scheme moved it. */
export { AUTHORIZATION_CANCELED, AUTHORIZATION_USED, TRANSFER } from "./exact-eip3009/onchain.ts";

/** The first reads what names no scheme of ours, to say what is wrong with it. */
export const SCHEMES: readonly [Scheme, ...Scheme[]] = [exactEip3009, exactPermit2, upto];

/** By what is stored with an authorization; EIP-3009's have nothing. */
const BY_TERMS: Record<SchemeTerms["scheme"], Scheme> = {
  "exact-permit2": exactPermit2,
  upto,
};

/** One of each name: what the facilitator announces. */
export const ANNOUNCED_SCHEMES: readonly Scheme[] = SCHEMES.filter(
  ({ name }, index) => SCHEMES.findIndex((scheme) => scheme.name === name) === index,
);

/** Of these, what a paywall asks for: a price. */
export const NAMED_SCHEMES: readonly Scheme[] = ANNOUNCED_SCHEMES.filter(
  ({ isMetered }) => isMetered !== true,
);

/** Of several ways to move the asset under one name, `extra` says which; the first where it says none of ours. */
export function findScheme(name: unknown, extra: unknown): Scheme | undefined {
  const named = SCHEMES.filter((scheme) => scheme.name === name);
  const method = isRecord(extra) ? extra["assetTransferMethod"] : undefined;
  return named.find(({ transferMethod }) => transferMethod === method) ?? named[0];
}

/** The scheme of an authorization we sign or have stored. */
export const schemeOf = ({ terms }: AuthorizationRef): Scheme =>
  terms ? BY_TERMS[terms.scheme] : exactEip3009;

/** Reads the protocol's `{x402Version, paymentPayload, paymentRequirements}`: strict on what moves money, blind to extra fields. */
export function readPayment(
  body: unknown,
  networks: readonly NetworkFacts[],
  { purpose = "verify", relayers = [] }: Partial<Omit<Desk, "networks">> = {},
): ReadPayment {
  const parts = takeApart(body);
  if ("reason" in parts) return parts;
  const { scheme, network } = parts.requirements;
  // What another facilitator may serve is told by name, before its shape is judged by ours.
  const payer = payerOf({ payload: parts.payload });
  const named = SCHEMES.filter(
    ({ name, versions }) => name === scheme && versions.includes(parts.version),
  );
  if (typeof scheme === "string" && named.length === 0) return refuse("unsupported_scheme", payer);
  const isElsewhere =
    typeof network === "string" &&
    parts.accepted["network"] === network &&
    !findServed(parts.version, network, networks);
  if (isElsewhere) return refuse("invalid_network", payer);
  // What is in the payload says how it pays; what the seller asked for says it where the payload is nobody's.
  const own = named.find((each) => each.recognizes(parts)) ?? named[0] ?? SCHEMES[0];
  return own.read(parts, { networks, purpose, relayers });
}
