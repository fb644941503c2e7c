import { api } from "../../lib/api.ts";
import type { AgentChanges, CreatedAgent, NewAgent } from "../../lib/wire.ts";

export interface AllowlistDraft {
  address: string;
  label: string;
}

export const createAgent = (agent: NewAgent): Promise<CreatedAgent> =>
  api.post("/api/agents", agent);

export const changeRules = (agentId: string, changes: AgentChanges): Promise<unknown> =>
  api.patch(`/api/agents/${agentId}`, changes);

export const replaceAllowlist = (agentId: string, allowlist: AllowlistDraft[]): Promise<unknown> =>
  api.put(`/api/agents/${agentId}/allowlist`, { allowlist });

export const allowPayee = (agentId: string, payee: AllowlistDraft): Promise<unknown> =>
  api.post(`/api/agents/${agentId}/allowlist`, payee);
