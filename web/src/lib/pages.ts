import { type InfiniteData, infiniteQueryOptions, type QueryKey } from "@tanstack/react-query";
import { api, type RequestOptions } from "./api.ts";
import type { Page } from "./wire.ts";

const itemsOf = <T>({ pages }: InfiniteData<Page<T>>): T[] => pages.flatMap(({ items }) => items);

/** A list that the API returns in pages. Its data are the items of all loaded pages. */
export const pagedQuery = <T>(queryKey: QueryKey, path: string, query?: RequestOptions["query"]) =>
  infiniteQueryOptions({
    queryKey,
    queryFn: ({ signal, pageParam }) =>
      api.get<Page<T>>(path, { signal, query: { limit: 50, ...query, cursor: pageParam } }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.nextCursor ?? undefined,
    select: itemsOf<T>,
  });
