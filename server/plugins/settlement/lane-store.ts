/**
 * Lanes as rows: the lease of a relayer key, the work claimed under it, and every transaction it signed.
 * Each write names the lease's owner and epoch and holds only while the lease does (the database's clock).
 */
import type { Hex } from "viem";
import type { Sql } from "../../infra/db/pool.ts";
import type { ExpectedTransfer } from "../../schemes/scheme.ts";
import { NOTHING_TOLD, type ProvenOutcome, type SettlementRecord, type Told } from "./store.ts";

export interface LaneKey {
  chainId: number;
  address: string;
}

export interface Lease extends LaneKey {
  owner: string;
  epoch: bigint;
}

export type ItemAction = "transfer" | "cancel";

export interface StoredAttempt {
  hash: Hex;
  attempt: number;
  raw: Hex;
  maxFeeWei: bigint;
  priorityFeeWei: bigint;
}

export interface StoredTransaction {
  nonce: bigint;
  to: string;
  calldata: Hex;
  gasLimit: bigint;
  attempts: StoredAttempt[];
  items: CarriedItem[];
  /** The head when it was signed: it is in no block at or before that. Unknown for very old ones. */
  sentBlock: bigint | undefined;
  /** The block it is in, while a reorganisation may still take that back. */
  included: Inclusion | undefined;
}

export interface Inclusion {
  hash: Hex;
  blockNumber: bigint;
  blockHash: Hex;
}

/** One authorization a transaction carries, with what must move for it to count as paid. */
export interface CarriedItem extends ExpectedTransfer {
  action: ItemAction;
}

export async function acquireLease(
  sql: Sql,
  lane: LaneKey,
  owner: string,
  leaseMs: number,
): Promise<{ epoch: bigint; nextNonce: bigint } | undefined> {
  const { rows } = await sql.query<{ epoch: bigint; nonce: bigint }>(
    "SELECT * FROM purser_lane_acquire($1, $2, $3, $4)",
    [lane.chainId, lane.address, owner, leaseMs],
  );
  return rows[0] && { epoch: rows[0].epoch, nextNonce: rows[0].nonce };
}

export async function renewLease(sql: Sql, lease: Lease, leaseMs: number): Promise<boolean> {
  const { rowCount } = await sql.query(
    `UPDATE relayer_lanes SET lease_until = clock_timestamp() + $5 * interval '1 millisecond'
      WHERE chain_id = $1 AND address = $2 AND lease_owner = $3 AND lease_epoch = $4
        AND lease_until > clock_timestamp()`,
    [lease.chainId, lease.address, lease.owner, String(lease.epoch), leaseMs],
  );
  return rowCount === 1;
}

export async function releaseLease(sql: Sql, lease: Lease): Promise<void> {
  await sql.query(
    `UPDATE relayer_lanes SET lease_until = '-infinity', lease_owner = NULL
      WHERE chain_id = $1 AND address = $2 AND lease_owner = $3 AND lease_epoch = $4`,
    [lease.chainId, lease.address, lease.owner, String(lease.epoch)],
  );
}

/** Lanes of a chain that hold unfinished work and have no holder: their key may have left the configuration. */
export async function orphanedLanes(sql: Sql, chainId: number): Promise<string[]> {
  const { rows } = await sql.query<{ address: string }>(
    `SELECT address FROM relayer_lanes lane
      WHERE chain_id = $1 AND lease_until <= clock_timestamp() AND EXISTS (
        SELECT 1 FROM relayer_transactions t
         WHERE t.chain_id = lane.chain_id AND t.lane_address = lane.address AND t.status IN ('pending', 'included'))`,
    [chainId],
  );
  return rows.map((row) => row.address);
}

