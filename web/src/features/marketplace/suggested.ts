/** Listings that respond and were paid through this service. */
import { queryOptions, useQuery } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Listing } from "../../lib/wire.ts";
import { payeesOf } from "./seller-payees.ts";

export const suggestedQuery = queryOptions({
  queryKey: keys.suggestedListings,
  queryFn: ({ signal }) =>
    api.get<{ items: Listing[] }>("/api/listings/suggested", { signal }).then(({ items }) => items),
});

/** The sellers on this network; none if the marketplace cannot be read. Undefined while it loads. */
export function useSuggestedPayees(network: string | undefined) {
  const { data, isError } = useQuery(suggestedQuery);
  if (network === undefined || (data === undefined && !isError)) return undefined;
  return payeesOf(data ?? [], network);
}
