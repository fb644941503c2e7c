/** The listings as payees: what one seller sells at one site is one payee. */
import { atomic } from "../../lib/money.ts";
import type { Listing } from "../../lib/wire.ts";

const compare = (one: bigint, other: bigint): number => (one < other ? -1 : Number(one > other));
const byPrice = (one: Listing, other: Listing): number =>
  compare(atomic(one.price), atomic(other.price));
const byCeiling = (one: Listing, other: Listing): number =>
  compare(atomic(one.maxPrice), atomic(other.maxPrice));

export function payeesOf(listings: readonly Listing[], network: string) {
  const sellers = new Map<string, Listing[]>();
  for (const listing of listings) {
    if (listing.network !== network) continue;
    const seller = `${listing.payTo} ${new URL(listing.url).origin}`;
    sellers.set(seller, [...(sellers.get(seller) ?? []), listing]);
  }
  return [...sellers.values()].map((sold) => {
    const cheapestFirst = sold.toSorted(byPrice);
    const [cheapest] = cheapestFirst as [Listing];
    const dearest = sold.toSorted(byCeiling).at(-1) as Listing;
    return {
      address: cheapest.payTo,
      site: new URL(cheapest.url).origin,
      names: cheapestFirst.map(({ thirdParty }) => thirdParty.name),
      lowest: cheapest.price,
      highest: dearest.maxPrice,
      isByUse: sold.some(({ maximum }) => maximum === true),
      uses: sold.reduce((sum, { uses }) => sum + uses, 0),
      isOwn: sold.every(({ source }) => source === "built-in"),
    };
  });
}

/** The cheapest listing that these payees cover. */
export const firstToBuy = (
  listings: readonly Listing[],
  payees: readonly { address: string; site?: string }[],
): Listing | undefined =>
  listings
    .filter(({ payTo, url }) =>
      payees.some(
        ({ address, site = "" }) =>
          address === payTo && (site === "" || site === new URL(url).origin),
      ),
    )
    .toSorted(byPrice)[0];
