/** Allowances as rows: the permits a wallet has signed, and what is promised to the contracts that take by them. */
import type { Address } from "viem";
import { sqlState, type Sql } from "../../infra/db/pool.ts";
import type { Raise, WalletRef } from "./allowances.ts";

export async function newestRaise(sql: Sql, wallet: WalletRef): Promise<Raise | undefined> {
  // SQL: on the way of a payment, by the settlement queue's own table.
  const { rows } = await sql.query<Raise>({
    name: "newest-allowance",
    text: `SELECT id, status IN ('queued', 'submitted') AS "isOpen", block_number AS "blockNumber" FROM settlements
            WHERE from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce ^@ 'eip2612:'
            ORDER BY status IN ('queued', 'submitted') DESC, created_at DESC LIMIT 1`,
    values: [wallet.from.toLowerCase(), wallet.chainId, wallet.asset.toLowerCase()],
  });
  return rows[0];
}

/** A maximum counts as such as long as it is open. */
export async function promisedByAllowance(
  sql: Sql,
  args: { agentId: string; chainId: number; afterBlock: bigint },
): Promise<bigint> {
  // SQL: one snapshot of what is open and of what has ended since the chain was read.
  const { rows } = await sql.query<{ sum: bigint }>({
    name: "promised-by-allowance",
    text: `SELECT coalesce(sum(p.amount), 0) AS sum FROM payments p
            WHERE p.agent_id = $1 AND p.chain_id = $2 AND p.nonce ^@ 'permit2:'
              AND (p.outstanding OR (p.status = 'settled' AND p.block_number > $3))`,
    values: [args.agentId, args.chainId, String(args.afterBlock)],
  });
  return rows[0]?.sum ?? 0n;
}

/** Wallets of agents archived lately that gave an allowance and have not taken it back. */
export async function archivedWithAllowance(
  sql: Sql,
): Promise<(WalletRef & { agentId: string })[]> {
  // SQL: the newest row of each wallet.
  const { rows } = await sql.query<{
    agentId: string;
    from: Address;
    chainId: bigint;
    asset: Address;
  }>(
    `SELECT a.id AS "agentId", s.from_address AS "from", s.chain_id AS "chainId", s.asset
       FROM agents a, LATERAL (
         SELECT DISTINCT ON (o.chain_id) o.* FROM settlements o WHERE o.agent_id = a.id AND o.kind = 'allowance'
          ORDER BY o.chain_id, o.created_at DESC) AS s
      WHERE a.status = 'archived' AND a.archived_at > now() - interval '30 days'
        AND NOT (s.status = 'settled' AND s.value = 0)`,
  );
  return rows.map((row) => ({ ...row, chainId: Number(row.chainId) }));
}

const UNIQUE_VIOLATION = "23505";

/** This wallet has a permit under way already: refused by the index that allows one. */
export const isUnderWay = (error: unknown): boolean => sqlState(error) === UNIQUE_VIOLATION;
