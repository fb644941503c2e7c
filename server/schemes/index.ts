/** The payment schemes we speak. The only place that lists them. */
import type { Address } from "viem";
import type { AuthorizationRef, SchemeTerms } from "../core/authorization.ts";
import { isRecord } from "../core/foreign-text.ts";
import type { NetworkFacts } from "../core/networks.ts";
import { allowance } from "./allowance/index.ts";
import { exactEip3009 } from "./exact-eip3009/index.ts";
import { exactPermit2 } from "./exact-permit2/index.ts";
import { upto } from "./upto/index.ts";
import {
  findServed,
  payerOf,
  refuse,
  splitPayload,
  type CheckContext,
  type ReadPayment,
  type Relaying,
  type Scheme,
} from "./scheme.ts";

/** Moves the token by a signature alone: what is not paid to a seller who asks otherwise. */
export { exactEip3009 as TOKEN_SCHEME } from "./exact-eip3009/index.ts";

/** What a contract may take of a wallet: no payment, and signed only beside one. */
export {
  allowanceCall,
  allowanceOf,
  permitDigest,
  permitsCall,
  type AllowanceWanted,
} from "./allowance/index.ts";

/** What the token itself logs, whichever scheme moved it. */
export { AUTHORIZATION_CANCELED, AUTHORIZATION_USED, TRANSFER } from "./exact-eip3009/onchain.ts";

/** The first reads what names no scheme of ours, to say what is wrong with it. */
export const SCHEMES: readonly [Scheme, ...Scheme[]] = [exactEip3009, exactPermit2, upto];

/** By what is stored with a payment; EIP-3009's have nothing. */
const BY_TERMS: Record<Exclude<SchemeTerms["scheme"], "allowance">, Scheme> = {
  "exact-permit2": exactPermit2,
  upto,
};

/** One of each name: what the facilitator announces. */
export const ANNOUNCED_SCHEMES: readonly Scheme[] = SCHEMES.filter(
  ({ name }, index) => SCHEMES.findIndex((scheme) => scheme.name === name) === index,
);

/** Of several ways to move the asset under one name, `extra` says which; the first where it says none of ours. */
export function findScheme(
  name: unknown,
  extra: unknown,
  protocol: "x402" | "mpp" = "x402",
): Scheme | undefined {
  // What MPP calls a charge is an authorization of EIP-3009.
  if (protocol === "mpp") return name === "charge" ? exactEip3009 : undefined;
  const named = SCHEMES.filter((scheme) => scheme.name === name);
  const method = isRecord(extra) ? extra["assetTransferMethod"] : undefined;
  return named.find(({ transferMethod }) => transferMethod === method) ?? named[0];
}

/** The scheme of a payment we sign or have stored. */
export function paymentSchemeOf({ terms }: Pick<AuthorizationRef, "terms">): Scheme {
  if (!terms) return exactEip3009;
  if (terms.scheme === "allowance") throw new Error("an allowance is no payment");
  return BY_TERMS[terms.scheme];
}

/** How anything that was signed is relayed and proven. */
export const schemeOf = (ref: AuthorizationRef): Relaying =>
  ref.terms?.scheme === "allowance" ? allowance : paymentSchemeOf(ref);

/** Every contract that a wallet lets take money of it. */
export const SPENDERS: readonly Address[] = [
  ...new Set(SCHEMES.flatMap(({ spender }) => (spender === undefined ? [] : [spender]))),
];

export { useBehind } from "./permit2/traces.ts";

/** Reads the protocol's `{x402Version, paymentPayload, paymentRequirements}`: strict on what moves money, blind to extra fields. */
export function readPayment(
  body: unknown,
  networks: readonly NetworkFacts[],
  { purpose = "verify", relayers = [] }: Partial<Omit<CheckContext, "networks">> = {},
): ReadPayment {
  const parts = splitPayload(body);
  if ("reason" in parts) return parts;
  const { scheme, network } = parts.requirements;
  // What another facilitator may serve is told by name, before its shape is judged by ours.
  const payer = (): Address | undefined => payerOf({ payload: parts.payload });
  const named = SCHEMES.filter(
    ({ name, versions }) => name === scheme && versions.includes(parts.version),
  );
  if (typeof scheme === "string" && named.length === 0)
    return refuse("unsupported_scheme", payer());
  const isElsewhere =
    typeof network === "string" &&
    parts.accepted["network"] === network &&
    !findServed(parts.version, network, networks);
  if (isElsewhere) return refuse("invalid_network", payer());
  // What is in the payload says how it pays; what the seller asked for says it where the payload is nobody's.
  const own = named.find((each) => each.recognizes(parts)) ?? named[0] ?? SCHEMES[0];
  return own.read(parts, { networks, purpose, relayers });
}
