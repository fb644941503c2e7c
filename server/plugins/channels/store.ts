/** The channels module's database access. */
import type { Address, Hex } from "viem";
import type { Db } from "../../infra/db/prisma.ts";

/**
 * The claims and refunds of this receiver without an outcome, and the newest block with an order of its own of the last
 * minute: an endpoint may lag behind that one. Older blocks are not worth a read, and some nodes have forgotten their state.
 */
export async function ordersOf(
  db: Db,
  chainId: number,
  receiver: Address,
): Promise<{ open: string[]; newest: bigint | null }> {
  // SQL: Prisma has no condition that the index serves. A refund is stored under its payer.
  const rows = await db.$queryRaw<{ id: string; hasClaims: boolean; block: bigint | null }[]>`
    SELECT id, terms->'claims'->0 IS NOT NULL AS "hasClaims",
           CASE status WHEN 'settled' THEN block_number END AS block
      FROM settlements
     WHERE chain_id = ${chainId} AND coalesce(terms->'config'->>'receiver', from_address) = ${receiver}
       AND coalesce(settled_at, 'infinity'::timestamptz) > now() - interval '1 minute'
       AND terms->>'scheme' IN ('channel-claim', 'channel-settle', 'channel-refund')
       AND status IN ('queued', 'submitted', 'settled')
     ORDER BY block_number DESC NULLS LAST`;
  return {
    open: rows.flatMap(({ id, hasClaims, block }) => (block === null && hasClaims ? [id] : [])),
    newest: rows[0]?.block ?? null,
  };
}

/**
 * The newest block with a deposit of the last minute into each of these channels, as this service settled it: an endpoint
 * may lag behind that one.
 */
export async function newestDeposits(
  db: Db,
  chainId: number,
  channels: readonly { id: Hex; payer: Address }[],
): Promise<Map<string, bigint>> {
  const ids = channels.map(({ id }) => id);
  const payers = channels.map(({ payer }) => payer);
  // SQL: the channel is in the terms. The payer leads the key of the table.
  const rows = await db.$queryRaw<{ id: string; block: bigint }[]>`
    SELECT terms->>'channelId' AS id, max(block_number) AS block FROM settlements
     WHERE from_address = ANY(${payers}) AND chain_id = ${chainId} AND status = 'settled'
       AND settled_at > now() - interval '1 minute'
       AND terms->>'scheme' IN ('channel-eip3009', 'channel-permit2') AND terms->>'channelId' = ANY(${ids})
     GROUP BY 1`;
  return new Map(rows.map(({ id, block }) => [id, block]));
}

/** Whether this wallet is the merchant's. A contract account counts only on its own chain. */
export async function isMerchants(
  db: Db,
  { merchant, receiver, chainId }: { merchant: string; receiver: Address; chainId: number },
): Promise<boolean> {
  const found = await db.owner.count({
    where: { id: merchant, address: receiver, chainId: { in: [0n, BigInt(chainId)] } },
  });
  return found > 0;
}
