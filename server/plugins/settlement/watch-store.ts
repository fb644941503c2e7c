/**
 * Settlements to watch on chain, in the database: open ones that others relay, late ones, refused ones, and the
 * progress of event searches.
 */
import type { Sql } from "../../infra/db/pool.ts";
import { recordColumns, type SettlementRecord } from "./store.ts";

/** Stores how far the search for the event of its use has come. */
export async function saveSearch(
  sql: Sql,
  record: SettlementRecord,
  search: { up: bigint | null; down: bigint | null },
): Promise<void> {
  await sql.query(
    `UPDATE settlements SET searched_up = $5, searched_down = $6
      WHERE from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce = $4`,
    [...columnsOf(record), text(search.up), text(search.down)],
  );
}

/**
 * Postpones the next check; the delay grows with each check without a result. A search in progress continues at
 * once, unless it failed.
 */
export async function postponeLook(
  sql: Sql,
  record: SettlementRecord,
  isBroken: boolean,
): Promise<void> {
  await sql.query(
    `UPDATE settlements
        SET look_failures = look_failures + 1,
            look_at = clock_timestamp() + least(60, power(2, least(look_failures, 6))) * interval '1 second'
      WHERE from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce = $4 AND ($5 OR searched_up IS NULL)`,
    [...columnsOf(record), isBroken],
  );
}

const columnsOf = (record: SettlementRecord) => [
  record.from_address,
  String(record.chain_id),
  record.asset,
  record.nonce,
];
const text = (value: bigint | null): string | null => (value === null ? null : String(value));

/**
 * This settlement and those that would leave the same trace on chain: open, or reported as settled in this
 * block. Ordered by the amount that may move.
 */
export async function usesAlike(
  sql: Sql,
  record: SettlementRecord,
  block: bigint,
): Promise<SettlementRecord[]> {
  const { rows } = await sql.query<SettlementRecord>(
    `SELECT s.* FROM settlements s
       JOIN settlements r ON r.from_address = $1 AND r.chain_id = $2 AND r.asset = $3 AND r.nonce = $4
      WHERE s.from_address = $1 AND s.chain_id = $2 AND s.asset = $3 AND s.to_address = r.to_address
        AND s.terms->>'scheme' = r.terms->>'scheme' AND (s.value = r.value OR s.terms ? 'maximum')
        AND (s.status IN ('queued', 'submitted') OR s.status = 'settled' AND s.block_number = $5)
      ORDER BY coalesce((s.terms->>'maximum')::numeric, s.value), s.nonce`,
    [...columnsOf(record), String(block)],
  );
  return rows;
}

/** Settlements paid by other parties' transactions that are now deep enough to be final. */
export async function unfinalByOthers(
  sql: Sql,
  chainId: number,
  finalBlock: bigint,
  limit: number,
): Promise<SettlementRecord[]> {
  const { rows } = await sql.query<SettlementRecord>({
    name: "watch-unfinal",
    text: `SELECT ${recordColumns("s.")} FROM settlements s
      WHERE chain_id = $1 AND status = 'settled' AND by_other AND final_at IS NULL AND block_number <= $2
        AND look_at <= clock_timestamp()
      ORDER BY block_number LIMIT $3`,
    values: [chainId, String(finalBlock), limit],
  });
  return rows;
}

/** Open settlements that we do not relay, earliest deadline first. */
export async function openWatched(
  sql: Sql,
  chainId: number,
  limit: number,
): Promise<SettlementRecord[]> {
  const { rows } = await sql.query<SettlementRecord>({
    name: "watch-open",
    text: `SELECT ${recordColumns("s.")} FROM settlements s
      WHERE chain_id = $1 AND status = 'queued' AND NOT relay AND lane_address IS NULL
        AND look_at <= clock_timestamp()
      ORDER BY valid_before LIMIT $2`,
    values: [chainId, limit],
  });
  return rows;
}

/**
 * Third parties' payments that were refused and have not expired: anyone may still relay them. Returned rows
 * are not checked again for 15 seconds.
 */
export async function takeRefusedButUsable(
  sql: Sql,
  chainId: number,
  timestampSeconds: bigint,
  limit: number,
): Promise<SettlementRecord[]> {
  const { rows } = await sql.query<SettlementRecord>({
    name: "watch-refused",
    text: `UPDATE settlements s SET look_at = clock_timestamp() + interval '15 seconds'
       FROM (SELECT from_address, chain_id, asset, nonce FROM settlements
              WHERE chain_id = $1 AND status = 'failed' AND proof->>'kind' = 'refusal' AND kind = 'facilitated'
                AND valid_before > $2 AND look_at <= clock_timestamp()
              ORDER BY valid_before LIMIT $3 FOR UPDATE SKIP LOCKED) AS due
      WHERE s.from_address = due.from_address AND s.chain_id = due.chain_id AND s.asset = due.asset
        AND s.nonce = due.nonce
      RETURNING ${recordColumns("s.")}`,
    values: [chainId, String(timestampSeconds), limit],
  });
  return rows;
}

/** Open settlements whose authorization can no longer be used at or after this block time. */
export async function openPastDeadline(
  sql: Sql,
  chainId: number,
  timestampSeconds: bigint,
  limit: number,
): Promise<SettlementRecord[]> {
  const { rows } = await sql.query<SettlementRecord>({
    name: "watch-late",
    text: `SELECT ${recordColumns("s.")} FROM settlements s
      WHERE chain_id = $1 AND status IN ('queued', 'submitted') AND valid_before <= $2
        AND look_at <= clock_timestamp()
      ORDER BY valid_before LIMIT $3`,
    values: [chainId, String(timestampSeconds), limit],
  });
  return rows;
}
