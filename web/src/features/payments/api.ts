import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, send } from "../../lib/api.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import type { FetchEntry, Page, Payment } from "../../lib/wire.ts";

export interface PaymentFilter {
  status?: string;
  kind?: string;
  /** ISO times. */
  from?: string;
  to?: string;
}

export const paymentsQuery = (agentId: string, filter: PaymentFilter) => ({
  ...pagedQuery<Payment>(keys.payments(agentId, filter), `/api/agents/${agentId}/payments`, {
    ...filter,
  }),
  // Events keep it up to date; reading every loaded page again on each focus would not scale.
  staleTime: 60_000,
  refetchOnWindowFocus: false,
});

/** An empty text stands for no filter. */
export interface PaymentSearch {
  from: string;
  to: string;
  search: string;
  agentId: string;
  payee: string;
  site: string;
  task: string;
}

/** Across the owner's agents. */
export const foundPaymentsQuery = (search: PaymentSearch) => ({
  ...pagedQuery<Payment>(keys.foundPayments(search), "/api/payments", { limit: 25, ...search }),
  placeholderData: keepPreviousData,
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
