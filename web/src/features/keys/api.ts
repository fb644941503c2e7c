import { infiniteQueryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keyRequest } from "../../lib/orders/requests.ts";
import { signed } from "../../lib/orders/signed.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Agent, ApiKey, CreatedKey, Page } from "../../lib/wire.ts";

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
  agent: Agent,
  label: string,
  expiresAt: string | null,
): Promise<CreatedKey> =>
  signed(keyRequest({ agent, title: "New API key", label, expiresAt }), (signature) =>
    api.post(`/api/agents/${agent.id}/keys`, { label, expiresAt, ...signature }),
  );

/** The new key has the label and the expiry of the old one. */
export const rotateKey = (
  agent: Agent,
  { id, label, expiresAt }: ApiKey,
  graceSeconds: number,
): Promise<CreatedKey> =>
  signed(keyRequest({ agent, title: "Rotate the key", label, expiresAt }), (signature) =>
    api.post(`/api/agents/${agent.id}/keys/${id}/rotate`, { graceSeconds, ...signature }),
  );

export const revokeKey = (agentId: string, keyId: string): Promise<unknown> =>
  api.delete(`/api/agents/${agentId}/keys/${keyId}`);
