import { queryOptions, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { NavLink } from "react-router";
import { BellIcon } from "../../components/icons.tsx";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Approval, Page } from "../../lib/wire.ts";
import styles from "./Approvals.module.css";

/** The open approval requests: few enough for one page. */
const openQuery = queryOptions({
  queryKey: keys.approvals("open"),
  queryFn: ({ signal }) =>
    api.get<Page<Approval>>("/api/approvals", { signal, query: { status: "open", limit: 100 } }),
  // For screens without an event stream, and for requests that expire.
  refetchInterval: 30_000,
});

/** In every page's header: the number of payments that wait for the owner. */
export function ApprovalsLink(): ReactNode {
  const count = useQuery(openQuery).data?.items.length ?? 0;
  return (
    <NavLink to="/approvals" className={styles.link} data-waiting={count > 0 || undefined}>
      <BellIcon />
      <span className={styles.word}>Approvals</span>
      <span role="status" className={count > 0 ? styles.count : "sr-only"}>
        {count > 0 ? count : ""}
        {count > 0 && <span className="sr-only"> waiting for you</span>}
      </span>
    </NavLink>
  );
}
