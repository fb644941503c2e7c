/**
 * Picks what to pay among the terms a seller accepts: the cheapest entry that is plain EIP-3009 of
 * our USDC on a configured network, to a payee that makes sense. A pure decision; guardrails come after.
 */
import type { Address } from "viem";
import { parseAddress } from "../../core/address.ts";
import { parseAtomic } from "../../core/money.ts";
import { type NetworkFacts, findNetwork } from "../../core/networks.ts";
import type { Terms } from "../listings/terms.ts";
import type { Offer, OfferedTerms } from "./offer.ts";

export interface ChosenTerms {
  network: NetworkFacts;
  /** Lower case, as everywhere in our tables. */
  asset: Address;
  payTo: Address;
  amountAtomic: bigint;
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

/** The longest a stranger may collect on an authorization of ours; unused by then, its budget returns. */
export const MAX_VALID_SECONDS = 120;

export function chooseTerms(offer: Offer, options: ChooseOptions): Choice {
  const candidates: ChosenTerms[] = [];
  const reasons: string[] = [];
  for (const terms of offer.accepts) {
    const judged = judge(terms, options);
    const reason = typeof judged === "string" ? judged : options.refuse?.(judged);
    if (reason !== undefined) reasons.push(reason);
    else if (typeof judged !== "string") candidates.push(judged);
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
function judge(terms: OfferedTerms, options: ChooseOptions): ChosenTerms | string {
  if (terms.scheme !== "exact") return `scheme ${shown(terms.scheme)} is not supported`;
  const network = findNetwork(terms.network, options.networks);
  if (!network) return `network ${shown(terms.network)} is not configured here`;
  const usdc = network.usdc.address.toLowerCase() as Address;
  if (terms.asset.toLowerCase() !== usdc) return `asset ${shown(terms.asset)} is not its USDC`;
  const extra = foreignMeaning(terms, network);
  if (extra !== undefined) return extra;
  const amountAtomic = parseAtomic(terms.amount);
  if (amountAtomic === undefined || amountAtomic === 0n)
    return `amount ${shown(terms.amount)} is not a positive number of atomic units`;
  const payTo = parseAddress(terms.payTo);
  if (!payTo.ok) return `payTo ${shown(terms.payTo)} ${payTo.reason}`;
  if (payTo.address === usdc) return "payTo is the token itself";
  if (payTo.address === options.wallet?.toLowerCase()) return "payTo is the paying wallet itself";
  const validForSeconds = Math.floor(Math.min(terms.maxTimeoutSeconds, MAX_VALID_SECONDS));
  if (!(validForSeconds >= 1))
    return `maxTimeoutSeconds ${terms.maxTimeoutSeconds} leaves no time to pay`;
  return { network, asset: usdc, payTo: payTo.address, amountAtomic, validForSeconds, terms };
}

/**
 * `extra` never changes what is signed; the domain is from our own table. But where it describes
 * another contract or another way to move the asset, the entry means something else than a plain
 * EIP-3009 transfer of this token (for example GatewayWalletBatched), and is not ours to sign.
 */
function foreignMeaning({ extra }: OfferedTerms, network: NetworkFacts): string | undefined {
  const { usdc, chainId } = network;
  const differs = (name: string, expected: string): boolean => {
    const given = extra[name];
    if (given === undefined || given === null) return false;
    return plainText(given)?.toLowerCase() !== expected.toLowerCase();
  };
  if (differs("name", usdc.name)) return `token name ${shown(extra["name"])} is not ${usdc.name}`;
  if (differs("version", usdc.version)) return `token version is not ${usdc.version}`;
  if (differs("verifyingContract", usdc.address)) return "verifyingContract is not the token";
  if (differs("chainId", String(chainId))) return "chainId is not the network's";
  if (differs("decimals", "6")) return "decimals are not those of USDC";
  if (differs("assetTransferMethod", "eip3009"))
    return `transfer method ${shown(extra["assetTransferMethod"])} is not supported`;
  return undefined;
}

/** Numbers and strings say the same thing here; an object says nothing we could compare. */
const plainText = (value: unknown): string | undefined =>
  typeof value === "string" || typeof value === "number" ? String(value) : undefined;

/** A stranger's text in a sentence of ours: short, and quoted. */
const shown = (value: unknown): string =>
  JSON.stringify((plainText(value) ?? typeof value).slice(0, 80));

/** What would be paid, in the words a listing pins. */
export const termsOf = (url: URL, chosen: ChosenTerms): Terms => ({
  host: url.host,
  payTo: chosen.payTo,
  asset: chosen.asset,
  network: chosen.network.id,
  priceAtomic: chosen.amountAtomic,
});
