-- Charges the real gas cost of a transaction, in equal parts, to the accounts of the payments in it, in place of the reserved
-- amounts (p_sign 1), or reverts that after a reorganisation (-1). A transaction without payments is charged to the service's
-- own account.
CREATE FUNCTION purser_gas_true_up(p_chain_id BIGINT, p_address TEXT, p_nonce BIGINT, p_cost NUMERIC, p_sign INTEGER)
RETURNS VOID LANGUAGE sql AS $$
  WITH items AS (
    SELECT i.position, i.gas_hold, count(*) OVER () AS n,
           CASE WHEN coalesce(cardinality(s.gas_accounts), 0) = 0 THEN ARRAY['house'] ELSE s.gas_accounts END AS accounts
      FROM settlement_transactions i
      LEFT JOIN settlements s ON s.from_address = i.from_address AND s.chain_id = i.chain_id AND s.asset = i.asset
       AND s.nonce = i.nonce
     WHERE i.chain_id = p_chain_id AND i.lane_address = p_address AND i.lane_nonce = p_nonce
     UNION ALL
    SELECT 0, 0, 1, ARRAY['house'] WHERE NOT EXISTS (
      SELECT 1 FROM settlement_transactions i
       WHERE i.chain_id = p_chain_id AND i.lane_address = p_address AND i.lane_nonce = p_nonce)),
  charges AS (
    SELECT u.account, sum(i.gas_hold) AS held,
           sum(div(p_cost, i.n) + CASE WHEN i.position = 0 THEN mod(p_cost, i.n) ELSE 0 END) AS used
      FROM items i, unnest(i.accounts) AS u (account) GROUP BY u.account)
  SELECT purser_gas_move(p_chain_id, array_agg(account), array_agg(-p_sign * held), array_agg(p_sign * used))
    FROM charges;
$$;
