/** What was sold, by product: sums over the URL without its query, and why payments for it were refused. */
import { readForeignJson } from "../../core/foreign-text.ts";
import { formatAtomic } from "../../core/money.ts";
import { DEFAULT_PAGE_SIZE } from "../../core/paging.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { atomicOf, decimalOf, Prisma, type Db } from "../../infra/db/prisma.ts";
import type { MerchantProductPage, MerchantProductQuery } from "../../schemas/merchants.ts";
import { firstDay, type Payee, type ReasonRow } from "./store.ts";
import { presentReason } from "./view.ts";

/** The place in the list: by volume, then by what went wrong, then by the key. */
interface ProductPlace {
  /** The end of the time that is summed: the same for all pages. */
  until: Date;
  volume: bigint;
  trouble: number;
  key: string;
}

export interface ProductRequest {
  days: number;
  limit: number;
  after: ProductPlace | undefined;
}

const DEFAULT_DAYS = 30;
const MOST_REASONS = 5;

export function readProductRequest(query: MerchantProductQuery): ProductRequest {
  const after = query.cursor === undefined ? undefined : decodePlace(query.cursor);
  if (query.cursor !== undefined && !after)
    throw refuseField("validation_failed", "query.cursor", "is not a cursor of this list");
  const limit = query.limit === undefined ? DEFAULT_PAGE_SIZE : Number(query.limit);
  return { days: Number(query.days ?? DEFAULT_DAYS), limit, after };
}

const encodePlace = ({ until, volume, trouble, key }: ProductPlace): string =>
  Buffer.from(JSON.stringify([until.getTime(), String(volume), trouble, key])).toString(
    "base64url",
  );

function decodePlace(cursor: string): ProductPlace | undefined {
  const text = Buffer.from(cursor, "base64url").toString("utf8");
  const read = readForeignJson(() => JSON.parse(text) as unknown);
  if (!read.ok || !Array.isArray(read.value) || read.value.length !== 4) return undefined;
  const [until, volume, trouble, key] = read.value as unknown[];
  if (!isCount(until, 8.64e15) || !isCount(trouble, 2 ** 31 - 1)) return undefined;
  if (typeof volume !== "string" || !/^\d{1,78}$/.test(volume)) return undefined;
  if (typeof key !== "string" || !/^[0-9a-f]{32}$/.test(key)) return undefined;
  return { until: new Date(until), volume: BigInt(volume), trouble, key };
}

const isCount = (value: unknown, most: number): value is number =>
  typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= most;

export interface ProductRow {
  /** Empty if the payments do not name it. */
  url: string;
  method: string;
  settled: number;
  volume: bigint;
  refunded: bigint;
  pending: number;
  failed: number;
  refused: number;
  trouble: number;
  key: string;
}
type StoredProduct = Omit<ProductRow, "volume" | "refunded"> & {
  volume: Prisma.Decimal;
  refunded: Prisma.Decimal;
};

interface Sold {
  days: number;
  until: Date;
  after: ProductPlace | undefined;
  most: number;
}

/** Of one cell's products: those with the highest volume. */
export const MOST_OF_CELL = 500;

/** The highest volume first. Payments that arrive meanwhile are not in later pages. */
export async function readProducts(
  db: Db,
  owner: Payee & { id: string },
  request: ProductRequest & { until: Date },
  /** Undefined where there are no other cells. */
  ofOthers?: readonly ProductRow[],
): Promise<MerchantProductPage> {
  const { days, limit, until, after } = request;
  const most = limit + 1;
  const isAlone = ofOthers === undefined;
  const here = await readSold(db, owner, {
    days,
    until,
    ...(isAlone ? { after, most } : { after: undefined, most: MOST_OF_CELL }),
  });
  const rows = isAlone ? here : mergeProducts([here, ofOthers], { after, most });
  const shown = rows.slice(0, limit);
  const since = await firstDay(db, days);
  const reasons = await readReasons(db, owner.id, { since, shown });
  const last = shown.at(-1);
  const isMore = rows.length > limit && last !== undefined;
  return {
    items: shown.map((row) => present(row, reasons.get(row.key) ?? [])),
    nextCursor: isMore ? encodePlace({ ...last, until }) : null,
  };
}

type ProductOrder = Pick<ProductPlace, "volume" | "trouble" | "key">;
const byVolume = (left: ProductOrder, right: ProductOrder): number =>
  left.volume === right.volume
    ? right.trouble - left.trouble || (left.key < right.key ? -1 : left.key > right.key ? 1 : 0)
    : left.volume > right.volume
      ? -1
      : 1;

/** The sums of several cells, in the order of the list. */
export function mergeProducts(
  lists: readonly (readonly ProductRow[])[],
  { after, most }: Pick<Sold, "after" | "most">,
): ProductRow[] {
  const sums = new Map<string, ProductRow>();
  for (const row of lists.flat()) {
    const sum = sums.get(row.key);
    sums.set(row.key, sum ? addProduct(sum, row) : row);
  }
  return [...sums.values()]
    .filter((row) => after === undefined || byVolume(after, row) < 0)
    .toSorted(byVolume)
    .slice(0, most);
}

const addProduct = (left: ProductRow, right: ProductRow): ProductRow => ({
  ...left,
  settled: left.settled + right.settled,
  volume: left.volume + right.volume,
  refunded: left.refunded + right.refunded,
  pending: left.pending + right.pending,
  failed: left.failed + right.failed,
  refused: left.refused + right.refused,
  trouble: left.trouble + right.trouble,
});

