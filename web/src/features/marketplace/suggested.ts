/** The suggested listings as payees: what one seller sells at one site is one payee. */
import { queryOptions, useQuery } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { atomic } from "../../lib/money.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Listing } from "../../lib/wire.ts";

export const suggestedQuery = queryOptions({
  queryKey: keys.suggestedListings,
  queryFn: ({ signal }) =>
    api.get<{ items: Listing[] }>("/api/listings/suggested", { signal }).then(({ items }) => items),
});

const byPrice = (one: Listing, other: Listing): number =>
  atomic(one.price) < atomic(other.price) ? -1 : 1;
const byCeiling = (one: Listing, other: Listing): number =>
  atomic(one.maxPrice) < atomic(other.maxPrice) ? 1 : -1;

/** The sellers on this network; none if the marketplace cannot be read. Undefined while it loads. */
export function useSuggestedPayees(network: string | undefined) {
  const { data, isError } = useQuery(suggestedQuery);
  if (network === undefined || (data === undefined && !isError)) return undefined;
  return payeesOf(data ?? [], network);
}

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
    const [dearest] = sold.toSorted(byCeiling) as [Listing];
    return {
      address: cheapest.payTo,
      site: new URL(cheapest.url).origin,
      names: cheapestFirst.map(({ thirdParty }) => thirdParty.name),
      lowest: cheapest.price,
      highest: dearest.maxPrice,
      uses: sold.reduce((sum, { uses }) => sum + uses, 0),
      isOwn: sold.every(({ source }) => source === "built-in"),
    };
  });
}

/** The cheapest suggested listing that these payees cover. */
export const firstToBuy = (
  listings: readonly Listing[],
  payees: readonly { address: string; site: string }[],
): Listing | undefined =>
  listings
    .filter(({ payTo, url }) =>
      payees.some(
        ({ address, site }) => address === payTo && (site === "" || site === new URL(url).origin),
      ),
    )
    .toSorted(byPrice)[0];
