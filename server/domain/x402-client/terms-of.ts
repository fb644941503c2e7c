import type { Terms } from "../listings/terms.ts";
import type { ChosenTerms } from "./choose.ts";

/** What would be paid, in the words a listing pins. */
export const termsOf = (url: URL, chosen: ChosenTerms): Terms => ({
  host: url.host,
  payTo: chosen.payTo,
  asset: chosen.asset,
  network: chosen.network.id,
  priceAtomic: chosen.amountAtomic,
});
