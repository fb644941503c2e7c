import { TextInput } from "@mantine/core";
import { type ReactNode, useMemo } from "react";
import { EmptyState } from "../../components/EmptyState.tsx";
import { SearchIcon } from "../../components/icons.tsx";
import { Segmented } from "../../components/Segmented.tsx";
import { Select } from "../../components/Select.tsx";
import { useParameter } from "../../lib/use-parameter.ts";
import type { Agent } from "../../lib/wire.ts";
import styles from "./AgentList.module.css";
import { AgentRow } from "./AgentRow.tsx";
import { SORT_OPTIONS, SORTS } from "./sorts.ts";

const STATUSES = [
  { value: "", label: "All" },
  { value: "active", label: "Active" },
  { value: "paused", label: "Paused" },
] as const;

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
      <div className={styles.tools}>
        <TextInput
          className={styles.search}
          aria-label="Search agents by name or address"
          placeholder="Search by name or address"
          leftSection={<SearchIcon size={16} />}
          value={search}
          onChange={(event) => {
            setSearch(event.currentTarget.value);
          }}
        />
        <Segmented label="Status" value={status} options={STATUSES} onChange={setStatus} />
        <Select
          label="Sort by"
          isLabelHidden
          value={sort}
          onChange={setSort}
          options={SORT_OPTIONS}
        />
      </div>
      <p className="sr-only" role="status">
        {shown.length} of {agents.length} agents shown
      </p>
      {shown.length === 0 ? (
        <EmptyState title="No agent matches">Change the search or the filter.</EmptyState>
      ) : (
        <ul className={styles.list}>
          {shown.map((agent) => (
            <AgentRow key={agent.id} agent={agent} />
          ))}
        </ul>
      )}
    </section>
  );
}
