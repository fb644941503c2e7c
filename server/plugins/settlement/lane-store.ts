/**
 * Relayer lanes in the database: the lease of a relayer key, and every transaction that it signed.
 * Each write names the owner and epoch of the lease and has an effect only while the lease is valid by the
 * database clock.
 */
import type { Hex } from "viem";
import type { SchemeTerms } from "../../core/authorization.ts";
import { LOCK_TIMEOUT, sqlState, type Sql } from "../../infra/db/pool.ts";
import type { ExpectedTransfer } from "../../schemes/scheme.ts";
import { NOTHING_FINALIZED, type ProvenOutcome, type FinalizeResult } from "./types.ts";

interface LaneKey {
  chainId: number;
  address: string;
}

export interface Lease extends LaneKey {
  owner: string;
  epoch: bigint;
}

type ItemAction = "transfer" | "cancel";

export interface StoredAttempt {
  hash: Hex;
  attempt: number;
  /** `work` transactions carry payments; `void` transactions only use up a nonce. */
  purpose: "work" | "void";
  /** The last response of a node: "taken", or the class of the rejection. */
  answer: string | undefined;
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
  /**
   * The newest block when it was signed, so no block up to this one contains it. Undefined for very old rows.
   */
  sentBlock: bigint | undefined;
  /** The block that contains it, until no reorganisation can remove that block. */
  included: Inclusion | undefined;
}

interface Inclusion {
  hash: Hex;
  blockNumber: bigint;
  blockHash: Hex;
}

/** One authorization that a transaction carries, with the transfer that proves it paid. */
export interface CarriedItem extends ExpectedTransfer {
  action: ItemAction;
  /** The trace of the request that created the payment. */
  traceparent?: string | null;
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
  const { rowCount } = await sql.query({
    name: "lane-renew",
    text: `UPDATE relayer_lanes SET lease_until = clock_timestamp() + $5 * interval '1 millisecond'
      WHERE chain_id = $1 AND address = $2 AND lease_owner = $3 AND lease_epoch = $4
        AND lease_until > clock_timestamp()`,
    values: [lease.chainId, lease.address, lease.owner, String(lease.epoch), leaseMs],
  });
  return rowCount === 1;
}

export async function releaseLease(sql: Sql, lease: Lease): Promise<void> {
  await sql.query(
    `UPDATE relayer_lanes SET lease_until = '-infinity', lease_owner = NULL
      WHERE chain_id = $1 AND address = $2 AND lease_owner = $3 AND lease_epoch = $4`,
    [lease.chainId, lease.address, lease.owner, String(lease.epoch)],
  );
}

/**
 * Lanes of a chain with unfinished transactions and no lease holder, for example because their key left the
 * configuration.
 */
export async function orphanedLanes(sql: Sql, chainId: number): Promise<string[]> {
  const { rows } = await sql.query<{ address: string }>({
    name: "lanes-orphaned",
    text: `SELECT address FROM relayer_lanes lane
      WHERE chain_id = $1 AND lease_until <= clock_timestamp() AND EXISTS (
        SELECT 1 FROM relayer_transactions t
         WHERE t.chain_id = lane.chain_id AND t.lane_address = lane.address AND t.status IN ('pending', 'included'))`,
    values: [chainId],
  });
  return rows.map((row) => row.address);
}

interface NewTransaction {
  nonce: bigint;
  to: string;
  calldata: Hex;
  gasLimit: bigint;
  attempt: StoredAttempt;
  items: StoredTransaction["items"];
  sentBlock: bigint;
}

const bytes = (hex: Hex): Buffer => Buffer.from(hex.slice(2), "hex");
const hexOf = (buffer: Buffer): Hex => `0x${buffer.toString("hex")}`;

/**
 * Stores a signed transaction in one round trip. Throws SQLSTATE LEASE_LOST or CLAIM_LOST, and then writes
 * nothing.
 */
