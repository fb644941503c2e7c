// Whether the gas accounts say what the transactions cost.
import type { ClientBase, Pool } from "pg";

/**
 * Accounts that differ: every transaction's cost is charged exactly once, in equal parts, to the accounts of its payments;
 * and the reserved gas is what open payments still need. A single statement, so that it reads one consistent snapshot.
 */
export async function differingGasAccounts(
  sql: Pick<Pool | ClientBase, "query">,
): Promise<object[]> {
  const { rows } = await (sql as Pool).query<object>(
    `WITH items AS (
       SELECT t.chain_id, t.gas_cost, i.gas_hold,
              CASE WHEN t.gas_cost IS NOT NULL THEN div(t.gas_cost, count(*) OVER w)
                + CASE WHEN coalesce(i.position, 0) = 0 THEN mod(t.gas_cost, count(*) OVER w) ELSE 0 END ELSE 0 END AS part,
              CASE WHEN coalesce(cardinality(s.gas_accounts), 0) = 0 THEN ARRAY['house'] ELSE s.gas_accounts END AS accounts
         FROM relayer_transactions t
         LEFT JOIN settlement_transactions i ON i.chain_id = t.chain_id AND i.lane_address = t.lane_address AND i.lane_nonce = t.nonce
         LEFT JOIN settlements s ON s.from_address = i.from_address AND s.chain_id = i.chain_id AND s.asset = i.asset AND s.nonce = i.nonce
       WINDOW w AS (PARTITION BY t.chain_id, t.lane_address, t.nonce)),
     due AS (
       SELECT chain_id, unnest(accounts) AS account, part AS used,
              CASE WHEN gas_cost IS NULL THEN coalesce(gas_hold, 0) ELSE 0 END AS held FROM items
       UNION ALL
       SELECT chain_id, unnest(gas_accounts), 0, gas_hold FROM settlements
        WHERE status IN ('queued', 'submitted') AND attempts = 0
       UNION ALL
       SELECT p.chain_id, CASE p.kind WHEN 'withdrawal' THEN 'withdrawer:' ELSE 'owner:' END || a.owner_id, 0, p.gas_hold
         FROM payments p JOIN agents a ON a.id = p.agent_id WHERE p.status = 'reserved'),
     owed AS (SELECT chain_id, account, sum(used) AS used, sum(held) AS held FROM due GROUP BY 1, 2)
     SELECT account, g.used::text AS used, o.used::text AS should_be_used, g.held::text AS held, o.held::text AS should_be_held
       FROM owed o FULL JOIN gas_accounts g USING (chain_id, account)
      WHERE account NOT LIKE 'cancels:%'
        AND (coalesce(g.used, 0) <> coalesce(o.used, 0) OR coalesce(g.held, 0) <> coalesce(o.held, 0))`,
  );
  return rows;
}
