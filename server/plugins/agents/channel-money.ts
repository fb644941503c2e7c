/** What lies in an agent's payment channels, which are not part of its wallet's balance. */
import { atomicOf, type Db, type Prisma } from "../../infra/db/prisma.ts";

export interface ChannelMoney {
  chainId: number;
  channels: number;
  /** Of those, used for payments, and the longest time until their money is back. */
  open: number;
  longestDelaySeconds: number;
  /** In escrow. */
  balanceAtomic: bigint;
  /** Of that, beyond what is signed for: it comes back after closing. */
  heldAtomic: bigint;
}

/** For each chain, of channels that are not closed and have money. */
export async function readChannelMoney(db: Db, agentId: string): Promise<ChannelMoney[]> {
  // SQL: calls the function that also decides deposits.
  const rows = await db.$queryRaw<
    {
      chainId: bigint;
      channels: number;
      open: number;
      longestDelay: number;
      balance: Prisma.Decimal;
      held: Prisma.Decimal;
    }[]
  >`
    SELECT c.chain_id AS "chainId", count(*)::int AS channels, sum(b.balance) AS balance,
           (count(*) FILTER (WHERE c.status = 'open'))::int AS open, max(c.withdraw_delay) AS "longestDelay",
           sum(GREATEST(b.balance - c.ceiling, 0)) AS held
      FROM channels c CROSS JOIN LATERAL purser_channel_balance(c) AS b (balance)
     WHERE c.agent_id = ${agentId} AND c.status <> 'closed' AND b.balance > 0
     GROUP BY c.chain_id ORDER BY c.chain_id`;
  return rows.map(({ chainId, channels, open, longestDelay, balance, held }) => ({
    chainId: Number(chainId),
    channels,
    open,
    longestDelaySeconds: longestDelay,
    balanceAtomic: atomicOf(balance),
    heldAtomic: atomicOf(held),
  }));
}
