/** Settlements in the database: reading them, and writing their proven outcomes. */
import type { Address, Hex } from "viem";
import type { Nonce, SchemeTerms, SettlementKey } from "../../core/authorization.ts";
import type {
  SettlementKind,
  SettlementRequest,
  SettlementRow,
  SettlementStatus,
} from "./types.ts";
import { LOCK_TIMEOUT, sqlState, type Sql } from "../../infra/db/pool.ts";

export interface SettlementRecord {
  id: string;
  kind: SettlementKind;
  agent_id: string | null;
  chain_id: bigint;
  asset: Address;
  from_address: Address;
  to_address: Address;
  value: bigint;
  valid_after: bigint;
  valid_before: bigint;
  nonce: Nonce;
  terms: SchemeTerms | null;
  /** The only lane that may send it, according to its `terms`. */
  only_lane: string | null;
  signature: Buffer;
  relay: boolean;
  status: SettlementStatus;
  error_reason: string | null;
  error_message: string | null;
  tx_hash: Hex | null;
  block_number: bigint | null;
  by_other: boolean;
  attempts: number;
  /** Queue class: 0 withdrawals, 1 agents' payments, 2 third parties' payments. */
  class: number;
  turn: Date;
  solo: boolean;
  faults: number;
  given_up: number;
  cancel_signature: Buffer | null;
  caller_key_hash: Buffer | null;
  body_hash: Buffer | null;
  success_told_at: Date | null;
  created_at: Date;
  settled_at: Date | null;
  accepted_block: bigint | null;
  rehearsed_block: bigint | null;
  block_hash: Hex | null;
  proof: EndProof | { kind: "unrecorded" } | null;
  final_at: Date | null;
  tried_again_at: Date | null;
  searched_up: bigint | null;
  searched_down: bigint | null;
  look_failures: number;
  traceparent: string | null;
}

/** The columns of a SettlementRecord. */
const COLUMNS = `
  id kind agent_id chain_id asset from_address to_address value valid_after valid_before nonce
  terms only_lane signature relay status error_reason error_message tx_hash block_number
  by_other attempts class turn solo faults given_up cancel_signature caller_key_hash body_hash
  success_told_at created_at settled_at accepted_block rehearsed_block block_hash proof final_at
  tried_again_at searched_up searched_down look_failures traceparent
`;

const NAMES = COLUMNS.trim().split(/\s+/);

/**
 * Columns are listed by name, so that a prepared statement survives a new column of a later release, and unused
 * columns are not read.
 */
export const recordColumns = (of = ""): string => NAMES.map((name) => of + name).join(", ");

export function toRow(record: SettlementRecord): SettlementRow {
  return {
    id: record.id,
    kind: record.kind,
    agentId: record.agent_id,
    authorization: {
      chainId: Number(record.chain_id),
      asset: record.asset,
      from: record.from_address,
      to: record.to_address,
      value: record.value,
      validAfter: record.valid_after,
      validBefore: record.valid_before,
      nonce: record.nonce,
      terms: record.terms,
      signature: `0x${record.signature.toString("hex")}`,
    },
    relay: record.relay,
    status: record.status,
    errorReason: record.error_reason,
    errorMessage: record.error_message,
    txHash: record.tx_hash,
    blockNumber: record.block_number,
    byOther: record.by_other,
    callerKeyHash: record.caller_key_hash,
    bodyHash: record.body_hash,
    successReturnedAt: record.success_told_at,
    createdAt: record.created_at,
    settledAt: record.settled_at,
    isFinal: record.final_at !== null,
    traceparent: record.traceparent,
    mayTryAgain:
      record.kind === "facilitated" &&
      record.status === "failed" &&
      record.proof?.kind === "refusal" &&
      record.tried_again_at === null,
  };
}