export async function persistTransaction(
  sql: Sql,
  lease: Lease,
  tx: NewTransaction,
): Promise<void> {
  await sql.query({
    name: "lane-persist",
    text: `SELECT purser_lane_persist(
       p_chain_id => $1, p_address => $2, p_owner => $3, p_epoch => $4, p_nonce => $5, p_to => $6,
       p_calldata => $7, p_gas_limit => $8, p_hash => $9, p_raw => $10, p_max_fee => $11,
       p_priority_fee => $12, p_actions => $13, p_from => $14, p_asset => $15, p_nonces => $16,
       p_sent_block => $17)`,
    values: [
      lease.chainId,
      lease.address,
      lease.owner,
      String(lease.epoch),
      String(tx.nonce),
      tx.to.toLowerCase(),
      bytes(tx.calldata),
      String(tx.gasLimit),
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
  });
}

/**
 * Stores another signed version of the same transaction (re-priced or void). "taken": a version with its number or its
 * bytes is stored already.
 */
export async function persistAttempt(
  sql: Sql,
  lease: Lease,
  nonce: bigint,
  attempt: StoredAttempt,
): Promise<"stored" | "taken" | "lease lost"> {
  const { rows } = await sql.query<{ stored: boolean }>(
    `WITH held AS (
       SELECT FROM relayer_lanes
        WHERE chain_id = $1 AND address = $2 AND lease_owner = $3 AND lease_epoch = $4 AND lease_until > clock_timestamp()),
     added AS (
       INSERT INTO relayer_attempts (hash, chain_id, lane_address, nonce, attempt, raw, max_fee_wei, priority_fee_wei, purpose)
       SELECT $5, $1, $2, $6, $7, $8, $9, $10, $11 FROM held
       ON CONFLICT DO NOTHING RETURNING 1)
     SELECT EXISTS (SELECT FROM added) AS stored FROM held`,
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
      attempt.purpose,
    ],
  );
  const [held] = rows;
  if (!held) return "lease lost";
  return held.stored ? "stored" : "taken";
}

/** Stores the last response of a node to these bytes: "taken", or the class of the rejection. */
export async function noteAnswer(sql: Sql, hash: string, answer: string): Promise<void> {
  await sql.query({
    name: "attempt-answer",
    text: "UPDATE relayer_attempts SET answer = $2 WHERE hash = $1",
    values: [hash, answer],
  });
}

/**
 * Stores a transaction that only uses up a nonce for which no work is left, because the chain was reset below
 * it.
 * An existing row for the nonce was final on the old chain: it becomes pending again, with this attempt added.
 */
export async function persistFiller(
  sql: Sql,
  lease: Lease,
  tx: { nonce: bigint; gasLimit: bigint; attempt: StoredAttempt },
): Promise<boolean> {
  const { rowCount } = await sql.query(
    `WITH lane AS (
       SELECT 1 FROM relayer_lanes WHERE chain_id = $1 AND address = $2 AND lease_owner = $3
          AND lease_epoch = $4 AND lease_until > clock_timestamp()),
     tx AS (
       INSERT INTO relayer_transactions AS known (chain_id, lane_address, nonce, to_address, calldata, gas_limit)
       SELECT $1, $2, $5, $2, '', $6 FROM lane
       ON CONFLICT (chain_id, lane_address, nonce) DO UPDATE
          SET status = 'pending', finalized_at = NULL WHERE known.status <> 'pending'
       RETURNING 1)
     INSERT INTO relayer_attempts (hash, chain_id, lane_address, nonce, attempt, raw, max_fee_wei, priority_fee_wei, purpose)
     SELECT $7, $1, $2, $5, 1 + coalesce((SELECT max(attempt) FROM relayer_attempts
              WHERE chain_id = $1 AND lane_address = $2 AND nonce = $5), 0), $8, $9, $10, 'void' FROM tx`,
    [
      lease.chainId,
      lease.address,
      lease.owner,
      String(lease.epoch),
      String(tx.nonce),
      String(tx.gasLimit),
      tx.attempt.hash,
      bytes(tx.attempt.raw),
      String(tx.attempt.maxFeeWei),
      String(tx.attempt.priorityFeeWei),
    ],
  );
  return rowCount === 1;
}

/**
 * After a chain reset below every stored transaction, the lane continues with the chain's nonce.
 * Reconciliation's `looked_nonce` is lowered with it.
 */