/** Claims of leases that are over are void: whoever claimed them can no longer persist anything. */
export async function voidLapsedClaims(sql: Sql, chainId: number): Promise<number> {
  const { rowCount } = await sql.query(
    `UPDATE settlements s SET lane_address = NULL, lane_epoch = NULL
       FROM relayer_lanes lane
      WHERE s.chain_id = $1 AND s.status = 'queued' AND s.lane_address = lane.address
        AND lane.chain_id = $1 AND (lane.lease_epoch <> s.lane_epoch OR lane.lease_until <= clock_timestamp())`,
    [chainId],
  );
  return rowCount ?? 0;
}

export async function claim(
  sql: Sql,
  lease: Lease,
  limit: number,
  options: { dailyGasCeiling: bigint },
): Promise<SettlementRecord[]> {
  const { rows } = await sql.query<SettlementRecord>(
    `WITH lane AS (
       SELECT 1 FROM relayer_lanes WHERE chain_id = $1 AND address = $2 AND lease_owner = $3
          AND lease_epoch = $4 AND lease_until > clock_timestamp()),
     today AS (
       SELECT coalesce((SELECT gas FROM relayer_gas_days
         WHERE chain_id = $1 AND day = (clock_timestamp() AT TIME ZONE 'UTC')::date), 0) AS gas),
     picked AS (
       SELECT from_address, chain_id, asset, nonce FROM settlements
        WHERE chain_id = $1 AND status = 'queued' AND lane_address IS NULL
          AND (relay OR cancel_signature IS NOT NULL) AND next_attempt_at <= clock_timestamp()
          AND EXISTS (SELECT 1 FROM lane)
          AND (kind <> 'facilitated' OR (SELECT gas FROM today) < $6)
        ORDER BY created_at LIMIT $5 FOR UPDATE SKIP LOCKED)
     UPDATE settlements s SET lane_address = $2, lane_epoch = $4
       FROM picked p
      WHERE s.from_address = p.from_address AND s.chain_id = p.chain_id AND s.asset = p.asset AND s.nonce = p.nonce
     RETURNING s.*`,
    [
      lease.chainId,
      lease.address,
      lease.owner,
      String(lease.epoch),
      limit,
      String(options.dailyGasCeiling),
    ],
  );
  return rows.sort((one, other) => one.created_at.getTime() - other.created_at.getTime());
}

/** Gives claimed rows back to the queue, for now or for a later time. */
export async function unclaim(
  sql: Sql,
  lease: Lease,
  refs: readonly { from: string; asset: string; nonce: string }[],
  delayMs: number,
): Promise<void> {
  if (refs.length === 0) return;
  await sql.query(
    `UPDATE settlements s
        SET lane_address = NULL, lane_epoch = NULL,
            next_attempt_at = clock_timestamp() + $7 * interval '1 millisecond'
       FROM unnest($4::text[], $5::text[], $6::text[]) AS item (from_address, asset, nonce)
      WHERE s.from_address = item.from_address AND s.chain_id = $1 AND s.asset = item.asset
        AND s.nonce = item.nonce AND s.status = 'queued' AND s.lane_address = $2 AND s.lane_epoch = $3`,
    [
      lease.chainId,
      lease.address,
      String(lease.epoch),
      refs.map((ref) => ref.from),
      refs.map((ref) => ref.asset),
      refs.map((ref) => ref.nonce),
      delayMs,
    ],
  );
}

export interface NewTransaction {
  nonce: bigint;
  to: string;
  calldata: Hex;
  gasLimit: bigint;
  meteredGas: bigint;
  dailyGasCeiling: bigint;
  attempt: StoredAttempt;
  items: StoredTransaction["items"];
  sentBlock: bigint;
}

const bytes = (hex: Hex): Buffer => Buffer.from(hex.slice(2), "hex");

