import type { Address, Hex } from "viem";
import { inTransaction, type Pool, type Sql } from "../../infra/db/pool.ts";

export interface CursorKey {
  chainId: number;
  asset: Address;
}

export interface Cursor {
  nextBlock: bigint;
  /** Of the last block read; another hash there now means the chain was rolled back. */
  lastHash: Hex | null;
}

/** The cursor, if this process may read for a while; undefined while another one does. */
export async function leaseCursor(
  sql: Sql,
  key: CursorKey,
  args: { owner: string; leaseSeconds: number; firstBlock: bigint },
): Promise<Cursor | undefined> {
  const id = [String(key.chainId), key.asset];
  await sql.query(
    `INSERT INTO incoming_cursors (chain_id, asset, next_block) VALUES ($1, $2, $3)
     ON CONFLICT DO NOTHING`,
    [...id, String(args.firstBlock)],
  );
  const { rows } = await sql.query<Cursor>(
    `UPDATE incoming_cursors
        SET lease_owner = $3, lease_until = clock_timestamp() + make_interval(secs => $4)
      WHERE chain_id = $1 AND asset = $2 AND (lease_owner = $3 OR lease_until < clock_timestamp())
      RETURNING next_block AS "nextBlock", last_hash AS "lastHash"`,
    [...id, args.owner, args.leaseSeconds],
  );
  return rows[0];
}

export async function releaseCursor(sql: Sql, key: CursorKey, owner: string): Promise<void> {
  await sql.query(
    `UPDATE incoming_cursors SET lease_until = clock_timestamp()
      WHERE chain_id = $1 AND asset = $2 AND lease_owner = $3`,
    [String(key.chainId), key.asset, owner],
  );
}

export interface IncomingRow {
  id: string;
  to: Address;
  from: Address;
  amountAtomic: bigint;
  txHash: Hex;
  logIndex: number;
  blockNumber: bigint;
  settledAt: Date;
}

/**
 * The transfers and the cursor move in one transaction, and only under the lease: nothing is missed
 * or told twice, whoever reads next. False when the lease was lost meanwhile.
 */
export async function storeIncoming(
  pool: Pool,
  key: CursorKey,
  args: { owner: string; rows: IncomingRow[]; nextBlock: bigint; lastHash: Hex | null },
): Promise<boolean> {
  const { rows } = args;
  return inTransaction(pool, async (sql) => {
    const moved = await sql.query(
      `UPDATE incoming_cursors SET next_block = $4, last_hash = $5, updated_at = now()
        WHERE chain_id = $1 AND asset = $2 AND lease_owner = $3 AND lease_until > clock_timestamp()`,
      [String(key.chainId), key.asset, args.owner, String(args.nextBlock), args.lastHash],
    );
    if (moved.rowCount !== 1) return false;
    if (rows.length === 0) return true;
    await sql.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, tx_hash,
                             log_index, block_number, settled_at)
       SELECT a.id, t.id, 'incoming', 'settled', $1, $2, t.from_address, t.amount, t.tx_hash, t.log_index,
              t.block_number, t.settled_at
         FROM unnest($3::text[], $4::text[], $5::text[], $6::numeric[], $7::text[], $8::int[], $9::bigint[],
                     $10::timestamptz[])
              AS t (id, to_address, from_address, amount, tx_hash, log_index, block_number, settled_at)
         JOIN agents a ON a.wallet_address = t.to_address
       ON CONFLICT (agent_id, chain_id, tx_hash, log_index) WHERE kind = 'incoming' DO NOTHING`,
      [
        String(key.chainId),
        key.asset,
        rows.map((row) => row.id),
        rows.map((row) => row.to),
        rows.map((row) => row.from),
        rows.map((row) => String(row.amountAtomic)),
        rows.map((row) => row.txHash),
        rows.map((row) => row.logIndex),
        rows.map((row) => String(row.blockNumber)),
        rows.map((row) => row.settledAt),
      ],
    );
    return true;
  });
}

/** Wallets made since, with a margin for rows whose transaction committed late. */
export async function walletsSince(
  sql: Sql,
  since: Date | undefined,
): Promise<{ wallets: Address[]; now: Date }> {
  const { rows } = await sql.query<{ wallet: Address | null; now: Date }>(
    `SELECT a.wallet_address AS wallet, n.now FROM (SELECT now() AS now) n
       LEFT JOIN agents a ON $1::timestamptz IS NULL OR a.created_at > $1::timestamptz - interval '10 minutes'`,
    [since ?? null],
  );
  return {
    wallets: rows.flatMap(({ wallet }) => (wallet === null ? [] : [wallet])),
    now: rows[0]?.now ?? new Date(0),
  };
}
