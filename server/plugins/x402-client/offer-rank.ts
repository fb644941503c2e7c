/**
 * Ranks the payment terms that a seller accepts: those with a scheme we support, in USDC on a configured
 * network, to a valid payee, cheapest first.
 * A pure decision; policy and balance are checked afterwards (offer-choice.ts).
 */
import type { Address } from "viem";
import { parseAddress, quoted } from "../../core/foreign-text.ts";
import { parseAtomic } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";
import { findScheme } from "../../schemes/index.ts";
import type { Scheme } from "../../schemes/scheme.ts";
import type { Terms } from "../listings/index.ts";
import { MAX_VALID_SECONDS } from "../payments/agent-payments.ts";
import { CHALLENGE_FAULTS } from "./challenge.ts";
import type { Offer, OfferedTerms } from "./offer.ts";

export interface ChosenTerms {
  scheme: Scheme;
  network: NetworkFacts;
  /** Lower case, as in all our tables. */
  asset: Address;
  payTo: Address;
  amountAtomic: bigint;
  /** The amount is the most that may be charged (metered schemes); the actual charge depends on use. */
  isMaximum?: true;
  /** How long the authorization is valid: never longer than the seller requests or we allow. */
  validForSeconds: number;
  terms: OfferedTerms;
}

/** Why an offer is not paid, in our own words. */
export interface OfferRefusal {
  code: string;
  detail: string;
  /** The owner may approve this one payment. */
  approvable?: true;
}

/** A parsed entry: what would be paid for it, or why it cannot be paid. */
export interface ReadOffer {
  /** Its number in the seller's order, from 1. */
  place: number;
  terms: OfferedTerms;
  payable?: ChosenTerms;
  refused?: OfferRefusal;
  /** The same refusal, quoting the seller's text. */
  quoting?: string;
}

export type Candidate = ReadOffer & { payable: ChosenTerms };

export type Choice = { offers: ReadOffer[] } & (
  | { ok: true; chosen: ChosenTerms; ranked: readonly [Candidate, ...Candidate[]] }
  | { ok: false; reasons: string[] }
);

export interface ChooseOptions {
  networks: readonly NetworkFacts[];
  /** The agent's own wallet: an agent must not pay itself. */
  wallet: Address | undefined;
  /** Among equal prices, the agent's own network is preferred. */
  preferredNetwork: string | undefined;
  /**
   * Further conditions, for example the pinned terms of a listing: returns, in our own words, why an entry is
   * not acceptable.
   */
  refuse?: (chosen: ChosenTerms) => string | undefined;
}

/** Chooses the cheapest terms that can be paid; the guardrails have not decided yet. */
export function chooseTerms(offer: Offer, options: ChooseOptions): Choice {
  const offers = offer.accepts.map((terms, index): ReadOffer => {
    const read = readEntry(terms, options);
    const entry = { place: index + 1, terms };
    if ("code" in read) {
      const [detail, quoting] = [UNPAYABLE[read.code], read.quoting ?? UNPAYABLE[read.code]];
      return { ...entry, refused: { code: read.code, detail }, quoting };
    }
    const breach = options.refuse?.(read);
    if (breach === undefined) return { ...entry, payable: read };
    return { ...entry, refused: { code: "listing_mismatch", detail: breach }, quoting: breach };
  });
  const [first, ...others] = rank(offers.filter(isCandidate), options.preferredNetwork);
  return first
    ? { ok: true, offers, chosen: first.payable, ranked: [first, ...others] }
    : { ok: false, offers, reasons: offers.flatMap(({ quoting }) => quoting ?? []) };
}

const isCandidate = (offer: ReadOffer): offer is Candidate => offer.payable !== undefined;

/**
 * By price (a maximum counts in full), then the agent's own network, then payments that can be canceled, then
 * the seller's order.
 */
