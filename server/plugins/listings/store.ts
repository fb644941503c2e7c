/** Listings in Postgres: what is offered, at which pinned terms, and when it is probed next. */
import type { Terms } from "./terms.ts";
import type { Place } from "../../core/paging.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { toJsonb } from "../../core/json.ts";

export type ListingStatus = "active" | "failing" | "paused";
export type ListingSource = "owner" | "bazaar" | "built-in";
export type ListingMethod = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

export interface ListingRow extends Terms, Place {
  source: ListingSource;
  ownerId: string | null;
  name: string;
  description: string;
  category: string;
  url: string;
  method: ListingMethod;
  priceCeilingAtomic: bigint;
  status: ListingStatus;
  flag: string | null;
  statusReason: string | null;
  x402Version: number;
  requirement: Record<string, unknown>;
  extensions: Record<string, unknown> | null;
  mimeType: string | null;
  sample: string | null;
  uses: bigint;
  failures: number;
  lastProbedAt: Date | null;
  createdAt: Date;
  updatedAt: Date;
}

export const LISTING_COLUMNS = `
  id, source, owner_id AS "ownerId", name, description, category, url, method, host,
  pay_to AS "payTo", asset, network, price AS "priceAtomic", price_ceiling AS "priceCeilingAtomic",
  status, flag, status_reason AS "statusReason", x402_version AS "x402Version", requirement,
  extensions, mime_type AS "mimeType", sample, uses, failures, last_probed_at AS "lastProbedAt",
  created_at AS "createdAt", updated_at AS "updatedAt",
  (extract(epoch FROM created_at) * 1000000)::bigint AS "createdAtMicros"`;

export interface ListingFilter {
  search?: string | undefined;
  category?: string | undefined;
  network?: string | undefined;
  maxPriceAtomic?: bigint | undefined;
  status?: ListingStatus | undefined;
  /** Everything of one owner, paused ones too; otherwise only what the public may see. */
  ownerId?: string | undefined;
}

const escapeLike = (text: string): string => text.replaceAll(/[\\%_]/g, String.raw`\$&`);

/** Newest first; one row more than `limit` says that there is a next page. */
export async function listListings(
  sql: Sql,
  filter: ListingFilter,
  page: { limit: number; after: Place | undefined },
): Promise<ListingRow[]> {
  const words = (filter.search ?? "").split(/\s+/).filter((word) => word !== "");
  const { rows } = await sql.query<ListingRow>(
    `SELECT ${LISTING_COLUMNS} FROM listings
      WHERE ($1::text IS NULL AND status <> 'paused' AND flag IS DISTINCT FROM 'not_probed' OR owner_id = $1)
        AND ($2::text[] = '{}' OR (name || ' ' || description || ' ' || category || ' ' || url) ILIKE ALL ($2))
        AND ($3::text IS NULL OR category = $3)
        AND ($4::text IS NULL OR network = $4)
        AND ($5::numeric IS NULL OR price <= $5)
        AND ($6::text IS NULL OR status = $6)
        AND ($7::bigint IS NULL
             OR (created_at, id) < ('epoch'::timestamptz + $7::bigint * interval '1 microsecond', $8))
      ORDER BY created_at DESC, id DESC LIMIT $9`,
    [
      filter.ownerId ?? null,
      words.map((word) => `%${escapeLike(word)}%`),
      filter.category ?? null,
      filter.network ?? null,
      filter.maxPriceAtomic?.toString() ?? null,
      filter.status ?? null,
      page.after?.createdAtMicros.toString() ?? null,
      page.after?.id ?? null,
      page.limit + 1,
    ],
  );
  return rows;
}

export async function findListing(sql: Sql, id: string): Promise<ListingRow | undefined> {
  const { rows } = await sql.query<ListingRow>(
    `SELECT ${LISTING_COLUMNS} FROM listings WHERE id = $1`,
    [id],
  );
  return rows[0];
}

export interface NewListingRow extends Terms {
  id: string;
  source: ListingSource;
  ownerId: string | null;
  builtInKey: string | null;
  name: string;
  description: string;
  category: string;
  url: string;
  method: ListingMethod;
  priceCeilingAtomic: bigint;
  status: ListingStatus;
  flag: string | null;
  statusReason: string | null;
  x402Version: number;
  requirement: object;
  extensions: object | null;
  mimeType: string | null;
  sample: string | null;
  /** Null: never probed, due at once. */
  probedAt: Date | null;
  nextProbeInMs: number;
}

const INSERT = `
  INSERT INTO listings (id, source, owner_id, built_in_key, name, description, category, url, method,
    host, pay_to, asset, network, price, price_ceiling, status, flag, status_reason, x402_version,
    requirement, extensions, mime_type, sample, last_probed_at, next_probe_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
    $20, $21, $22, $23, $24, now() + $25 * interval '1 millisecond')`;

