import { EmptyState, Group, NativeSelect, SegmentedControl, TextInput } from "@mantine/core";
import { type ReactNode, useMemo } from "react";
import { SearchIcon } from "../../components/icons.tsx";
import { FramedRows } from "../../components/List.tsx";
import { useParameter } from "../../lib/use-parameter.ts";
import type { Agent } from "../../lib/wire.ts";
import { AgentRow } from "./AgentRow.tsx";
import { SORT_OPTIONS, SORTS } from "./sorts.ts";

const STATUSES = [
  { value: "", label: "All" },
  { value: "active", label: "Active" },
  { value: "paused", label: "Paused" },
];

/** Search, filter and order are in the URL, so back and reload keep them. */
export function AgentList({ agents }: { agents: Agent[] }): ReactNode {
  const [search, setSearch] = useParameter("search");
  const [status, setStatus] = useParameter("status");
  const [sort, setSort] = useParameter("sort");
  const order = SORTS[sort as keyof typeof SORTS] ?? SORTS.recent;

  const shown = useMemo(() => {
    const needle = search.trim().toLowerCase();
    return agents
      .filter((agent) => status === "" || agent.status === status)
      .filter(
        (agent) =>
          needle === "" ||
          agent.name.toLowerCase().includes(needle) ||
          agent.walletAddress.toLowerCase() === needle,
      )
      .sort(order.compare);
  }, [agents, search, status, order]);

  return (
    <section aria-label="Agents">
      <Group gap="sm" mb="sm">
        <TextInput
          flex="1 1 220px"
          aria-label="Search agents by name or address"
          placeholder="Search by name or address"
          leftSection={<SearchIcon size={16} />}
          value={search}
          onChange={setSearch}
        />
        <SegmentedControl aria-label="Status" value={status} data={STATUSES} onChange={setStatus} />
        <NativeSelect aria-label="Sort by" value={sort} onChange={setSort} data={SORT_OPTIONS} />
      </Group>
      <p className="sr-only" role="status">
        {shown.length} of {agents.length} agents shown
      </p>
      {shown.length === 0 ? (
        <EmptyState title="No agent matches" description="Change the search or the filter." />
      ) : (
        <FramedRows>
          {shown.map((agent) => (
            <AgentRow key={agent.id} agent={agent} />
          ))}
        </FramedRows>
      )}
    </section>
  );
}