export const rank = (
  candidates: readonly Candidate[],
  preferredNetwork: string | undefined,
): Candidate[] => {
  const badness = ({ network, scheme }: ChosenTerms): number =>
    (network.id === preferredNetwork ? 0 : 2) + ("cancelDigest" in scheme ? 0 : 1);
  return [...candidates].sort(({ payable: left, place }, { payable: right, place: after }) => {
    if (left.amountAtomic !== right.amountAtomic)
      return left.amountAtomic < right.amountAtomic ? -1 : 1;
    return badness(left) - badness(right) || place - after;
  });
};

/** Reasons of the protocol for which an entry cannot be paid. */
const UNPAYABLE = {
  gateway_wallet_batched:
    "It is for Circle's Gateway (GatewayWalletBatched), which spends a deposit in Circle's contract. This wallet has no such deposit.",
  unsupported_scheme: "This wallet does not support its scheme.",
  unsupported_network: "This service does not support its network.",
  unsupported_asset: "Its asset is not the USDC of its network.",
  unsupported_terms: "Its `extra` describes something that this wallet does not sign.",
  amount_invalid: "Its amount is not a positive number of atomic units.",
  payee_invalid: "Its payTo is not an address that can receive payments.",
  time_invalid: "Its maxTimeoutSeconds leaves no time to pay.",
  ...CHALLENGE_FAULTS,
} as const;

interface Unpayable {
  code: keyof typeof UNPAYABLE;
  quoting?: string;
}

/** The EIP-712 name in Circle's Gateway terms, which use Circle's contract instead of the token. */
const GATEWAY = "GatewayWalletBatched";

/** Returns the parsed entry, or why it cannot be paid. */
function readEntry(terms: OfferedTerms, options: ChooseOptions): ChosenTerms | Unpayable {
  const no = (code: Unpayable["code"], quoting?: string): Unpayable => ({
    code,
    ...(quoting !== undefined && { quoting }),
  });
  if (terms.refused) return terms.refused;
  if (terms.extra["name"] === GATEWAY) return no("gateway_wallet_batched");
  const scheme = findScheme(terms.scheme, terms.extra, terms.protocol);
  if (!scheme) return no("unsupported_scheme", `scheme ${quoted(terms.scheme)} is not supported`);
  const network = findNetwork(terms.network, options.networks);
  if (!network)
    return no("unsupported_network", `network ${quoted(terms.network)} is not configured here`);
  const usdc = network.usdc.address.toLowerCase() as Address;
  if (terms.asset.toLowerCase() !== usdc)
    return no("unsupported_asset", `asset ${quoted(terms.asset)} is not its USDC`);
  const foreign = scheme.whyNotPayable(terms.extra, network);
  if (foreign !== undefined) return no("unsupported_terms", foreign);
  const amountAtomic = parseAtomic(terms.amount);
  if (amountAtomic === undefined || amountAtomic === 0n)
    return no(
      "amount_invalid",
      `amount ${quoted(terms.amount)} is not a positive number of atomic units`,
    );
  const payTo = parseAddress(terms.payTo);
  if (!payTo.ok) return no("payee_invalid", `payTo ${quoted(terms.payTo)} ${payTo.reason}`);
  if (payTo.address === usdc) return no("payee_invalid", "payTo is the token itself");
  if (payTo.address === options.wallet?.toLowerCase())
    return no("payee_invalid", "payTo is the paying wallet itself");
  const validForSeconds = Math.floor(Math.min(terms.maxTimeoutSeconds, MAX_VALID_SECONDS));
  if (!(validForSeconds >= 1))
    return no("time_invalid", `maxTimeoutSeconds ${terms.maxTimeoutSeconds} leaves no time to pay`);
  return {
    scheme,
    network,
    asset: usdc,
    payTo: payTo.address,
    amountAtomic,
    ...(scheme.isMetered && { isMaximum: true }),
    validForSeconds,
    terms,
  };
}

/** The fields of the chosen terms that a listing pins. */
export const termsOf = (url: URL, chosen: ChosenTerms): Terms => ({
  host: url.host,
  payTo: chosen.payTo,
  asset: chosen.asset,
  network: chosen.network.id,
  priceAtomic: chosen.amountAtomic,
});
