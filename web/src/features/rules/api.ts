import { api } from "../../lib/api.ts";
import type { CreatedAgent } from "../../lib/wire.ts";

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

export interface RulesRequest {
  name?: string;
  dailyLimit?: string;
  perPaymentLimit?: string | null;
  expiresAt?: string | null;
}

export const changeRules = (agentId: string, request: RulesRequest): Promise<unknown> =>
  api.patch(`/api/agents/${agentId}`, request);

export const replaceAllowlist = (agentId: string, allowlist: AllowlistDraft[]): Promise<unknown> =>
  api.put(`/api/agents/${agentId}/allowlist`, { allowlist });

export const allowPayee = (agentId: string, payee: AllowlistDraft): Promise<unknown> =>
  api.post(`/api/agents/${agentId}/allowlist`, payee);
