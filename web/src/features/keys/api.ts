import { api } from "../../lib/api.ts";
import { keyRequest } from "../../lib/orders/requests.ts";
import { signed } from "../../lib/orders/signed.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Agent, ApiKey, CreatedKey } from "../../lib/wire.ts";

export const keysQuery = (agentId: string) =>
  pagedQuery<ApiKey>(keys.apiKeys(agentId), `/api/agents/${agentId}/keys`);

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
