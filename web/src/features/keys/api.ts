import { infiniteQueryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { ApiKey, CreatedKey, Page } from "../../lib/wire.ts";

export const keysQuery = (agentId: string) =>
  infiniteQueryOptions({
    queryKey: keys.apiKeys(agentId),
    queryFn: ({ signal, pageParam }) =>
      api.get<Page<ApiKey>>(`/api/agents/${agentId}/keys`, {
        signal,
        query: { limit: 50, cursor: pageParam },
      }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.nextCursor ?? undefined,
  });

export const createKey = (
  agentId: string,
  label: string,
  expiresAt?: string,
): Promise<CreatedKey> =>
  api.post(`/api/agents/${agentId}/keys`, {
    label,
    ...(expiresAt === undefined ? {} : { expiresAt }),
  });

export const rotateKey = (
  agentId: string,
  keyId: string,
  graceSeconds: number,
): Promise<CreatedKey> => api.post(`/api/agents/${agentId}/keys/${keyId}/rotate`, { graceSeconds });

export const revokeKey = (agentId: string, keyId: string): Promise<unknown> =>
  api.delete(`/api/agents/${agentId}/keys/${keyId}`);
