import { EmptyState, Group, NativeSelect, SegmentedControl } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo } from "react";
import { List } from "../../components/List.tsx";
import { plural } from "../../lib/plural.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import { AgentRow } from "./AgentRow.tsx";
import { AgentSearch, useDebouncedSearch } from "./AgentSearch.tsx";
import { agentsQuery } from "./api.ts";
import { SORT_OPTIONS, SORTS } from "./sorts.ts";

const STATUSES = [
  { value: "", label: "All" },
  { value: "active", label: "Active" },
  { value: "paused", label: "Paused" },
];

/** Search, filter and order are in the URL, so back and reload keep them. */
export function AgentList(): ReactNode {
  const [search, setSearch] = useParameter("search");
  const [status, setStatus] = useParameter("status");
  const [sort, setSort] = useParameter("sort");
  const query = useInfiniteQuery(agentsQuery({ search: useDebouncedSearch(search), status }));
  const { data, hasNextPage } = query;
  // A part of the list cannot be sorted: until all agents are loaded, the newest are first.
  const order = hasNextPage ? SORTS.created : (SORTS[sort as keyof typeof SORTS] ?? SORTS.recent);
  const agents = useMemo(() => data?.toSorted(order.compare), [data, order]);
  return (
    <section aria-label="Agents">
      <Group gap="sm" mb="sm">
        <AgentSearch value={search} onChange={setSearch} />
        <SegmentedControl aria-label="Status" value={status} data={STATUSES} onChange={setStatus} />
        {!hasNextPage && (
          <NativeSelect aria-label="Sort by" value={sort} onChange={setSort} data={SORT_OPTIONS} />
        )}
      </Group>
      <p className="sr-only" role="status">
        {agents &&
          `${plural(agents.length, "agent")} shown${hasNextPage ? ", and there are more" : ""}`}
      </p>
      <List
        isFramed
        query={{ ...query, data: agents }}
        what="agents"
        failed="Agents could not be loaded"
        empty={
          <EmptyState title="No agent matches" description="Change the search or the filter." />
        }
      >
        {(agent) => <AgentRow key={agent.id} agent={agent} />}
      </List>
    </section>
  );
}
