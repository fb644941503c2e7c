/** Listings that sellers announce by settling here, and the catalogue the protocol's Bazaar shows. */
import type { Announcement } from "./announcement.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { toJsonb } from "../../core/json.ts";
import { LISTING_COLUMNS, type ListingRow } from "../listings/store.ts";

/** One payee cannot fill the catalogue. */
const MAX_PER_PAYEE = 50;

/**
 * New: kept, unproven, due for a probe at once. Known: its price and extension follow what was paid;
 * the pinned ceiling and payee do not move.
 */
export async function announceListing(sql: Sql, row: Announcement & { id: string }): Promise<void> {
  await sql.query(
    `INSERT INTO listings (id, source, name, description, category, url, method, host, pay_to, asset,
        network, price, price_ceiling, status, flag, status_reason, x402_version, requirement,
        extensions, mime_type)
     SELECT $1, 'bazaar', $2, $3, 'bazaar', $4, $5, $6, $7, $8, $9, $10::numeric, $10::numeric, 'failing',
        'not_probed', 'Announced by its seller; not probed yet.', $11, $12, $13, $14
      WHERE NOT EXISTS (SELECT 1 FROM listings WHERE url = $4 AND method = $5 AND pay_to = $7
                           AND network = $9 AND source <> 'bazaar')
        AND (SELECT count(*) FROM listings WHERE pay_to = $7 AND source = 'bazaar'
                AND (url, method) IS DISTINCT FROM ($4, $5)) < ${MAX_PER_PAYEE}
     ON CONFLICT (url, method, pay_to, network) WHERE source = 'bazaar' DO UPDATE
        SET name = excluded.name, description = excluded.description, extensions = excluded.extensions,
            mime_type = excluded.mime_type, updated_at = clock_timestamp()`,
    [
      row.id,
      row.name,
      row.description,
      row.url,
      row.method,
      row.host,
      row.payTo,
      row.asset,
      row.network,
      row.priceAtomic.toString(),
      row.x402Version,
      toJsonb(row.requirement),
      row.extensions === null ? null : toJsonb(row.extensions),
      row.mimeType,
    ],
  );
}

/** An announced endpoint that never answered again is forgotten; it may be announced anew. */
const FAILURES_UNTIL_FORGOTTEN = 20;

export async function forgetDeadAnnouncements(sql: Sql): Promise<number> {
  const { rowCount } = await sql.query(
    "DELETE FROM listings WHERE source = 'bazaar' AND status = 'failing' AND failures >= $1",
    [FAILURES_UNTIL_FORGOTTEN],
  );
  return rowCount ?? 0;
}

export interface CatalogueFilter {
  query?: string | undefined;
  payTo?: string | undefined;
  scheme?: string | undefined;
  network?: string | undefined;
  extension?: string | undefined;
  limit: number;
  offset: number;
}

/** Freshly announced ones are shown: their payment has just settled here. Failed probes hide a listing. */
const SHOWN = "(status = 'active' OR flag = 'not_probed')";

export async function listCatalogue(
  sql: Sql,
  filter: CatalogueFilter,
): Promise<{ rows: ListingRow[]; total: number }> {
  const words = (filter.query ?? "").split(/\s+/).filter((word) => word !== "");
  const { rows } = await sql.query<ListingRow & { total: bigint }>(
    `SELECT ${LISTING_COLUMNS}, count(*) OVER () AS total FROM listings
      WHERE ${SHOWN}
        AND ($1::text[] = '{}' OR (name || ' ' || description || ' ' || category || ' ' || url) ILIKE ALL ($1))
        AND ($2::text IS NULL OR pay_to = $2)
        AND ($3::text IS NULL OR requirement ->> 'scheme' = $3)
        AND ($4::text IS NULL OR network = $4)
        AND ($5::text IS NULL OR extensions ? $5)
      ORDER BY created_at DESC, id DESC LIMIT $6 OFFSET $7`,
    [
      words.map((word) => `%${word.replaceAll(/[\\%_]/g, String.raw`\$&`)}%`),
      filter.payTo?.toLowerCase() ?? null,
      filter.scheme ?? null,
      filter.network ?? null,
      filter.extension ?? null,
      filter.limit,
      filter.offset,
    ],
  );
  if (rows.length > 0 || filter.offset === 0) return { rows, total: Number(rows[0]?.total ?? 0n) };
  // A page past the end has no row that could carry the total.
  const { total } = await listCatalogue(sql, { ...filter, limit: 1, offset: 0 });
  return { rows, total };
}
