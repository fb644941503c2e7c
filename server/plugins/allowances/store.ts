/** Stored allowances: the permits that a wallet has signed, and the open payments that use them. */
import { DatabaseError } from "pg";
import type { Address } from "viem";
import type { Sql } from "../../infra/db/pool.ts";
import type { Raise, WalletRef } from "./allowances.ts";

export async function newestRaise(
  sql: Sql,
  args: { agentId: string; chainId: number },
): Promise<Raise | undefined> {
  // SQL: on the payment path, by the partial index of allowances.
  const { rows } = await sql.query<Raise>({
    name: "newest-allowance",
    text: `SELECT id, status IN ('queued', 'submitted') AS "isOpen", block_number AS "blockNumber" FROM settlements
            WHERE agent_id = $1 AND chain_id = $2 AND kind = 'allowance' ORDER BY created_at DESC LIMIT 1`,
    values: [args.agentId, args.chainId],
  });
  return rows[0];
}

/**
 * A payment with a maximum counts with it while it is open. A payment that was too late for this block is too late for
 * all later ones.
 */
export async function promisedByAllowance(
  sql: Sql,
  args: { agentId: string; chainId: number; afterBlock: bigint; atSeconds: bigint },
): Promise<bigint> {
  // SQL: one snapshot of the open payments and of those that ended since the chain was read.
  const { rows } = await sql.query<{ sum: bigint }>({
    name: "promised-by-allowance",
    text: `SELECT coalesce((SELECT sum(o.amount) FROM payments o
                            WHERE o.agent_id = $1 AND o.chain_id = $2 AND o.outstanding AND o.nonce ^@ 'permit2:'
                              AND o.valid_before > $4), 0)
                + coalesce((SELECT sum(s.amount) FROM payments s
                            WHERE s.agent_id = $1 AND s.chain_id = $2 AND s.block_number > $3 AND s.status = 'settled'
                              AND s.kind <> 'incoming' AND s.nonce ^@ 'permit2:'), 0) AS sum`,
    values: [args.agentId, args.chainId, String(args.afterBlock), String(args.atSeconds)],
  });
  return rows[0]?.sum ?? 0n;
}

/** Wallets of recently archived agents that granted an allowance and have not revoked it. */
export async function archivedWithAllowance(
  sql: Sql,
): Promise<(WalletRef & { agentId: string; spender: Address })[]> {
  // SQL: the newest row of each wallet and contract.
  const { rows } = await sql.query<{
    agentId: string;
    from: Address;
    chainId: bigint;
    asset: Address;
    spender: Address;
  }>(
    `SELECT a.id AS "agentId", s.from_address AS "from", s.chain_id AS "chainId", s.asset,
            s.to_address AS spender
       FROM agents a, LATERAL (
         SELECT DISTINCT ON (o.chain_id, o.to_address) o.* FROM settlements o WHERE o.agent_id = a.id AND o.kind = 'allowance'
          ORDER BY o.chain_id, o.to_address, o.created_at DESC) AS s
      WHERE a.status = 'archived' AND a.archived_at > now() - interval '30 days'
        AND EXISTS (SELECT FROM owners w WHERE w.id = a.owner_id AND w.moved_to IS NULL)
        AND NOT (s.status = 'settled' AND s.value = 0)
      ORDER BY a.archived_at DESC`,
  );
  return rows.map((row) => ({ ...row, chainId: Number(row.chainId) }));
}

/** This wallet already has a permit in progress: the unique index allows one. */
export const isUnderWay = (error: unknown): boolean =>
  error instanceof DatabaseError && error.constraint === "settlements_one_allowance_idx";
