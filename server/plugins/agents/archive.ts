import { outstandingOf, updateAgent, type AgentRow } from "./store.ts";
import { revokeApiKeys } from "../auth/api-key-store.ts";
import { ApiError } from "../../errors.ts";
import { formatAtomic } from "../../core/money.ts";
import { changeAgent, ownAgent, type OwnerCall } from "./change.ts";

/** The wallet's USDC and the block it was read at; throws ApiError when the chain does not answer. */
export type ReadBalance = (
  agent: AgentRow,
) => Promise<{ chainId: number; blockNumber: bigint; atomic: bigint }>;

/**
 * Ends an agent: its keys are revoked and it can only be read. Refused while money is in its wallet,
 * or promised by it: an archived agent must not be able to lose or gain by itself.
 */
export async function archiveAgent(
  call: OwnerCall,
  agentId: string,
  readBalance: ReadBalance,
): Promise<AgentRow> {
  // Read before the row is locked: no reservation waits for an RPC.
  const seen = await ownAgent(call, agentId);
  if (seen.status === "archived") return seen;
  const balance = await readBalance(seen);
  return changeAgent(call, agentId, async (tx, agent, audit) => {
    const outstandingAtomic = await outstandingOf(tx, {
      agentId,
      chainId: balance.chainId,
      balanceBlock: balance.blockNumber,
    });
    if (balance.atomic > 0n || outstandingAtomic > 0n) {
      throw new ApiError("agent_has_funds", {
        detail:
          balance.atomic > 0n
            ? `The wallet still holds ${formatAtomic(balance.atomic)} USDC. Withdraw it first.`
            : `Payments of ${formatAtomic(outstandingAtomic)} USDC are not final yet. Try again in a moment.`,
        extra: {
          balance: formatAtomic(balance.atomic),
          outstanding: formatAtomic(outstandingAtomic),
        },
      });
    }
    const revoked = await revokeApiKeys(tx, agentId, undefined);
    const archived = await updateAgent(tx, agentId, { status: "archived" });
    await audit({
      action: "agent.archived",
      before: { status: agent.status },
      after: { status: "archived", revokedKeys: revoked.map(({ id }) => id) },
    });
    return archived;
  });
}
