import type { ReactNode } from "react";
import { PageHeader } from "../components/PageHeader.tsx";
import { QueryStatus, type QueryStatusProps } from "../components/QueryStatus.tsx";
import { Skeleton } from "../components/Skeleton.tsx";
import { ApiError } from "../lib/api.ts";

interface AbsentProps {
  query: QueryStatusProps["query"];
  above: ReactNode;
  /** "the agent" */
  what: string;
  failed: string;
  missing: string;
  missingLead: string;
}

/** A page for an item that cannot be shown: it is loading, failed to load, or does not exist. */
export function Absent(props: AbsentProps): ReactNode {
  const { query, above, what, failed, missing, missingLead } = props;
  if (query.error instanceof ApiError && query.error.status === 404)
    return <PageHeader above={above} title={missing} lead={missingLead} />;
  return (
    <QueryStatus query={query} what={what} failed={failed}>
      <Skeleton shape="title" />
      <Skeleton shape="block" count={2} />
    </QueryStatus>
  );
}
