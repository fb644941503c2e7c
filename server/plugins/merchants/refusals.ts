/**
 * Counts why payments to known merchants were refused before they became a settlement: in memory, stored now and then
 * by the hour. Third parties cannot make it grow without limit: the number of counters is bounded, only reasons of the
 * protocol count, and rows exist for merchants only. Each count is also sent to the other cells, once: a merchant's
 * account is in one of them, and only that cell stores it.
 */
import { Counts, type Counted } from "../../core/counts.ts";
import { parseAddress, isRecord } from "../../core/foreign-text.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { REASONS } from "../../schemes/scheme.ts";
import { productIn, type Product } from "../facilitator/resource.ts";

interface Refusal {
  payee: string;
  chainId: number;
  operation: "verify" | "settle";
  reason: string;
}

/** The same by what was to be sold, if the request names it. */
interface ProductRefusal extends Omit<Refusal, "operation">, Product {}

/** How many different payees, networks and reasons are counted between two hand-overs; further ones are dropped. */
export const MOST_COUNTERS = 1_000;
/** Of a merchant and a day: URLs are third parties' text, and an attacker has as many as it wants. */
const MOST_ROWS_PER_DAY = 100;

export const refusalCounts = (): Counts<Refusal> => new Counts({ most: MOST_COUNTERS });
/** Apart from the others, so that invented URLs cannot displace them. */
export const productCounts = (): Counts<ProductRefusal> => new Counts({ most: MOST_COUNTERS });

/** The countable part of a refused request: a reason of the protocol, and a payee on a configured network. */
export function refusalOf(
  operation: Refusal["operation"],
  { body, reason }: { body: unknown; reason: string },
  networks: readonly NetworkFacts[],
): Refusal | undefined {
  if (!Object.hasOwn(REASONS, reason)) return undefined;
  const requirements = isRecord(body) ? body["paymentRequirements"] : undefined;
  if (!isRecord(requirements)) return undefined;
  const payTo = parseAddress(requirements["payTo"]);
  const name = requirements["network"];
  const network = typeof name === "string" ? findNetwork(name, networks) : undefined;
  if (!payTo.ok || !network) return undefined;
  return { payee: payTo.address, chainId: network.chainId, operation, reason };
}

export function productRefusalOf(
  { payee, chainId, reason }: Refusal,
  body: unknown,
): ProductRefusal | undefined {
  const product = productIn(body);
  return product && { payee, chainId, reason, url: product.url, method: product.method };
}

/** Of the owner `o`, and the counted payment `c`: the owner has a key or was paid, here or in another cell. */
const IS_MERCHANT = `o.moved_at IS NULL AND (EXISTS (SELECT 1 FROM merchant_keys k WHERE k.owner_id = o.id)
  OR EXISTS (SELECT 1 FROM notifications n WHERE n.owner_id = o.id AND n.type = 'settlement.settled')
  OR EXISTS (SELECT 1 FROM settlements s
              WHERE s.to_address = c.payee AND (s.kind = 'facilitated' OR (s.kind = 'x402' AND s.relay))
                AND (o.chain_id = 0 OR s.chain_id = o.chain_id)))`;

/** In the same order on all replicas. */
export async function keepRefusals(sql: Sql, counts: readonly Counted<Refusal>[]): Promise<void> {
  // SQL: all counts at once, and only for merchants: a join that Prisma's upsert does not support.
  await sql.query(
    `INSERT INTO merchant_refusals AS kept (owner_id, hour, chain_id, operation, reason, count)
     SELECT o.id, date_trunc('hour', now()), c.chain_id, c.operation, c.reason, c.count
       FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::bigint[])
              AS c (payee, chain_id, operation, reason, count)
       JOIN owners o ON o.address = c.payee AND o.chain_id IN (0, c.chain_id)
      WHERE ${IS_MERCHANT}
      ORDER BY 1, 3, 4, 5
     ON CONFLICT (owner_id, hour, chain_id, operation, reason) DO UPDATE SET count = kept.count + EXCLUDED.count`,
    [
      counts.map(({ payee }) => payee),
      counts.map(({ chainId }) => chainId),
      counts.map(({ operation }) => operation),
      counts.map(({ reason }) => reason),
      counts.map(({ count }) => count),
    ],
  );
}

/**
 * Stores counts by product. After the first hundred rows of a merchant and a day only those are counted on; the counts
 * without products stay complete.
 */
export async function keepProductRefusals(
  sql: Sql,
  counts: readonly Counted<ProductRefusal>[],
): Promise<void> {
  // SQL: as above; the numbered rows keep the limit within one statement.
  await sql.query(
    `WITH today AS (SELECT date_trunc('day', now(), 'UTC') AS day),
     counted AS (
       SELECT o.id AS owner_id, today.day, c.url, c.method, c.reason, sum(c.count) AS count
         FROM today, unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[])
                AS c (payee, chain_id, url, method, reason, count)
         JOIN owners o ON o.address = c.payee AND o.chain_id IN (0, c.chain_id)
        WHERE ${IS_MERCHANT}
        GROUP BY 1, 2, 3, 4, 5),
     numbered AS (
       SELECT counted.*, known.url IS NOT NULL AS is_known,
              row_number() OVER (PARTITION BY counted.owner_id, known.url IS NULL
                                 ORDER BY counted.count DESC, counted.url, counted.method, counted.reason) AS number
         FROM counted LEFT JOIN merchant_product_refusals known USING (owner_id, day, url, method, reason))
     INSERT INTO merchant_product_refusals AS kept (owner_id, day, url, method, reason, count, last_at)
     SELECT n.owner_id, n.day, n.url, n.method, n.reason, n.count, now()
       FROM numbered n
      WHERE n.is_known OR n.number + (SELECT count(*) FROM merchant_product_refusals r
                                       WHERE r.owner_id = n.owner_id AND r.day = n.day) <= $7
      ORDER BY 1, 2, 3, 4, 5
     ON CONFLICT (owner_id, day, url, method, reason)
     DO UPDATE SET count = kept.count + EXCLUDED.count, last_at = EXCLUDED.last_at`,
    [
      counts.map(({ payee }) => payee),
      counts.map(({ chainId }) => chainId),
      counts.map(({ url }) => url),
      counts.map(({ method }) => method ?? ""),
      counts.map(({ reason }) => reason),
      counts.map(({ count }) => count),
      MOST_ROWS_PER_DAY,
    ],
  );
}
