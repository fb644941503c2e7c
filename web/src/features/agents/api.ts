import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import type { Agent, CreatedAgent, FetchAnswer, Overview, Page } from "../../lib/wire.ts";

/** All of an owner's agents: searched and sorted here, so the pages are put together first. */
async function fetchAllAgents(archived: boolean, signal: AbortSignal): Promise<Agent[]> {
  const agents: Agent[] = [];
  let cursor: string | undefined;
  do {
    const page = await api.get<Page<Agent>>("/api/agents", {
      query: { limit: 100, cursor, archived: archived ? "true" : undefined },
      signal,
    });
    agents.push(...page.items);
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
  return agents;
}

export const agentsQuery = (archived = false) =>
  queryOptions({
    queryKey: ["agents", archived ? "archived" : "live"],
    queryFn: ({ signal }) => fetchAllAgents(archived, signal),
  });

export const agentQuery = (id: string) =>
  queryOptions({
    queryKey: ["agent", id],
    queryFn: ({ signal }) => api.get<Agent>(`/api/agents/${id}`, { signal }),
    // Money may also arrive from outside; the chain sends no event for that.
    refetchInterval: 10_000,
  });

/** Totals and series of all agents, or of one. */
export const overviewQuery = (agentId?: string) =>
  queryOptions({
    queryKey: ["overview", agentId ?? "all"],
    queryFn: ({ signal }) => api.get<Overview>("/api/overview", { query: { agentId }, signal }),
    refetchInterval: 30_000,
  });

export interface AllowlistDraft {
  address: string;
  label: string;
}

export interface NewAgent {
  name: string;
  dailyLimit: string;
  perPaymentLimit?: string;
  expiresAt?: string;
  allowlist: AllowlistDraft[];
}

export const createAgent = (agent: NewAgent): Promise<CreatedAgent> =>
  api.post("/api/agents", agent);

export interface AgentChanges {
  name?: string;
  dailyLimit?: string;
  perPaymentLimit?: string | null;
  expiresAt?: string | null;
  status?: "active" | "paused";
}

export const updateAgent = (id: string, changes: AgentChanges): Promise<unknown> =>
  api.patch(`/api/agents/${id}`, changes);

export const replaceAllowlist = (id: string, allowlist: AllowlistDraft[]): Promise<unknown> =>
  api.put(`/api/agents/${id}/allowlist`, { allowlist });

export const allowPayee = (id: string, address: string, label: string): Promise<unknown> =>
  api.post(`/api/agents/${id}/allowlist`, { address, label });

export const archiveAgent = (id: string): Promise<unknown> => api.post(`/api/agents/${id}/archive`);

export interface Trial {
  listingId: string;
  dryRun?: boolean;
  maxAmount?: string;
}

/** What the agent's own x402-fetch would answer, asked by its owner; the same guardrails rule. */
export const tryListing = (
  id: string,
  trial: Trial,
  idempotencyKey: string,
): Promise<FetchAnswer> => api.post(`/api/agents/${id}/try`, trial, { idempotencyKey });
