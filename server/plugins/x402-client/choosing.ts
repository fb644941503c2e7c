/**
 * Picks what to pay among the terms a seller accepts: the cheapest entry of a scheme we speak, in
 * our USDC on a configured network, to a payee that makes sense. A pure decision; guardrails come after.
 */
import type { Address } from "viem";
import { parseAddress, quoted } from "../../core/foreign-text.ts";
import { parseAtomic } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";
import { findScheme } from "../../schemes/index.ts";
import type { Scheme } from "../../schemes/scheme.ts";
import type { Terms } from "../listings/index.ts";
import { MAX_VALID_SECONDS } from "../payments/agent-payments.ts";
import type { Offer, OfferedTerms } from "./offer.ts";

export interface ChosenTerms {
  scheme: Scheme;
  network: NetworkFacts;
  /** Lower case, as everywhere in our tables. */
  asset: Address;
  payTo: Address;
  amountAtomic: bigint;
  /** The amount is the most that may be charged; what was used is. */
  isMaximum?: true;
  /** How long the authorization may live: never longer than the seller asks, or than we allow. */
  validForSeconds: number;
  terms: OfferedTerms;
}

export type Choice = { ok: true; chosen: ChosenTerms } | { ok: false; reasons: string[] };

export interface ChooseOptions {
  networks: readonly NetworkFacts[];
  /** The agent's own wallet: paying oneself is never what a seller honestly asks. */
  wallet: Address | undefined;
  /** Among equal prices the agent's own network wins. */
  preferredNetwork: string | undefined;
  /** Further conditions, for example the pins of a listing: answers why an entry is not acceptable. */
  refuse?: (chosen: ChosenTerms) => string | undefined;
}

export function chooseTerms(offer: Offer, options: ChooseOptions): Choice {
  const candidates: ChosenTerms[] = [];
  const reasons: string[] = [];
  for (const terms of offer.accepts) {
    const read = readEntry(terms, options);
    const reason = typeof read === "string" ? read : options.refuse?.(read);
    if (reason !== undefined) reasons.push(reason);
    else if (typeof read !== "string") candidates.push(read);
  }
  const rank = ({ network }: ChosenTerms): number =>
    network.id === options.preferredNetwork ? 0 : 1;
  const [chosen] = candidates.sort((left, right) =>
    left.amountAtomic === right.amountAtomic
      ? rank(left) - rank(right)
      : left.amountAtomic < right.amountAtomic
        ? -1
        : 1,
  );
  return chosen ? { ok: true, chosen } : { ok: false, reasons };
}

/** The entry in our types, or the sentence that says why it cannot be paid. */
function readEntry(terms: OfferedTerms, options: ChooseOptions): ChosenTerms | string {
  if (terms.refused !== undefined) return terms.refused;
  const scheme = findScheme(terms.scheme, terms.extra, terms.protocol);
  if (!scheme) return `scheme ${quoted(terms.scheme)} is not supported`;
  const network = findNetwork(terms.network, options.networks);
  if (!network) return `network ${quoted(terms.network)} is not configured here`;
  const usdc = network.usdc.address.toLowerCase() as Address;
  if (terms.asset.toLowerCase() !== usdc) return `asset ${quoted(terms.asset)} is not its USDC`;
  const foreign = scheme.whyNotPayable(terms.extra, network);
  if (foreign !== undefined) return foreign;
  const amountAtomic = parseAtomic(terms.amount);
  if (amountAtomic === undefined || amountAtomic === 0n)
    return `amount ${quoted(terms.amount)} is not a positive number of atomic units`;
  const payTo = parseAddress(terms.payTo);
  if (!payTo.ok) return `payTo ${quoted(terms.payTo)} ${payTo.reason}`;
  if (payTo.address === usdc) return "payTo is the token itself";
  if (payTo.address === options.wallet?.toLowerCase()) return "payTo is the paying wallet itself";
  const validForSeconds = Math.floor(Math.min(terms.maxTimeoutSeconds, MAX_VALID_SECONDS));
  if (!(validForSeconds >= 1))
    return `maxTimeoutSeconds ${terms.maxTimeoutSeconds} leaves no time to pay`;
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

/** What would be paid, in the words a listing pins. */
export const termsOf = (url: URL, chosen: ChosenTerms): Terms => ({
  host: url.host,
  payTo: chosen.payTo,
  asset: chosen.asset,
  network: chosen.network.id,
  priceAtomic: chosen.amountAtomic,
});
