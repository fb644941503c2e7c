/**
 * Settlements in the database: reading them, the queue from which lanes claim them, the rows to watch on chain, and
 * writing proven outcomes.
 */
import type { Address, Hex } from "viem";
import type { Nonce, SchemeTerms, SettlementKey } from "../../core/authorization.ts";
import { IS_PAYMENT } from "../../infra/db/payments-only.ts";
import { LOCK_TIMEOUT, sqlState, type Sql } from "../../infra/db/pool.ts";
import { KNOWN_TERMS } from "../../schemes/index.ts";
import type { Lease } from "./lane-store.ts";
import {
  NOTHING_FINALIZED,
  type EndProof,
  type FinalizeResult,
  type ProvenOutcome,
  type SettlementKind,
  type SettlementRecord,
  type SettlementStatus,
} from "./types.ts";

/** The columns that are read, as Postgres returns them. */
export interface SettlementColumns {
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
  signature: Buffer;
  relay: boolean;
  status: SettlementStatus;
  error_reason: string | null;
  error_message: string | null;
  tx_hash: Hex | null;
  block_number: bigint | null;
  by_other: boolean;
  attempts: number;
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
  block_hash: Hex | null;
  proof: EndProof | { kind: "unrecorded" } | null;
  final_at: Date | null;
  tried_again_at: Date | null;
  searched_up: bigint | null;
  searched_down: bigint | null;
  traceparent: string | null;
}

const NAMES = `
  id kind agent_id chain_id asset from_address to_address value valid_after valid_before nonce
  terms signature relay status error_reason error_message tx_hash block_number by_other attempts
  class turn solo faults given_up cancel_signature caller_key_hash body_hash success_told_at
  created_at settled_at accepted_block block_hash proof final_at tried_again_at searched_up
  searched_down traceparent
`
  .trim()
  .split(/\s+/);

/**
 * Columns are listed by name, so that a prepared statement survives a new column of a later release, and unused
 * columns are not read.
 */
export const columnsOf = (table = ""): string => NAMES.map((name) => table + name).join(", ");

const hexOf = (bytes: Buffer): Hex => `0x${bytes.toString("hex")}`;

export function decode(row: SettlementColumns): SettlementRecord {
  return {
    id: row.id,
    kind: row.kind,
    agentId: row.agent_id,
    authorization: {
      chainId: Number(row.chain_id),
      asset: row.asset,
      from: row.from_address,
      to: row.to_address,
      value: row.value,
      validAfter: row.valid_after,
      validBefore: row.valid_before,
      nonce: row.nonce,
      terms: row.terms,
      signature: hexOf(row.signature),
    },
    relay: row.relay,
    status: row.status,
    errorReason: row.error_reason,
    errorMessage: row.error_message,
    txHash: row.tx_hash,
    blockNumber: row.block_number,
    byOther: row.by_other,
    callerKeyHash: row.caller_key_hash,
    bodyHash: row.body_hash,
    successReturnedAt: row.success_told_at,
    createdAt: row.created_at,
    settledAt: row.settled_at,
    isFinal: row.final_at !== null,
    traceparent: row.traceparent,
    mayTryAgain:
      row.kind === "facilitated" &&
      row.status === "failed" &&
      row.proof?.kind === "refusal" &&
      row.tried_again_at === null,
    class: row.class,
    turn: row.turn,
    solo: row.solo,
    attempts: row.attempts,
    faults: row.faults,
    givenUp: row.given_up,
    cancelSignature: row.cancel_signature && hexOf(row.cancel_signature),
    acceptedBlock: row.accepted_block,
    blockHash: row.block_hash,
    searchedUp: row.searched_up,
    searchedDown: row.searched_down,
  };
}

/** The key that an outcome names its settlement by. */
export const keyOf = ({ authorization: { from, asset, nonce } }: SettlementRecord) => ({
  from,
  asset,
  nonce,
});

/** The primary key, in the order of the statements' parameters. */
const keyValues = ({ from, chainId, asset, nonce }: SettlementKey): unknown[] => [
  from.toLowerCase(),
  chainId,
  asset.toLowerCase(),
  nonce.toLowerCase(),
];
const HAS_KEY = "from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce = $4";

