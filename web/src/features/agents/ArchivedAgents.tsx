import { Group, Text } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link } from "react-router";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { agentsQuery } from "./api.ts";

/** Archived agents keep their history; they are loaded when the section is opened. */
export function ArchivedAgents(): ReactNode {
  const [isOpen, setOpen] = useState(false);
  const query = useInfiniteQuery({ ...agentsQuery({ archived: "true" }), enabled: isOpen });
  const { data, error, isFetching, refetch } = query;
  return (
    <details
      onToggle={(event) => {
        setOpen(event.currentTarget.open);
      }}
    >
      <summary>
        <Text span c="dimmed" size="sm">
          Archived agents
        </Text>
      </summary>
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {isFetching && !data && (
        <Loading label="archived agents">
          <Skeleton count={2} />
        </Loading>
      )}
      {data?.length === 0 && (
        <Text c="dimmed" size="sm">
          None.
        </Text>
      )}
      <ul>
        {data?.map((agent) => (
          <li key={agent.id}>
            <Group>
              <Link to={`/agents/${agent.id}`}>{agent.name}</Link>
              <Text span c="dimmed" size="sm">
                <TimeAgo label="archived" iso={agent.archivedAt} />
              </Text>
            </Group>
          </li>
        ))}
      </ul>
      <LoadMore query={query} what="archived agents" />
    </details>
  );
}
