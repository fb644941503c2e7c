/** The signed transactions of a lane in the database: which may still be mined, and whether a hash is ours. */
import type { Hex } from "viem";
import type { SchemeTerms } from "../../core/authorization.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { Inclusion, ItemAction, LaneKey, StoredTransaction } from "./lane-store.ts";

interface AttemptRecord {
  nonce: bigint;
  sent_block: bigint | null;
  mined_hash: Hex | null;
  block_number: bigint | null;
  block_hash: Hex | null;
  to_address: string;
  calldata: Buffer;
  gas_limit: bigint;
  hash: Hex;
  attempt: number;
  raw: Buffer;
  max_fee_wei: bigint;
  priority_fee_wei: bigint;
  purpose: "work" | "void";
  answer: string | null;
}

const hexOf = (buffer: Buffer): Hex => `0x${buffer.toString("hex")}`;

/**
 * Every transaction of the lane that is not final, with all its signed versions and its items: those that may
 * still be mined, and those whose block a reorganisation may remove.
 */
export async function pendingTransactions(sql: Sql, lane: LaneKey): Promise<StoredTransaction[]> {
  const { rows } = await sql.query<AttemptRecord>(
    `SELECT t.nonce, t.to_address, t.calldata, t.gas_limit, t.sent_block, t.mined_hash, t.block_number, t.block_hash,
            a.hash, a.attempt, a.raw, a.max_fee_wei, a.priority_fee_wei, a.purpose, a.answer
       FROM relayer_transactions t JOIN relayer_attempts a USING (chain_id, lane_address, nonce)
      WHERE t.chain_id = $1 AND t.lane_address = $2 AND t.status IN ('pending', 'included')
      ORDER BY t.nonce, a.attempt`,
    [lane.chainId, lane.address],
  );
  const { rows: itemRows } = await sql.query<{
    lane_nonce: bigint;
    action: ItemAction;
    from_address: string;
    asset: string;
    nonce: string;
    to_address: string;
    value: bigint;
    terms: SchemeTerms | null;
    traceparent: string | null;
  }>(
    `SELECT i.lane_nonce, i.action, i.from_address, i.asset, i.nonce, s.to_address, s.value, s.terms, s.traceparent
       FROM settlement_transactions i
       JOIN settlements s USING (from_address, chain_id, asset, nonce)
       JOIN relayer_transactions t ON t.chain_id = i.chain_id AND t.lane_address = i.lane_address AND t.nonce = i.lane_nonce
      WHERE t.chain_id = $1 AND t.lane_address = $2 AND t.status IN ('pending', 'included')
      ORDER BY i.lane_nonce, i.position`,
    [lane.chainId, lane.address],
  );
  const byNonce = new Map<bigint, StoredTransaction>();
  for (const row of rows) {
    const tx = byNonce.get(row.nonce) ?? {
      nonce: row.nonce,
      to: row.to_address,
      calldata: hexOf(row.calldata),
      gasLimit: row.gas_limit,
      attempts: [],
      items: [],
      sentBlock: row.sent_block ?? undefined,
      included: inclusionOf(row),
    };
    tx.attempts.push({
      hash: row.hash,
      attempt: row.attempt,
      purpose: row.purpose,
      answer: row.answer ?? undefined,
      raw: hexOf(row.raw),
      maxFeeWei: row.max_fee_wei,
      priorityFeeWei: row.priority_fee_wei,
    });
    byNonce.set(row.nonce, tx);
  }
  for (const row of itemRows) {
    byNonce.get(row.lane_nonce)?.items.push({
      action: row.action,
      from: row.from_address,
      asset: row.asset,
      nonce: row.nonce,
      to: row.to_address,
      value: row.value,
      terms: row.terms,
      traceparent: row.traceparent,
    });
  }
  return [...byNonce.values()];
}

const inclusionOf = (row: AttemptRecord): Inclusion | undefined =>
  row.mined_hash !== null && row.block_number !== null && row.block_hash !== null
    ? { hash: row.mined_hash, blockNumber: row.block_number, blockHash: row.block_hash }
    : undefined;

/**
 * Signed bytes of transactions that were in a block, from a nonce on: to be sent again after the chain lost
 * blocks.
 */
export async function finalRawFrom(
  sql: Sql,
  lane: LaneKey,
  nonce: bigint,
): Promise<Map<bigint, Hex>> {
  const { rows } = await sql.query<{ nonce: bigint; raw: Buffer }>(
    `SELECT t.nonce, a.raw FROM relayer_transactions t JOIN relayer_attempts a ON a.hash = t.mined_hash
      WHERE t.chain_id = $1 AND t.lane_address = $2 AND t.status IN ('included', 'mined', 'given_up') AND t.nonce >= $3
        AND a.raw <> ''
      ORDER BY t.nonce`,
    [lane.chainId, lane.address, String(nonce)],
  );
  return new Map(rows.map((row) => [row.nonce, hexOf(row.raw)]));
}

/** Hashes of every transaction of ours that carries this authorization, newest first. */
export async function attemptsCarrying(
  sql: Sql,
  chainId: number,
  key: { from: string; asset: string; nonce: string },
): Promise<Hex[]> {
  const { rows } = await sql.query<{ hash: Hex }>(
    `SELECT a.hash FROM settlement_transactions i
       JOIN relayer_attempts a ON a.chain_id = i.chain_id AND a.lane_address = i.lane_address AND a.nonce = i.lane_nonce
      WHERE i.from_address = $1 AND i.chain_id = $2 AND i.asset = $3 AND i.nonce = $4
      ORDER BY a.created_at DESC`,
    [key.from, chainId, key.asset, key.nonce],
  );
  return rows.map(({ hash }) => hash);
}

export async function isOurTransaction(sql: Sql, hash: string): Promise<boolean> {
  const { rows } = await sql.query("SELECT 1 FROM relayer_attempts WHERE hash = $1", [hash]);
  return rows.length === 1;
}