export async function lowerNextNonce(sql: Sql, lease: Lease, nonce: bigint): Promise<boolean> {
  const { rowCount } = await sql.query(
    `UPDATE relayer_lanes SET next_nonce = $5, looked_nonce = least(looked_nonce, $5)
      WHERE chain_id = $1 AND address = $2 AND lease_owner = $3 AND lease_epoch = $4
        AND lease_until > clock_timestamp() AND next_nonce > $5
        AND NOT EXISTS (SELECT 1 FROM relayer_transactions t
          WHERE t.chain_id = $1 AND t.lane_address = $2 AND t.nonce >= $5)`,
    [lease.chainId, lease.address, lease.owner, String(lease.epoch), String(nonce)],
  );
  return rowCount === 1;
}

/**
 * The state of a transaction, proven by a block: the one that contains it, or, for `replaced`, one that
 * contains another transaction of the same nonce.
 */
export interface FinalTransaction {
  nonce: bigint;
  status: "included" | "mined" | "replaced" | "given_up";
  hash: string;
  blockNumber: bigint;
  blockHash: string;
  gasUsed?: bigint;
  /**
   * The cost from its receipt, in units of core/gas.ts. Undefined (stored as zero) when another transaction
   * took the nonce.
   */
  gasCost?: bigint;
  /** Nonces of authorizations that caused their own failure, and payers that are not batched for a while. */
  faults?: readonly string[];
  offenders?: readonly string[];
}

interface FinalizeTransactionResult extends FinalizeResult {
  /**
   * Set when nothing was written, because the row says that the transaction is in this other block. An earlier write
   * whose response was lost, or another process, has recorded it.
   */
  included?: Inclusion;
}

/**
 * Writes the state of the transaction and its proven outcomes in one step. Authorizations that it carried
 * without effect return to the queue, to be retried or proven impossible.
 */
export async function finalizeTransaction(
  sql: Sql,
  lane: LaneKey,
  tx: FinalTransaction,
  outcomes: readonly ProvenOutcome[],
): Promise<FinalizeTransactionResult> {
  const write = async (proven: readonly ProvenOutcome[]): Promise<FinalizeTransactionResult> => {
    const { rows } = await sql.query<{
      result: FinalizeResult & {
        included?: Record<"hash" | "blockHash", Hex> & { blockNumber: string };
      };
    }>({
      name: "transaction-final",
      text: `SELECT purser_transaction_final(
         p_chain_id => $1, p_address => $2, p_nonce => $3, p_status => $4, p_hash => $5,
         p_block_number => $6, p_block_hash => $7, p_gas_used => $8, p_outcomes => $9, p_faults => $10,
         p_offenders => $11, p_cost => $12) AS result`,
      values: [
        lane.chainId,
        lane.address,
        String(tx.nonce),
        tx.status,
        tx.hash,
        String(tx.blockNumber),
        tx.blockHash,
        tx.gasUsed === undefined ? null : String(tx.gasUsed),
        JSON.stringify(proven),
        tx.faults ?? [],
        tx.offenders ?? [],
        String(tx.gasCost ?? 0n),
      ],
    });
    const result = rows[0]?.result;
    if (!result?.included) return result ?? NOTHING_FINALIZED;
    const { included } = result;
    return { ...result, included: { ...included, blockNumber: BigInt(included.blockNumber) } };
  };
  try {
    return await write(outcomes);
  } catch (error) {
    // Returning budget needs the agent's row, which may be locked. Settled payments do not wait for it; the
    // other outcomes are proven again later.
    const settled = outcomes.filter(({ status }) => status === "settled");
    if (sqlState(error) !== LOCK_TIMEOUT || settled.length === outcomes.length) throw error;
    return write(settled);
  }
}

/**
 * A reorganisation removed this block: the transaction is pending again, and its settled payments are open
 * again.
 */
export async function reopenTransaction(
  sql: Sql,
  lane: LaneKey,
  nonce: bigint,
  blockHash: string,
): Promise<FinalizeResult> {
  const { rows } = await sql.query<{ result: FinalizeResult }>(
    "SELECT purser_transaction_reopened($1, $2, $3, $4) AS result",
    [lane.chainId, lane.address, String(nonce), blockHash],
  );
  return rows[0]?.result ?? NOTHING_FINALIZED;
}

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
