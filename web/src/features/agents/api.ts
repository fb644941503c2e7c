import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { policyRequest } from "../../lib/orders/requests.ts";
import { signed } from "../../lib/orders/signed.ts";
import { queryClient } from "../../lib/query-client.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Agent, Overview } from "../../lib/wire.ts";

/** An empty text stands for no filter. */
interface AgentFilter {
  search?: string;
  status?: string;
  archived?: "true";
}

/** An owner's agents, newest first. The server searches, so an owner of any number of agents sees the first page at once. */
export const agentsQuery = ({ search, status, archived }: AgentFilter = {}) => {
  const filter = { search: search || undefined, status: status || undefined, archived };
  return {
    ...pagedQuery<Agent>(keys.agents(filter), "/api/agents", filter),
    placeholderData: keepPreviousData,
  };
};

export const agentQuery = (id: string) =>
  queryOptions({
    queryKey: keys.agent(id),
    queryFn: ({ signal }) => api.get<Agent>(`/api/agents/${id}`, { signal }),
    // Transfers from outside arrive without an event.
    refetchInterval: 10_000,
  });

/** Reads the agent from the server, bypassing the cache, and updates the screens that show it. */
export const reloadAgent = (id: string): Promise<Agent> =>
  queryClient.fetchQuery({ ...agentQuery(id), staleTime: 0 });

/** Totals and series of all agents, or of one agent. */
export const overviewQuery = (agentId?: string) =>
  queryOptions({
    queryKey: keys.overview(agentId),
    queryFn: ({ signal }) => api.get<Overview>("/api/overview", { query: { agentId }, signal }),
    refetchInterval: 30_000,
  });

export const pause = (id: string): Promise<unknown> =>
  api.patch(`/api/agents/${id}`, { status: "paused" });

export const resume = (agent: Agent): Promise<unknown> =>
  signed(
    policyRequest({
      agent,
      title: `Resume ${agent.name}`,
      apply: (terms) => terms,
      otherChanges: [{ what: "Agent", before: "paused", after: "active" }],
    }),
    (signature) => api.patch(`/api/agents/${agent.id}`, { status: "active", ...signature }),
  );

export const archiveAgent = (id: string): Promise<unknown> => api.post(`/api/agents/${id}/archive`);
