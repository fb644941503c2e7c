import type { ReactNode } from "react";
import { ErrorNotice } from "./ErrorNotice.tsx";
import { Loading } from "./Skeleton.tsx";

export interface QueryStatusProps {
  query: { isPending: boolean; error: unknown; refetch: () => unknown };
  /** The screen reader's text while it loads: "Loading keys". */
  what: string;
  /** The title of the error. */
  failed?: string;
  /** Skeletons in the size of the content; without them only the error is shown. */
  children?: ReactNode;
}

/** Shown in place of a query's data: a placeholder while it loads, or the error with a retry button. */
export function QueryStatus({ query, what, failed, children }: QueryStatusProps): ReactNode {
  if (query.error !== null && query.error !== undefined)
    return <ErrorNotice title={failed} error={query.error} onRetry={() => void query.refetch()} />;
  return query.isPending && children !== undefined ? (
    <Loading label={what}>{children}</Loading>
  ) : null;
}
