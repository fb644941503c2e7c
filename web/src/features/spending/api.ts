import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { SavedFilter, Spending, SpendingFilter } from "../../lib/wire.ts";

/** An empty text stands for no filter. */
export interface SpendingRange {
  from: string;
  to: string;
  search: string;
  agentId: string;
  payee: string;
  site: string;
  task: string;
}

export type SpendingBy = Spending["by"];

const read = (
  by: SpendingBy,
  range: SpendingRange,
  more: { limit: number; cursor?: string | undefined },
  signal: AbortSignal,
) => api.get<Spending>("/api/spending", { query: { by, ...range, ...more }, signal });

export const spendingQuery = (by: SpendingBy, range: SpendingRange) =>
  infiniteQueryOptions({
    queryKey: keys.spending(by, range),
    queryFn: ({ signal, pageParam }) => read(by, range, { limit: 5, cursor: pageParam }, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.nextCursor ?? undefined,
    placeholderData: keepPreviousData,
  });

export const dailyQuery = (range: SpendingRange) =>
  queryOptions({
    queryKey: keys.spending("daily", range),
    queryFn: ({ signal }) => read("day", range, { limit: 100 }, signal),
    placeholderData: keepPreviousData,
  });

export const filtersQuery = queryOptions({
  queryKey: keys.savedFilters,
  queryFn: ({ signal }) => api.get<{ items: SavedFilter[] }>("/api/spending/filters", { signal }),
});

export const saveFilter = (name: string, filter: SpendingFilter): Promise<SavedFilter> =>
  api.post("/api/spending/filters", { name, filter });

export const removeFilter = (id: string): Promise<unknown> =>
  api.delete(`/api/spending/filters/${id}`);

/** The browser saves the file itself, so that it may have any size. */
export const exportUrl = (
  file: "movements.csv" | "ledger.beancount",
  { from, to, agentId }: SpendingRange,
): string =>
  `/api/exports/${file}?${new URLSearchParams({ from, to, ...(agentId !== "" && { agentId }) }).toString()}`;
