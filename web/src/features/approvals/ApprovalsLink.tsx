import { queryOptions, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { CountLink } from "../../components/CountLink.tsx";
import { ApprovalIcon } from "../../components/icons.tsx";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Approval, Page } from "../../lib/wire.ts";

/** The open approval requests: few enough for one page. */
const openQuery = queryOptions({
  queryKey: keys.approvals("open"),
  queryFn: ({ signal }) =>
    api.get<Page<Approval>>("/api/approvals", { signal, query: { status: "open", limit: 100 } }),
  // For screens without an event stream, and for requests that expire.
  refetchInterval: 30_000,
});

export function ApprovalsLink(): ReactNode {
  const count = useQuery(openQuery).data?.items.length ?? 0;
  return (
    <CountLink
      to="/approvals"
      icon={<ApprovalIcon />}
      label="Approvals"
      count={count}
      what="waiting for you"
    />
  );
}