async function read(
  sql: Sql,
  query: { name?: string; text: string; values: unknown[] },
): Promise<SettlementRecord[]> {
  const { rows } = await sql.query<SettlementColumns>(query);
  return rows.map(decode);
}

export async function findSettlement(sql: Sql, id: string): Promise<SettlementRecord | undefined> {
  return (await findSettlements(sql, [id]))[0];
}

export const findSettlements = (sql: Sql, ids: readonly string[]): Promise<SettlementRecord[]> =>
  read(sql, {
    name: "settlements-by-ids",
    text: `SELECT ${columnsOf()} FROM settlements WHERE id = ANY($1)`,
    values: [ids],
  });

/** Returns only the settlements that have ended: of many waiting ids, usually hardly any. */
export const findEnded = (sql: Sql, ids: readonly string[]): Promise<SettlementRecord[]> =>
  read(sql, {
    name: "settlements-ended",
    text: `SELECT ${columnsOf()} FROM settlements WHERE id = ANY($1) AND status NOT IN ('queued', 'submitted')`,
    values: [ids],
  });

export async function findOpenRecord(sql: Sql, id: string): Promise<SettlementRecord | undefined> {
  const [record] = await read(sql, {
    text: `SELECT ${columnsOf()} FROM settlements WHERE id = $1 AND status IN ('queued', 'submitted')`,
    values: [id],
  });
  return record;
}

export async function findByAuthorization(
  sql: Sql,
  key: SettlementKey,
): Promise<SettlementRecord | undefined> {
  const [record] = await read(sql, {
    name: "settlement-by-authorization",
    text: `SELECT ${columnsOf()} FROM settlements WHERE ${HAS_KEY}`,
    values: keyValues(key),
  });
  return record;
}

/** One statement, so only one of several concurrent callers requeues it. It is sent alone, and only once. */
export async function tryAgain(
  sql: Sql,
  key: SettlementKey,
): Promise<SettlementRecord | undefined> {
  const [record] = await read(sql, {
    text: `UPDATE settlements
        SET status = 'queued', error_reason = NULL, error_message = NULL, tx_hash = NULL, proof = NULL,
            final_at = NULL, lane_address = NULL, lane_epoch = NULL, attempts = 1, next_attempt_at = '-infinity',
            tried_again_at = clock_timestamp(), updated_at = clock_timestamp()
      WHERE ${HAS_KEY} AND kind = 'facilitated'
        AND status = 'failed' AND proof->>'kind' = 'refusal' AND tried_again_at IS NULL
      RETURNING ${columnsOf()}`,
    values: keyValues(key),
  });
  return record;
}

export async function countQueued(sql: Sql, chainId: number): Promise<number> {
  const { rows } = await sql.query<{ count: bigint }>(
    "SELECT count(*) AS count FROM settlements WHERE chain_id = $1 AND status = 'queued' AND relay",
    [chainId],
  );
  return Number(rows[0]?.count ?? 0n);
}

// The queue.

/** Removes claims of expired leases: the process that made them can no longer store anything. */
export async function voidLapsedClaims(sql: Sql, chainId: number): Promise<number> {
  const { rowCount } = await sql.query({
    name: "claims-lapsed",
    text: `UPDATE settlements s SET lane_address = NULL, lane_epoch = NULL
       FROM relayer_lanes lane
      WHERE s.chain_id = $1 AND s.status = 'queued' AND s.lane_address = lane.address
        AND lane.chain_id = $1 AND (lane.lease_epoch <> s.lane_epoch OR lane.lease_until <= clock_timestamp())`,
    values: [chainId],
  });
  return rowCount ?? 0;
}

/** How many settlements of each sort a lane has room for. */
export interface ClaimRoom {
  /** Settlements that may share a transaction. */
  batchable: number;
  /** Agents' settlements that are sent alone. */
  ownSolo: number;
  thirdPartySolo: number;
}

/**
 * Settlements that a lane may claim: the conditions of the partial index `settlements_claimable_idx`, and
 * unclaimed.
 */
const QUEUED = `chain_id = $1 AND status = 'queued' AND lane_address IS NULL
  AND (relay OR cancel_signature IS NOT NULL)`;
