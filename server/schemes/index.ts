/** The list of supported payment schemes. No other file lists them. */
import type { Address } from "viem";
import type { AuthorizationRef, SchemeTerms } from "../core/authorization.ts";
import { isRecord } from "../core/foreign-text.ts";
import type { NetworkFacts } from "../core/networks.ts";
import { allowance } from "./allowance/index.ts";
import { channelEip3009, channelPermit2 } from "./batch-settlement/deposit.ts";
import * as orders from "./batch-settlement/orders.ts";
import { channelScheme } from "./batch-settlement/paying.ts";
import { exactEip3009 } from "./exact-eip3009/index.ts";
import { exactPermit2 } from "./exact-permit2/index.ts";
import { unknown } from "./unknown.ts";
import { upto } from "./upto/index.ts";
import {
  findServed,
  payerOf,
  refuse,
  splitPayload,
  type CheckContext,
  type Facilitated,
  type ReadPayment,
  type Relaying,
  type Scheme,
} from "./scheme.ts";

/** Moves the token by a signature alone: used unless a seller requests another scheme. */
export { exactEip3009 as TOKEN_SCHEME } from "./exact-eip3009/index.ts";

/** What a wallet is asked to sign for it. */
export { TRANSFER_TYPES } from "./exact-eip3009/onchain.ts";

/** A contract's token allowance from a wallet: not a payment, and signed only for one. */
export {
  allowanceCall,
  allowanceOf,
  permitDigest,
  permitsCall,
  type AllowanceWanted,
} from "./allowance/index.ts";

/** The token's own events, whichever scheme moved it. */
export { AUTHORIZATION_CANCELED, AUTHORIZATION_USED, TRANSFER } from "./exact-eip3009/onchain.ts";

/** The first also reads payloads without a supported scheme, to report what is wrong with them. */
export const SCHEMES: readonly [Scheme, ...Scheme[]] = [exactEip3009, exactPermit2, upto];

/** By the terms stored with a payment; EIP-3009 payments have none. */
const BY_TERMS = { "exact-permit2": exactPermit2, upto };

/** One of each name, for the facilitator's announcement. */
export const ANNOUNCED_SCHEMES: readonly Scheme[] = SCHEMES.filter(
  ({ name }, index) => SCHEMES.findIndex((scheme) => scheme.name === name) === index,
);

/** If several schemes share the name, `extra` selects the transfer method; otherwise the first is used. */
export function findScheme(
  name: unknown,
  extra: unknown,
  protocol: "x402" | "mpp" = "x402",
): Scheme | undefined {
  // MPP's intent "charge" is an EIP-3009 authorization.
  if (protocol === "mpp") return name === "charge" ? exactEip3009 : undefined;
  const named = SCHEMES.filter((scheme) => scheme.name === name);
  const method = isRecord(extra) ? extra["assetTransferMethod"] : undefined;
  return named.find(({ transferMethod }) => transferMethod === method) ?? named[0];
}

/** Whether the amount that a seller requires is the most that it may charge. */
export const isMaximum = ({ scheme, extra }: { scheme?: unknown; extra?: unknown }): boolean =>
  scheme === channelScheme.name || findScheme(scheme, extra)?.isMetered === true;

/** The scheme of a payment that we sign or have stored. */
export function paymentSchemeOf({ terms }: Pick<AuthorizationRef, "terms">): Scheme {
  if (!terms) return exactEip3009;
  const scheme = (BY_TERMS as Partial<Record<string, Scheme>>)[terms.scheme];
  if (!scheme) throw new Error(`${terms.scheme} is no payment of a wallet`);
  return scheme;
}

const RELAYED: Readonly<Record<string, Relaying & Pick<Facilitated, "diagnosisCalls">>> = {
  ...BY_TERMS,
  allowance,
  "channel-eip3009": channelEip3009,
  "channel-permit2": channelPermit2,
  "channel-claim": orders.claim,
  "channel-settle": orders.settle,
  "channel-refund": orders.refund,
  "channel-withdraw": orders.withdraw,
} satisfies Record<SchemeTerms["scheme"], Relaying>;

/** The schemes of stored authorizations with terms that this release can relay. */
export const KNOWN_TERMS: readonly string[] = Object.keys(RELAYED);

/** How any signed authorization is relayed and proven: payments, allowances, and what is done with channels. */
export const schemeOf = ({
  terms,
}: AuthorizationRef): Relaying & Pick<Facilitated, "diagnosisCalls"> =>
  terms ? (RELAYED[terms.scheme] ?? unknown) : exactEip3009;

/** All contracts that take money from wallets by an allowance. */
export const SPENDERS: readonly Address[] = [
  ...new Set(SCHEMES.flatMap(({ spender }) => (spender === undefined ? [] : [spender]))),
];

export { useBehind } from "./permit2/traces.ts";

/**
 * Reads the protocol's `{x402Version, paymentPayload, paymentRequirements}`: strict for fields that move money;
 * ignores extra fields.
 */
export function readPayment(
  body: unknown,
  networks: readonly NetworkFacts[],
  { purpose = "verify", relayers = [] }: Partial<Omit<CheckContext, "networks">> = {},
): ReadPayment {
  const parts = splitPayload(body);
  if ("reason" in parts) return parts;
  const { scheme, network } = parts.requirements;
  // What only another facilitator may serve is reported by name, before the shape is checked.
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
  // Selected by the payload; if no scheme recognizes it, by the scheme that the seller requested.
  const own = named.find((each) => each.recognizes?.(parts)) ?? named[0] ?? SCHEMES[0];
  return own.read(parts, { networks, purpose, relayers });
}