/** `owner.id`: null in a cell that has no account of this wallet. */
export async function readSold(
  db: Db,
  owner: Payee & { id: string | null },
  { days, until, after, most }: Sold,
): Promise<ProductRow[]> {
  const since = await firstDay(db, days);
  const later =
    after === undefined
      ? Prisma.sql`TRUE`
      : Prisma.sql`(g.volume, g.trouble) < (${decimalOf(after.volume)}::numeric, ${after.trouble}::int)
          OR ((g.volume, g.trouble) = (${decimalOf(after.volume)}::numeric, ${after.trouble}::int) AND g.key > ${after.key})`;
  // SQL: sums of two tables over what was sold. The first conditions match settlements_payee_idx.
  const rows = await db.$queryRaw<StoredProduct[]>`
    WITH back AS (
      SELECT r.settlement_id, sum(r.value) AS refunded
        FROM refunds r JOIN settlements s USING (from_address, chain_id, asset, nonce)
       WHERE r.from_address = ${owner.address} AND (${owner.chainId} = 0 OR r.chain_id = ${owner.chainId})
         AND r.created_at >= ${since}
         AND NOT (s.status IN ('failed', 'expired') AND s.final_at IS NOT NULL)
       GROUP BY 1),
    sold AS (
      SELECT coalesce(split_part(p.resource_url, '?', 1), '') AS url, coalesce(p.resource_method, '') AS method,
             count(*) FILTER (WHERE p.status = 'settled')::int AS settled,
             coalesce(sum(p.value) FILTER (WHERE p.status = 'settled'), 0) AS volume,
             coalesce(sum(back.refunded), 0) AS refunded,
             count(*) FILTER (WHERE p.status IN ('queued', 'submitted'))::int AS pending,
             count(*) FILTER (WHERE p.status IN ('failed', 'expired'))::int AS failed
        FROM settlements p LEFT JOIN back ON back.settlement_id = p.id
       WHERE (p.kind = 'facilitated' OR (p.kind = 'x402' AND p.relay))
         AND p.to_address = ${owner.address} AND p.created_at >= ${since} AND p.created_at <= ${until}
         AND (${owner.chainId} = 0 OR p.chain_id = ${owner.chainId})
       GROUP BY 1, 2),
    refused AS (
      SELECT url, method, sum(count)::int AS refused FROM merchant_product_refusals
       WHERE owner_id = ${owner.id} AND day >= ${since} GROUP BY 1, 2),
    sums AS (
      SELECT url, method, coalesce(settled, 0) AS settled, coalesce(volume, 0) AS volume,
             coalesce(refunded, 0) AS refunded, coalesce(pending, 0) AS pending, coalesce(failed, 0) AS failed,
             coalesce(refused, 0) AS refused, coalesce(failed, 0) + coalesce(refused, 0) AS trouble,
             left(encode(sha256(convert_to(method || ' ' || url, 'UTF8')), 'hex'), 32) AS key
        FROM sold FULL JOIN refused USING (url, method))
    SELECT * FROM sums g WHERE ${later}
     ORDER BY volume DESC, trouble DESC, key LIMIT ${most}`;
  return rows.map((row) => ({
    ...row,
    volume: atomicOf(row.volume),
    refunded: atomicOf(row.refunded),
  }));
}

/** The most frequent reasons of each product. */
async function readReasons(
  db: Db,
  ownerId: string,
  { since, shown }: { since: Date; shown: readonly ProductRow[] },
): Promise<Map<string, ReasonRow[]>> {
  const refused = shown.filter((row) => row.refused > 0);
  if (refused.length === 0) return new Map();
  // SQL: the first few of each group.
  const rows = await db.$queryRaw<(ReasonRow & { key: string })[]>`
    SELECT key, reason, count, "lastAt" FROM (
      SELECT w.key, r.reason, sum(r.count)::int AS count, max(r.last_at) AS "lastAt",
             row_number() OVER (PARTITION BY w.key ORDER BY sum(r.count) DESC, r.reason) AS place
        FROM merchant_product_refusals r
        JOIN unnest(${refused.map(({ key }) => key)}::text[], ${refused.map(({ url }) => url)}::text[],
                    ${refused.map(({ method }) => method)}::text[]) AS w (key, url, method) USING (url, method)
       WHERE r.owner_id = ${ownerId} AND r.day >= ${since}
       GROUP BY w.key, r.reason) AS counted
     WHERE place <= ${MOST_REASONS} ORDER BY key, place`;
  const ofProduct = new Map<string, ReasonRow[]>();
  for (const { key, ...row } of rows) ofProduct.set(key, [...(ofProduct.get(key) ?? []), row]);
  return ofProduct;
}

const present = (
  row: ProductRow,
  reasons: readonly ReasonRow[],
): MerchantProductPage["items"][number] => ({
  id: row.key,
  thirdParty: {
    untrusted: true,
    url: row.url === "" ? null : row.url,
    method: row.method === "" ? null : row.method,
  },
  settled: row.settled,
  volume: formatAtomic(row.volume),
  refunded: formatAtomic(row.refunded),
  pending: row.pending,
  failed: row.failed,
  refused: row.refused,
  refusals: reasons.map(presentReason),
});