const WAITING = `${QUEUED} AND only_lane IS NULL`;
/** A newer release may have accepted settlements of schemes that this one cannot send. */
const hasSchemeOf = (list: string): string => `(terms IS NULL OR terms->>'scheme' = ANY (${list}))`;
const DUE = `next_attempt_at <= clock_timestamp() AND ${hasSchemeOf("$8")} AND EXISTS (SELECT 1 FROM lane)`;
const READY = `${WAITING} AND ${DUE} AND NOT $9`;

/** Settlements that only this lane may send: the same, by the index `settlements_bound_idx`. */
const BOUND = `${QUEUED} AND only_lane = $2 AND ${DUE}`;

/**
 * Claims withdrawals, then agents' payments, then third parties', each in queue order. Five index scans, each
 * with a LIMIT, so the length of the queue does not matter.
 */
export async function claim(
  sql: Sql,
  lease: Lease,
  room: ClaimRoom,
  onlyBound = false,
): Promise<SettlementRecord[]> {
  const records = await read(sql, {
    // Prepared: planning its five scans costs more than running them.
    name: "settlements-claim",
    text: `WITH lane AS (
       SELECT 1 FROM relayer_lanes WHERE chain_id = $1 AND address = $2 AND lease_owner = $3
          AND lease_epoch = $4 AND lease_until > clock_timestamp()),
     own AS (
       SELECT from_address, chain_id, asset, nonce FROM settlements WHERE ${READY} AND NOT solo AND class < 2
        ORDER BY class, turn LIMIT $5 FOR UPDATE SKIP LOCKED),
     own_solo AS (
       SELECT from_address, chain_id, asset, nonce FROM settlements WHERE ${READY} AND solo AND class < 2
        ORDER BY class, turn LIMIT $6 FOR UPDATE SKIP LOCKED),
     third_party AS (
       SELECT from_address, chain_id, asset, nonce FROM settlements WHERE ${READY} AND NOT solo AND class = 2
        ORDER BY turn LIMIT greatest($5 - (SELECT count(*) FROM own), 0) FOR UPDATE SKIP LOCKED),
     free_solo AS (
       SELECT from_address, chain_id, asset, nonce, turn FROM settlements WHERE ${READY} AND solo AND class = 2
        ORDER BY turn LIMIT $7 FOR UPDATE SKIP LOCKED),
     bound_solo AS (
       SELECT from_address, chain_id, asset, nonce, turn FROM settlements WHERE ${BOUND}
        ORDER BY turn LIMIT $7 FOR UPDATE SKIP LOCKED),
     third_party_solo AS (
       SELECT from_address, chain_id, asset, nonce
         FROM (TABLE free_solo UNION ALL TABLE bound_solo) AS either ORDER BY turn LIMIT $7),
     picked AS (
       TABLE own UNION ALL TABLE own_solo UNION ALL TABLE third_party UNION ALL TABLE third_party_solo)
     UPDATE settlements s SET lane_address = $2, lane_epoch = $4
       FROM picked p
      WHERE s.from_address = p.from_address AND s.chain_id = p.chain_id AND s.asset = p.asset AND s.nonce = p.nonce
     RETURNING ${columnsOf("s.")}`,
    values: [
      lease.chainId,
      lease.address,
      lease.owner,
      String(lease.epoch),
      room.batchable,
      room.ownSolo,
      room.thirdPartySolo,
      KNOWN_TERMS,
      onlyBound,
    ],
  });
  return records.sort(inQueueOrder);
}

export const inQueueOrder = (one: SettlementRecord, other: SettlementRecord): number =>
  one.class - other.class ||
  one.turn.getTime() - other.turn.getTime() ||
  one.createdAt.getTime() - other.createdAt.getTime();

/**
 * Returns claimed settlements to the queue, now or for later; `solo` marks those that must be sent alone from
 * now on. A postponed one moves back in the queue to that time.
 */
