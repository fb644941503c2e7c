/** What background probes write: who is due, and what was seen. */
import type { Sql } from "../../infra/db/pool.ts";
import { toJsonb } from "../../core/json.ts";
import { findListing, type ListingRow } from "../listings/store.ts";

/**
 * Takes what is due and pushes it into the future in the same statement: replicas never probe the
 * same listing twice, and a process that dies in between loses one round, not the listing. Our own
 * endpoints are not probed: their terms are known (`refreshBuiltIns`).
 */
export async function claimDueListings(
  sql: Sql,
  options: { limit: number; leaseMs: number },
): Promise<ListingRow[]> {
  const { rows } = await sql.query<{ id: string }>(
    `UPDATE listings SET next_probe_at = now() + $2 * interval '1 millisecond'
      WHERE id IN (SELECT id FROM listings
                    WHERE status <> 'paused' AND source <> 'built-in' AND next_probe_at <= now()
                    ORDER BY next_probe_at LIMIT $1 FOR UPDATE SKIP LOCKED)
      RETURNING id`,
    [options.limit, options.leaseMs],
  );
  const found = await Promise.all(rows.map((row) => findListing(sql, row.id)));
  return found.filter((row) => row !== undefined);
}

/** The seller answered with the pinned terms: active again, unless its owner paused it meanwhile. */
export async function recordGoodProbe(
  sql: Sql,
  id: string,
  seen: {
    priceAtomic: bigint;
    requirement: object;
    mimeType: string | null;
    nextProbeInMs: number;
  },
): Promise<void> {
  await sql.query(
    `UPDATE listings
        SET status = CASE WHEN status = 'paused' THEN status ELSE 'active' END,
            flag = NULL, status_reason = NULL, failures = 0, price = $2, requirement = $3,
            mime_type = COALESCE($4, mime_type), last_probed_at = now(), updated_at = clock_timestamp(),
            next_probe_at = now() + $5 * interval '1 millisecond'
      WHERE id = $1`,
    [id, seen.priceAtomic.toString(), toJsonb(seen.requirement), seen.mimeType, seen.nextProbeInMs],
  );
}

/** A failed probe; the listing turns to failing when `failing` says so, and stays what it is otherwise. */
export async function recordBadProbe(
  sql: Sql,
  id: string,
  seen: { failing: boolean; flag: string; reason: string; nextProbeInMs: number },
): Promise<void> {
  await sql.query(
    `UPDATE listings
        SET failures = failures + 1, last_probed_at = now(), updated_at = clock_timestamp(),
            status = CASE WHEN $2 AND status <> 'paused' THEN 'failing' ELSE status END,
            flag = CASE WHEN $2 THEN $3 ELSE flag END,
            status_reason = CASE WHEN $2 THEN $4 ELSE status_reason END,
            next_probe_at = now() + $5 * interval '1 millisecond'
      WHERE id = $1`,
    [id, seen.failing, seen.flag, seen.reason, seen.nextProbeInMs],
  );
}
