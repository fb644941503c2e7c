import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { approvalRequest } from "../../lib/orders/requests.ts";
import { signed } from "../../lib/orders/signed.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Approval } from "../../lib/wire.ts";

const path = (id: string): string => `/api/approvals/${encodeURIComponent(id)}`;

export const approvalsQuery = pagedQuery<Approval>(keys.approvals("all"), "/api/approvals");

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
