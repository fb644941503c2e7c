/**
 * Counts why payments to known merchants were refused before they became a settlement: in memory, stored now and then
 * by the hour. Third parties cannot make it grow without limit: the number of counters is bounded, only reasons of the
 * protocol count, and rows exist for merchants only.
 */
import { Counts, type Counted } from "../../core/counts.ts";
import { parseAddress, isRecord } from "../../core/foreign-text.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { REASONS } from "../../schemes/scheme.ts";

interface Refusal {
  payee: string;
  chainId: number;
  operation: "verify" | "settle";
  reason: string;
}

/** How many different payees, networks and reasons are counted between two hand-overs; further ones are dropped. */
const MOST_COUNTERS = 1_000;

export const refusalCounts = (): Counts<Refusal> => new Counts({ most: MOST_COUNTERS });

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

/** Stores counts only for owners who have a key or were paid here; in the same order on all replicas. */
export async function keepRefusals(sql: Sql, counts: readonly Counted<Refusal>[]): Promise<void> {
  // SQL: all counts at once, and only for merchants: a join that Prisma's upsert does not support.
  await sql.query(
    `INSERT INTO merchant_refusals AS kept (owner_id, hour, chain_id, operation, reason, count)
     SELECT o.id, date_trunc('hour', now()), c.chain_id, c.operation, c.reason, c.count
       FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::bigint[])
              AS c (payee, chain_id, operation, reason, count)
       JOIN owners o ON o.address = c.payee AND o.chain_id IN (0, c.chain_id)
      WHERE EXISTS (SELECT 1 FROM merchant_keys k WHERE k.owner_id = o.id)
         OR EXISTS (SELECT 1 FROM settlements s
                     WHERE s.to_address = c.payee AND (s.kind = 'facilitated' OR (s.kind = 'x402' AND s.relay))
                       AND (o.chain_id = 0 OR s.chain_id = o.chain_id))
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