/** The row of a newly accepted request, equal to what reading it from the database would return. */
export function newRow(request: SettlementRequest, createdAt: Date): SettlementRow {
  const { authorization, callerKeyHash, bodyHash, traceparent } = request;
  const lower = <Text extends string>(text: Text) => text.toLowerCase() as Text;
  return {
    id: request.id,
    kind: request.kind,
    agentId: request.agentId,
    authorization: {
      chainId: authorization.chainId,
      asset: lower(authorization.asset),
      from: lower(authorization.from),
      to: lower(authorization.to),
      value: authorization.value,
      validAfter: authorization.validAfter,
      validBefore: authorization.validBefore,
      nonce: lower(authorization.nonce),
      terms: authorization.terms ?? null,
      signature: lower(authorization.signature),
    },
    relay: request.relay,
    status: "queued",
    errorReason: null,
    errorMessage: null,
    txHash: null,
    blockNumber: null,
    byOther: false,
    callerKeyHash: callerKeyHash ?? null,
    bodyHash: bodyHash ?? null,
    successReturnedAt: null,
    createdAt,
    settledAt: null,
    isFinal: false,
    traceparent: traceparent ?? null,
    mayTryAgain: false,
  };
}

/** The key that an outcome names its settlement by. */
export const keyOf = ({ from_address: from, asset, nonce }: SettlementRecord) => ({
  from,
  asset,
  nonce,
});

export async function findSettlement(sql: Sql, id: string): Promise<SettlementRow | undefined> {
  return (await findSettlements(sql, [id]))[0];
}

export async function findSettlements(sql: Sql, ids: readonly string[]): Promise<SettlementRow[]> {
  const { rows } = await sql.query<SettlementRecord>({
    name: "settlements-by-ids",
    text: `SELECT ${recordColumns()} FROM settlements WHERE id = ANY($1)`,
    values: [ids],
  });
  return rows.map(toRow);
}

const ENDED = {
  name: "settlements-ended",
  text: `SELECT ${recordColumns()} FROM settlements WHERE id = ANY($1) AND status NOT IN ('queued', 'submitted')`,
};

/** Returns only the settlements that have ended: of many waiting ids, usually hardly any. */
export async function findEnded(sql: Sql, ids: readonly string[]): Promise<SettlementRow[]> {
  const { rows } = await sql.query<SettlementRecord>({ ...ENDED, values: [ids] });
  return rows.map(toRow);
}

export async function findOpenRecord(sql: Sql, id: string): Promise<SettlementRecord | undefined> {
  const { rows } = await sql.query<SettlementRecord>(
    "SELECT * FROM settlements WHERE id = $1 AND status IN ('queued', 'submitted')",
    [id],
  );
  return rows[0];
}

export async function findByAuthorization(
  sql: Sql,
  key: SettlementKey,
): Promise<SettlementRow | undefined> {
  const { rows } = await sql.query<SettlementRecord>({
    name: "settlement-by-authorization",
    text: `SELECT ${recordColumns("s.")} FROM settlements s
            WHERE s.from_address = $1 AND s.chain_id = $2 AND s.asset = $3 AND s.nonce = $4`,
    values: [key.from.toLowerCase(), key.chainId, key.asset.toLowerCase(), key.nonce.toLowerCase()],
  });
  return rows[0] && toRow(rows[0]);
}

/**
 * Where the fact was read that ended a settlement. Stored with every end; block numbers are decimal strings.
 */
export type EndProof =
  /** The logs of the transaction show it. */
  | { kind: "receipt"; tx: string; block: string; blockHash: string }
  /** The contract state at this block shows it. */
  | { kind: "state"; block: string; blockHash: string; timestamp: string }
  /** The contract rejected the call as of this block, and we do not send it again. */
  | { kind: "refusal"; block: string; blockHash: string };

/**
 * A proven outcome of one authorization, as the SQL function takes it. If the proof contradicts an end that is
 * already stored, the row is corrected.
 * "open": a reorganisation removed the transaction in `proof`, and with it the end. "held": proven, but
 * reported only when it is final.
 */
