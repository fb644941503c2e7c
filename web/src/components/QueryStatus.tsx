import type { ReactNode } from "react";
import { ErrorNotice } from "./ErrorNotice.tsx";
import { Loading } from "./Skeleton.tsx";

interface QueryStatusProps {
  query: { isPending: boolean; error: unknown; refetch: () => unknown };
  /** What the screen reader hears while it loads: "Loading keys". */
  what: string;
  /** Heads the error. */
  failed?: string;
  /** Skeletons in the size of what is awaited. */
  children: ReactNode;
}

/** Stands where an answer is to come: holds its place, or says why there is none and tries again. */
export function QueryStatus({ query, what, failed, children }: QueryStatusProps): ReactNode {
  if (query.error !== null && query.error !== undefined)
    return <ErrorNotice title={failed} error={query.error} onRetry={() => void query.refetch()} />;
  return query.isPending ? <Loading label={what}>{children}</Loading> : null;
}
