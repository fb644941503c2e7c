import { TextInput } from "@mantine/core";
import { useDebouncedValue, useInputState } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ChangeEvent, ReactNode } from "react";
import { SearchIcon } from "../../components/icons.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { agentsQuery } from "./api.ts";

const PAUSE_MS = 200;

/** The search starts when the user stops typing. */
export const useDebouncedSearch = (search: string): string =>
  useDebouncedValue(search.trim(), PAUSE_MS)[0];

interface AgentSearchProps {
  value: string;
  onChange: (event: ChangeEvent<HTMLInputElement>) => void;
}

export const AgentSearch = (props: AgentSearchProps): ReactNode => (
  <TextInput
    flex="1 1 220px"
    aria-label="Search agents by name or address"
    placeholder="Search by name or address"
    leftSection={<SearchIcon size={16} />}
    {...props}
  />
);

/** For the choice of one agent: the first page, and a search where there are more. */
export function useAgentChoice() {
  const [search, setSearch] = useInputState("");
  const query = useInfiniteQuery(agentsQuery({ search: useDebouncedSearch(search) }));
  const isLong = query.hasNextPage || search !== "";
  return {
    query,
    search: isLong && <AgentSearch value={search} onChange={setSearch} />,
    more: <LoadMore query={query} what="agents" />,
  };
}
