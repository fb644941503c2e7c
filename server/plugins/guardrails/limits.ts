import type { Limits } from "./types.ts";
import { remainingOf } from "./explain.ts";
import type { Sql } from "../../infra/db/pool.ts";

interface Row {
  id: string;
  limitAtomic: bigint;
  windowSum: bigint;
  reservedAtomic: bigint;
  nextReleaseAt: Date | null;
}

/** The rolling window of many agents in one query, as of now; reads only, the tail stays where it is. */
export async function readLimits(
  sql: Sql,
  agentIds: readonly string[],
): Promise<Map<string, Limits>> {
  const { rows } = await sql.query<Row>(
    `SELECT a.id, a.daily_limit AS "limitAtomic", a.window_sum - freed.total AS "windowSum",
            outstanding.total AS "reservedAtomic", oldest.release_at AS "nextReleaseAt"
       FROM agents a
      CROSS JOIN LATERAL (SELECT GREATEST(clock_timestamp(), a.window_tail_at + interval '24 hours')
                                 - interval '24 hours' AS edge) w
      CROSS JOIN LATERAL (
        SELECT COALESCE(sum(p.amount), 0) AS total FROM payments p
         WHERE p.agent_id = a.id AND p.created_at > a.window_tail_at AND p.created_at <= w.edge
           AND p.counted) freed
      CROSS JOIN LATERAL (
        SELECT COALESCE(sum(p.amount), 0) AS total FROM payments p
         WHERE p.agent_id = a.id AND p.created_at > w.edge AND p.counted AND p.outstanding) outstanding
       LEFT JOIN LATERAL (
        SELECT purser_leaves_window_at(p.created_at) AS release_at FROM payments p
         WHERE p.agent_id = a.id AND p.created_at > w.edge AND p.counted
         ORDER BY p.created_at, p.id LIMIT 1) oldest ON true
      WHERE a.id = ANY($1::text[])`,
    [agentIds],
  );
  return new Map(
    rows.map((row) => [
      row.id,
      {
        limitAtomic: row.limitAtomic,
        spentAtomic: row.windowSum - row.reservedAtomic,
        reservedAtomic: row.reservedAtomic,
        remainingAtomic: remainingOf(row.limitAtomic, row.windowSum),
        nextReleaseAt: row.nextReleaseAt,
      },
    ]),
  );
}

/** What a wallet has promised and its balance at that block does not show yet, in atomic units. */
export async function readOutstanding(
  sql: Sql,
  args: { agentId: string; chainId: number; balanceBlock: bigint },
): Promise<bigint> {
  const { rows } = await sql.query<{ total: bigint }>(
    "SELECT purser_outstanding($1, $2, $3) AS total",
    [args.agentId, String(args.chainId), String(args.balanceBlock)],
  );
  return rows[0]?.total ?? 0n;
}