export async function unclaim(
  sql: Sql,
  lease: Lease,
  refs: readonly { from: string; asset: string; nonce: string }[],
  delayMs: number,
  solo = false,
): Promise<void> {
  if (refs.length === 0) return;
  // One statement time for all rows: with a running clock, a lane could claim the first rows without the
  // others.
  await sql.query(
    `UPDATE settlements s
        SET lane_address = NULL, lane_epoch = NULL,
            next_attempt_at = CASE WHEN $7 > 0
              THEN statement_timestamp() + $7 * interval '1 millisecond' ELSE '-infinity' END,
            turn = CASE WHEN $7 > 0
              THEN greatest(s.turn, statement_timestamp() + $7 * interval '1 millisecond') ELSE s.turn END,
            solo = s.solo OR $8
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
      solo,
    ],
  );
}

export interface Backlog {
  /** Age in seconds of the oldest waiting settlement, by class. A class without any is absent. */
  waitingSeconds: Map<number, number>;
  /** Age in seconds of the oldest pending transaction, by lane. */
  pendingSeconds: Map<string, number>;
}

/**
 * How long work has been waiting. Settlements that are sent alone or were postponed do not count: they do not
 * show whether the lanes work.
 */
export async function readBacklog(sql: Sql, chainId: number): Promise<Backlog> {
  const { rows } = await sql.query<{
    class: number | null;
    lane_address: string | null;
    seconds: number;
  }>({
    name: "backlog",
    text: `SELECT c.class, NULL AS lane_address, extract(epoch FROM clock_timestamp() - first.turn)::float8 AS seconds
       FROM (VALUES (0), (1), (2)) AS c (class), LATERAL (
         SELECT turn FROM settlements s WHERE ${WAITING} AND ${hasSchemeOf("$2")} AND NOT s.solo AND s.class = c.class
          ORDER BY s.turn LIMIT 1) AS first
     UNION ALL
     SELECT NULL, lane_address, extract(epoch FROM clock_timestamp() - min(created_at))::float8
       FROM relayer_transactions WHERE chain_id = $1 AND status = 'pending' GROUP BY lane_address`,
    values: [chainId, KNOWN_TERMS],
  });
  return {
    waitingSeconds: new Map(
      rows.flatMap((row) => (row.class === null ? [] : [[row.class, row.seconds] as const])),
    ),
    pendingSeconds: new Map(
      rows.flatMap((row) =>
        row.lane_address === null ? [] : [[row.lane_address, row.seconds] as const],
      ),
    ),
  };
}

// The rows to watch on chain: open ones that others relay, late ones, refused ones.

/** Stores how far the search for the event of its use has come. */
export async function saveSearch(
  sql: Sql,
  { authorization }: SettlementRecord,
  search: { up: bigint | null; down: bigint | null },
): Promise<void> {
  await sql.query(`UPDATE settlements SET searched_up = $5, searched_down = $6 WHERE ${HAS_KEY}`, [
    ...keyValues(authorization),
    search.up === null ? null : String(search.up),
    search.down === null ? null : String(search.down),
  ]);
}

/**
 * Postpones the next check; the delay grows with each check without a result. A search in progress continues at
 * once, unless it failed.
 */
export async function postponeLook(
  sql: Sql,
  { authorization }: SettlementRecord,
  isBroken: boolean,
): Promise<void> {
  await sql.query(
    `UPDATE settlements
        SET look_failures = look_failures + 1,
            look_at = clock_timestamp() + least(60, power(2, least(look_failures, 6))) * interval '1 second'
      WHERE ${HAS_KEY} AND ($5 OR searched_up IS NULL)`,
    [...keyValues(authorization), isBroken],
  );
}

/**
 * This settlement and those that would leave the same trace on chain: open, or reported as settled in this
 * block. Ordered by the amount that may move.
 */
export const usesAlike = (
  sql: Sql,
  { authorization }: SettlementRecord,
  block: bigint,
): Promise<SettlementRecord[]> =>
  read(sql, {
    text: `SELECT ${columnsOf("s.")} FROM settlements s
       JOIN settlements r ON r.from_address = $1 AND r.chain_id = $2 AND r.asset = $3 AND r.nonce = $4
      WHERE s.from_address = $1 AND s.chain_id = $2 AND s.asset = $3 AND s.to_address = r.to_address
        AND s.terms->>'scheme' = r.terms->>'scheme' AND (s.value = r.value OR s.terms ? 'maximum')
        AND (s.status IN ('queued', 'submitted') OR s.status = 'settled' AND s.block_number = $5)
      ORDER BY coalesce((s.terms->>'maximum')::numeric, s.value), s.nonce`,
    values: [...keyValues(authorization), String(block)],
  });

/**
 * Settled, deep enough to be final, and followed by no lane: paid by another party's transaction, or by one of ours that
 * was final elsewhere when a wrong endpoint showed it in this block.
 */
export const settledUnfollowed = (
  sql: Sql,
  chainId: number,
  finalBlock: bigint,
  limit: number,
): Promise<SettlementRecord[]> =>
  read(sql, {
    name: "watch-unfinal",
    text: `SELECT ${columnsOf("s.")} FROM settlements s
      WHERE s.chain_id = $1 AND s.status = 'settled' AND s.final_at IS NULL AND s.block_number <= $2
        AND s.look_at <= clock_timestamp()
        AND (s.by_other OR NOT EXISTS (
          SELECT FROM relayer_attempts a JOIN relayer_transactions t USING (chain_id, lane_address, nonce)
           WHERE a.hash = s.tx_hash AND t.status IN ('pending', 'included')))
      ORDER BY s.block_number LIMIT $3`,
    values: [chainId, String(finalBlock), limit],
  });

/** Open settlements that we do not relay, earliest deadline first. */
export const openWatched = (
  sql: Sql,
  chainId: number,
  limit: number,
): Promise<SettlementRecord[]> =>
  read(sql, {
    name: "watch-open",
    text: `SELECT ${columnsOf()} FROM settlements
      WHERE chain_id = $1 AND status = 'queued' AND NOT relay AND lane_address IS NULL
        AND look_at <= clock_timestamp()
      ORDER BY valid_before LIMIT $2`,
    values: [chainId, limit],
  });

/** Nobody may have looked at it while it could be used: all processes were down, or an endpoint was wrong. */
const LOOK_FOR_SECONDS = 86_400n;

/**
 * Third parties' payments that were refused: anyone may relay them until they have expired. Each is returned every 15
 * seconds, until its expiry is proven (`endLooks`). What is done for receivers of channels never expires: a refused order
 * has ended.
 */
export const takeRefused = (
  sql: Sql,
  chainId: number,
  timestampSeconds: bigint,
  limit: number,
): Promise<SettlementRecord[]> =>
  read(sql, {
    name: "watch-refused",
    text: `UPDATE settlements s SET look_at = clock_timestamp() + interval '15 seconds'
       FROM (SELECT from_address, chain_id, asset, nonce FROM settlements
              WHERE chain_id = $1 AND status = 'failed' AND proof->>'kind' = 'refusal' AND kind = 'facilitated'
                AND valid_before > $2 AND look_at <= clock_timestamp() AND ${IS_PAYMENT}
              ORDER BY valid_before LIMIT $3 FOR UPDATE SKIP LOCKED) AS due
      WHERE s.from_address = due.from_address AND s.chain_id = due.chain_id AND s.asset = due.asset
        AND s.nonce = due.nonce
      RETURNING ${columnsOf("s.")}`,
    values: [chainId, String(timestampSeconds - LOOK_FOR_SECONDS), limit],
  });

/** Refused payments that no later block can use. */
export async function endLooks(sql: Sql, ids: readonly string[]): Promise<void> {
  await sql.query(
    "UPDATE settlements SET look_at = 'infinity' WHERE id = ANY ($1) AND status = 'failed'",
    [ids],
  );
}

/** Open settlements whose authorization can no longer be used at or after this block time. */
export const openPastDeadline = (
  sql: Sql,
  chainId: number,
  timestampSeconds: bigint,
  limit: number,
): Promise<SettlementRecord[]> =>
  read(sql, {
    name: "watch-late",
    text: `SELECT ${columnsOf()} FROM settlements
      WHERE chain_id = $1 AND status IN ('queued', 'submitted') AND valid_before <= $2
        AND look_at <= clock_timestamp()
      ORDER BY valid_before LIMIT $3`,
    values: [chainId, String(timestampSeconds), limit],
  });

// Proven outcomes.

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
