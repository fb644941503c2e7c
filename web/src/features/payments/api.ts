import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, send } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { FetchEntry, Page, Payment } from "../../lib/wire.ts";

export interface PaymentFilter {
  status?: string;
  kind?: string;
  /** ISO times. */
  from?: string;
  to?: string;
}

const PAGE_SIZE = 50;

export const paymentsQuery = (agentId: string, filter: PaymentFilter) =>
  infiniteQueryOptions({
    queryKey: keys.payments(agentId, filter),
    queryFn: ({ signal, pageParam }) =>
      api.get<Page<Payment>>(`/api/agents/${agentId}/payments`, {
        signal,
        query: { ...filter, limit: PAGE_SIZE, cursor: pageParam },
      }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.nextCursor ?? undefined,
    // Events keep it up to date; reading every loaded page again on each focus would not scale.
    staleTime: 60_000,
    refetchOnWindowFocus: false,
  });

export const paymentQuery = (agentId: string, paymentId: string) =>
  queryOptions({
    queryKey: keys.payment(agentId, paymentId),
    queryFn: ({ signal }) =>
      api.get<Payment>(`/api/agents/${agentId}/payments/${paymentId}`, { signal }),
    staleTime: 60_000,
  });

/** The agent's newest fetches, including free ones. */
export const fetchesQuery = (agentId: string) =>
  queryOptions({
    queryKey: keys.fetches(agentId),
    queryFn: ({ signal }) =>
      api.get<Page<FetchEntry>>(`/api/agents/${agentId}/fetches`, {
        signal,
        query: { limit: 100 },
      }),
    staleTime: 10_000,
  });

export async function downloadPayments(agentId: string, filter: PaymentFilter): Promise<Blob> {
  const response = await send("GET", `/api/agents/${agentId}/payments`, {
    accept: "text/csv",
    query: { ...filter },
  });
  return response.blob();
}
