import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link } from "react-router";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Row } from "../../components/Layout.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { agentsQuery } from "./api.ts";

/** Archived agents keep their history; they are loaded when the section is opened. */
export function ArchivedAgents(): ReactNode {
  const [isOpen, setOpen] = useState(false);
  const { data, error, isFetching, refetch } = useQuery({ ...agentsQuery(true), enabled: isOpen });
  return (
    <details
      onToggle={(event) => {
        setOpen(event.currentTarget.open);
      }}
    >
      <summary>
        <Muted>Archived agents</Muted>
      </summary>
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {isFetching && !data && (
        <Loading label="archived agents">
          <Skeleton count={2} />
        </Loading>
      )}
      {data?.length === 0 && (
        <p>
          <Muted>None.</Muted>
        </p>
      )}
      <ul>
        {data?.map((agent) => (
          <li key={agent.id}>
            <Row>
              <Link to={`/agents/${agent.id}`}>{agent.name}</Link>
              <Muted>
                {agent.archivedAt !== null && (
                  <>
                    archived <TimeAgo iso={agent.archivedAt} />
                  </>
                )}
              </Muted>
            </Row>
          </li>
        ))}
      </ul>
    </details>
  );
}