/** One round trip. Throws with SQLSTATE LEASE_LOST, CLAIM_LOST or OVER_GAS_CEILING, and then nothing is written. */
export async function persistTransaction(
  sql: Sql,
  lease: Lease,
  tx: NewTransaction,
): Promise<void> {
  await sql.query(
    `SELECT purser_lane_persist(
       p_chain_id => $1, p_address => $2, p_owner => $3, p_epoch => $4, p_nonce => $5, p_to => $6,
       p_calldata => $7, p_gas_limit => $8, p_metered_gas => $9, p_gas_ceiling => $10, p_hash => $11,
       p_raw => $12, p_max_fee => $13, p_priority_fee => $14, p_actions => $15, p_from => $16,
       p_asset => $17, p_nonces => $18, p_sent_block => $19)`,
    [
      lease.chainId,
      lease.address,
      lease.owner,
      String(lease.epoch),
      String(tx.nonce),
      tx.to.toLowerCase(),
      bytes(tx.calldata),
      String(tx.gasLimit),
      String(tx.meteredGas),
      String(tx.dailyGasCeiling),
      tx.attempt.hash,
      bytes(tx.attempt.raw),
      String(tx.attempt.maxFeeWei),
      String(tx.attempt.priorityFeeWei),
      tx.items.map((item) => item.action),
      tx.items.map((item) => item.from),
      tx.items.map((item) => item.asset),
      tx.items.map((item) => item.nonce),
      String(tx.sentBlock),
    ],
  );
}

/** Stores another signed form of the same transaction; false when the lease is gone. */
export async function persistAttempt(
  sql: Sql,
  lease: Lease,
  nonce: bigint,
  attempt: StoredAttempt,
): Promise<boolean> {
  const { rowCount } = await sql.query(
    `INSERT INTO relayer_attempts (hash, chain_id, lane_address, nonce, attempt, raw, max_fee_wei, priority_fee_wei)
     SELECT $5, $1, $2, $6, $7, $8, $9, $10 FROM relayer_lanes
      WHERE chain_id = $1 AND address = $2 AND lease_owner = $3 AND lease_epoch = $4
        AND lease_until > clock_timestamp()`,
    [
      lease.chainId,
      lease.address,
      lease.owner,
      String(lease.epoch),
      attempt.hash,
      String(nonce),
      attempt.attempt,
      bytes(attempt.raw),
      String(attempt.maxFeeWei),
      String(attempt.priorityFeeWei),
    ],
  );
  return rowCount === 1;
}

/** Where a transaction stands, by a block that holds it or, replaced, by one that holds another of its nonce. */
export interface FinalTransaction {
  nonce: bigint;
  status: "included" | "mined" | "replaced";
  hash: string;
  blockNumber: bigint;
  blockHash: string;
  gasUsed?: bigint;
}

/**
 * Writes that in one step: proven outcomes with it, and what it carried without effect goes back to the
 * queue (it may be tried again, or proven impossible).
 */
export async function finalizeTransaction(
  sql: Sql,
  lane: LaneKey,
  tx: FinalTransaction,
  outcomes: readonly ProvenOutcome[],
): Promise<Told> {
  const { rows } = await sql.query<{ told: Told }>(
    `SELECT purser_transaction_final(
       p_chain_id => $1, p_address => $2, p_nonce => $3, p_status => $4, p_hash => $5,
       p_block_number => $6, p_block_hash => $7, p_gas_used => $8, p_outcomes => $9) AS told`,
    [
      lane.chainId,
      lane.address,
      String(tx.nonce),
      tx.status,
      tx.hash,
      String(tx.blockNumber),
      tx.blockHash,
      tx.gasUsed === undefined ? null : String(tx.gasUsed),
      JSON.stringify(outcomes),
    ],
  );
  return rows[0]?.told ?? NOTHING_TOLD;
}

/** A reorganisation took this block away: the transaction may be mined again, what it settled is open again. */
export async function reopenTransaction(
  sql: Sql,
  lane: LaneKey,
  nonce: bigint,
  blockHash: string,
): Promise<Told> {
  const { rows } = await sql.query<{ told: Told }>(
    "SELECT purser_transaction_reopened($1, $2, $3, $4) AS told",
    [lane.chainId, lane.address, String(nonce), blockHash],
  );
  return rows[0]?.told ?? NOTHING_TOLD;
}