export interface ProvenOutcome {
  from: string;
  asset: string;
  nonce: string;
  status: "settled" | "failed" | "expired" | "open" | "held";
  proof?: EndProof;
  /** No reorganisation can undo it: it is `confirmations` deep, or does not depend on a block. */
  isFinal: boolean;
  byOther?: boolean;
  /** The charged amount as a decimal string, when it may be less than the signed maximum. */
  amount?: string;
  reason?: string;
  message?: string;
}

/** One statement, so only one of several concurrent callers requeues it. It is sent alone, and only once. */
export async function tryAgain(sql: Sql, key: SettlementKey): Promise<SettlementRow | undefined> {
  const { rows } = await sql.query<SettlementRecord>(
    `UPDATE settlements
        SET status = 'queued', error_reason = NULL, error_message = NULL, tx_hash = NULL, proof = NULL, rehearsed_block = NULL,
            final_at = NULL, lane_address = NULL, lane_epoch = NULL, attempts = 1, next_attempt_at = '-infinity',
            tried_again_at = clock_timestamp(), updated_at = clock_timestamp()
      WHERE from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce = $4 AND kind = 'facilitated'
        AND status = 'failed' AND proof->>'kind' = 'refusal' AND tried_again_at IS NULL
      RETURNING *`,
    [key.from.toLowerCase(), key.chainId, key.asset.toLowerCase(), key.nonce.toLowerCase()],
  );
  return rows[0] && toRow(rows[0]);
}

/** What writing outcomes changed. */
export interface FinalizeResult {
  /** The number of settlements that were open and have ended. */
  finished: number;
  /** Ends that the new proof contradicted. */
  corrected: readonly { id: string; kind: string }[];
}
export const NOTHING_FINALIZED: FinalizeResult = { finished: 0, corrected: [] };

/**
 * Writes settlement, payment, budget and the notification to all waiters in one transaction, and returns what
 * changed.
 * Returning budget locks the agent's row. If one agent's row is locked, the outcomes of the other wallets are
 * still written, and the lock timeout is thrown.
 */
export async function finalizeSettlements(
  sql: Sql,
  chainId: number,
  outcomes: readonly ProvenOutcome[],
): Promise<FinalizeResult> {
  try {
    return await finalizeTogether(sql, chainId, outcomes);
  } catch (error) {
    const wallets = [...new Set(outcomes.map(({ from }) => from))];
    if (sqlState(error) !== LOCK_TIMEOUT || wallets.length === 1) throw error;
    const each = await Promise.allSettled(
      wallets.map((wallet) => {
        const own = outcomes.filter(({ from }) => from === wallet);
        return finalizeTogether(sql, chainId, own);
      }),
    );
    const failed = each.find((result) => result.status === "rejected");
    if (failed) throw failed.reason;
    const results = each.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
    return {
      finished: results.reduce((sum, { finished }) => sum + finished, 0),
      corrected: results.flatMap(({ corrected }) => corrected),
    };
  }
}

async function finalizeTogether(
  sql: Sql,
  chainId: number,
  outcomes: readonly ProvenOutcome[],
): Promise<FinalizeResult> {
  if (outcomes.length === 0) return NOTHING_FINALIZED;
  const { rows } = await sql.query<{ result: FinalizeResult }>({
    name: "settlements-finalize",
    text: "SELECT purser_settlements_finalize($1, $2) AS result",
    values: [chainId, JSON.stringify(outcomes)],
  });
  return rows[0]?.result ?? NOTHING_FINALIZED;
}

export async function countQueued(sql: Sql, chainId: number): Promise<number> {
  const { rows } = await sql.query<{ count: bigint }>(
    "SELECT count(*) AS count FROM settlements WHERE chain_id = $1 AND status = 'queued' AND relay",
    [chainId],
  );
  return Number(rows[0]?.count ?? 0n);
}
