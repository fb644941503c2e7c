import { api } from "../../lib/api.ts";
import type { PreparedWithdrawal, WithdrawalAnswer, WithdrawalOrder } from "../../lib/wire.ts";

export const prepareWithdrawal = (
  agentId: string,
  request: { amount: string; network: string; to: string | undefined },
): Promise<PreparedWithdrawal> => api.post(`/api/agents/${agentId}/withdrawals/prepare`, request);

/** The key belongs to the signed order: repeating the request with it can never move the money twice. */
export const executeWithdrawal = (
  agentId: string,
  order: WithdrawalOrder,
  signature: string,
  idempotencyKey: string,
): Promise<WithdrawalAnswer> =>
  api.post(`/api/agents/${agentId}/withdrawals`, { order, signature }, { idempotencyKey });
