/** A listing's terms are pinned when it is made; whatever a seller asks later is held against them. */
import { formatAtomic } from "../../core/money.ts";

/** Addresses in lower case, network as CAIP-2 id. */
export interface Terms {
  host: string;
  payTo: string;
  asset: string;
  network: string;
  priceAtomic: bigint;
}

/** What a probe of a live endpoint found: the entry of its 402 that a wallet here could pay. */
export interface ProbedTerms extends Terms {
  x402Version: number;
  requirement: object;
  description: string | null;
  mimeType: string | null;
  sample: string | null;
}

export type PinnedTerms = Omit<Terms, "priceAtomic"> & { priceCeilingAtomic: bigint };

export type TermsVerdict = { kept: true } | { kept: false; reason: string };

/** A lower price than the ceiling is no change; everything else is. */
export function compareTerms(pinned: PinnedTerms, live: Terms): TermsVerdict {
  const changed = (reason: string): TermsVerdict => ({ kept: false, reason });
  if (live.host !== pinned.host)
    return changed(`The endpoint moved from ${pinned.host} to ${live.host}.`);
  if (live.network !== pinned.network)
    return changed(`It now asks for payment on ${live.network} instead of ${pinned.network}.`);
  if (live.asset.toLowerCase() !== pinned.asset) return changed("It now asks for another asset.");
  if (live.payTo.toLowerCase() !== pinned.payTo)
    return changed("It now asks to pay somebody else than the listing says.");
  if (live.priceAtomic > pinned.priceCeilingAtomic)
    return changed(
      `Its price rose to ${formatAtomic(live.priceAtomic)} USDC, above the listing's ${formatAtomic(pinned.priceCeilingAtomic)}.`,
    );
  return { kept: true };
}