const values = (row: NewListingRow): unknown[] => [
  row.id,
  row.source,
  row.ownerId,
  row.builtInKey,
  row.name,
  row.description,
  row.category,
  row.url,
  row.method,
  row.host,
  row.payTo,
  row.asset,
  row.network,
  row.priceAtomic.toString(),
  row.priceCeilingAtomic.toString(),
  row.status,
  row.flag,
  row.statusReason,
  row.x402Version,
  toJsonb(row.requirement),
  row.extensions === null ? null : toJsonb(row.extensions),
  row.mimeType,
  row.sample,
  row.probedAt,
  row.nextProbeInMs,
];

/** Undefined: this owner listed this endpoint before. */
export async function insertListing(sql: Sql, row: NewListingRow): Promise<ListingRow | undefined> {
  const { rows } = await sql.query<ListingRow>(
    `${INSERT} ON CONFLICT DO NOTHING RETURNING ${LISTING_COLUMNS}`,
    values(row),
  );
  return rows[0];
}

/** Our own endpoints: replicas that start together make one row, a changed origin or payee re-pins it. */
export async function putBuiltIn(sql: Sql, row: NewListingRow): Promise<void> {
  await sql.query(
    `${INSERT} ON CONFLICT (built_in_key) DO UPDATE
        SET name = excluded.name, description = excluded.description, category = excluded.category,
            url = excluded.url, host = excluded.host, pay_to = excluded.pay_to, asset = excluded.asset,
            network = excluded.network, price = excluded.price, price_ceiling = excluded.price_ceiling,
            requirement = excluded.requirement, mime_type = excluded.mime_type, sample = excluded.sample,
            extensions = excluded.extensions, status = 'active', flag = NULL, status_reason = NULL,
            failures = 0, next_probe_at = excluded.next_probe_at, updated_at = clock_timestamp()
      WHERE (listings.url, listings.pay_to, listings.asset, listings.price_ceiling, listings.requirement)
            IS DISTINCT FROM
            (excluded.url, excluded.pay_to, excluded.asset, excluded.price_ceiling, excluded.requirement)
         OR listings.status <> 'active'`,
    values(row),
  );
}

export interface ListingChange {
  name?: string | undefined;
  description?: string | undefined;
  category?: string | undefined;
  priceCeilingAtomic?: bigint | undefined;
  status?: ListingStatus | undefined;
  flag?: string | null | undefined;
  statusReason?: string | null | undefined;
  probeNow?: boolean | undefined;
}

export async function changeListing(
  sql: Sql,
  key: { id: string; ownerId: string },
  change: ListingChange,
): Promise<ListingRow | undefined> {
  const { rows } = await sql.query<ListingRow>(
    `UPDATE listings
        SET name = COALESCE($3, name), description = COALESCE($4, description),
            category = COALESCE($5, category), price_ceiling = COALESCE($6::numeric, price_ceiling),
            status = COALESCE($7, status),
            flag = CASE WHEN $8 THEN $9 ELSE flag END,
            status_reason = CASE WHEN $8 THEN $10 ELSE status_reason END,
            next_probe_at = CASE WHEN $11 THEN now() ELSE next_probe_at END,
            updated_at = clock_timestamp()
      WHERE id = $1 AND owner_id = $2 RETURNING ${LISTING_COLUMNS}`,
    [
      key.id,
      key.ownerId,
      change.name ?? null,
      change.description ?? null,
      change.category ?? null,
      change.priceCeilingAtomic?.toString() ?? null,
      change.status ?? null,
      change.flag !== undefined,
      change.flag ?? null,
      change.statusReason ?? null,
      change.probeNow ?? false,
    ],
  );
  return rows[0];
}

export async function deleteListing(
  sql: Sql,
  key: { id: string; ownerId: string },
): Promise<boolean> {
  const { rowCount } = await sql.query("DELETE FROM listings WHERE id = $1 AND owner_id = $2", [
    key.id,
    key.ownerId,
  ]);
  return rowCount === 1;
}

export async function countUse(sql: Sql, id: string): Promise<void> {
  await sql.query("UPDATE listings SET uses = uses + 1 WHERE id = $1", [id]);
}

/** Somebody met other terms than the pinned ones: failing at once, and probed soon. */
export async function flagListing(
  sql: Sql,
  id: string,
  flag: string,
  reason: string,
): Promise<void> {
  await sql.query(
    `UPDATE listings
        SET status = CASE WHEN status = 'paused' THEN status ELSE 'failing' END, flag = $2,
            status_reason = $3, updated_at = clock_timestamp(),
            next_probe_at = LEAST(next_probe_at, now() + interval '1 minute')
      WHERE id = $1`,
    [id, flag, reason],
  );
}
