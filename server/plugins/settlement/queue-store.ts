/**
 * The queue in the database: settlements that wait to be relayed, the order in which a lane claims them, and
 * how long they have waited.
 */
import type { Sql } from "../../infra/db/pool.ts";
import type { Lease } from "./lane-store.ts";
import { recordColumns, type SettlementRecord } from "./store.ts";

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
const READY = `${WAITING} AND next_attempt_at <= clock_timestamp() AND EXISTS (SELECT 1 FROM lane)`;

/** Settlements that only this lane may send: the same, by the index `settlements_bound_idx`. */
const BOUND = `${QUEUED} AND only_lane = $2 AND next_attempt_at <= clock_timestamp() AND EXISTS (SELECT 1 FROM lane)`;

/**
 * Claims withdrawals, then agents' payments, then third parties', each in queue order. Five index scans, each
 * with a LIMIT, so the length of the queue does not matter.
 */
export async function claim(sql: Sql, lease: Lease, room: ClaimRoom): Promise<SettlementRecord[]> {
  const { rows } = await sql.query<SettlementRecord>({
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
     strangers AS (
       SELECT from_address, chain_id, asset, nonce FROM settlements WHERE ${READY} AND NOT solo AND class = 2
        ORDER BY turn LIMIT greatest($5 - (SELECT count(*) FROM own), 0) FOR UPDATE SKIP LOCKED),
     free_solo AS (
       SELECT from_address, chain_id, asset, nonce, turn FROM settlements WHERE ${READY} AND solo AND class = 2
        ORDER BY turn LIMIT $7 FOR UPDATE SKIP LOCKED),
     bound_solo AS (
       SELECT from_address, chain_id, asset, nonce, turn FROM settlements WHERE ${BOUND}
        ORDER BY turn LIMIT $7 FOR UPDATE SKIP LOCKED),
     strangers_solo AS (
       SELECT from_address, chain_id, asset, nonce
         FROM (TABLE free_solo UNION ALL TABLE bound_solo) AS either ORDER BY turn LIMIT $7),
     picked AS (
       TABLE own UNION ALL TABLE own_solo UNION ALL TABLE strangers UNION ALL TABLE strangers_solo)
     UPDATE settlements s SET lane_address = $2, lane_epoch = $4
       FROM picked p
      WHERE s.from_address = p.from_address AND s.chain_id = p.chain_id AND s.asset = p.asset AND s.nonce = p.nonce
     RETURNING ${recordColumns("s.")}`,
    values: [
      lease.chainId,
      lease.address,
      lease.owner,
      String(lease.epoch),
      room.batchable,
      room.ownSolo,
      room.thirdPartySolo,
    ],
  });
  return rows.sort(inQueueOrder);
}

export const inQueueOrder = (one: SettlementRecord, other: SettlementRecord): number =>
  one.class - other.class ||
  one.turn.getTime() - other.turn.getTime() ||
  one.created_at.getTime() - other.created_at.getTime();

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
         SELECT turn FROM settlements s WHERE ${WAITING} AND NOT s.solo AND s.class = c.class
          ORDER BY s.turn LIMIT 1) AS first
     UNION ALL
     SELECT NULL, lane_address, extract(epoch FROM clock_timestamp() - min(created_at))::float8
       FROM relayer_transactions WHERE chain_id = $1 AND status = 'pending' GROUP BY lane_address`,
    values: [chainId],
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

/**
 * Returns claimed settlements to the queue, now or for later; `solo` marks those that must be sent alone from
 * now on. A postponed one moves back in the queue to that time. Their rehearsal no longer counts.
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
            solo = s.solo OR $8,
            rehearsed_block = NULL
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
