import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { approvalRequest } from "../../lib/orders/requests.ts";
import { signed } from "../../lib/orders/signed.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Approval, Page } from "../../lib/wire.ts";

const path = (id: string): string => `/api/approvals/${encodeURIComponent(id)}`;

export const approvalsQuery = infiniteQueryOptions({
  queryKey: keys.approvals("all"),
  queryFn: ({ signal, pageParam }) =>
    api.get<Page<Approval>>("/api/approvals", {
      signal,
      query: { limit: 50, cursor: pageParam },
    }),
  initialPageParam: undefined as string | undefined,
  getNextPageParam: (page) => page.nextCursor ?? undefined,
});

export const approvalQuery = (id: string) =>
  queryOptions({
    queryKey: keys.approval(id),
    queryFn: ({ signal }) => api.get<Approval>(path(id), { signal }),
  });

export const approve = (approval: Approval): Promise<Approval> =>
  signed(approvalRequest(approval), (signature) =>
    api.post<Approval>(`${path(approval.id)}/approve`, { ...signature }),
  );

export const decline = (id: string): Promise<Approval> => api.post<Approval>(`${path(id)}/decline`);
