-- Moves amounts on gas accounts, whatever their balance: p_held is reserved (or released), p_used was paid. Accounts are locked
-- in the order of their names, so that two transactions cannot deadlock. Always the last lock that a transaction takes.
CREATE FUNCTION purser_gas_move(p_chain_id BIGINT, p_accounts TEXT[], p_held NUMERIC[], p_used NUMERIC[])
RETURNS VOID LANGUAGE sql AS $$
  INSERT INTO gas_accounts AS g (chain_id, account, full_at, held, used)
  SELECT p_chain_id, m.account, statement_timestamp() + purser_gas_refill(m.held + m.used, l.per_day), m.held, m.used
    FROM (SELECT account, sum(held) AS held, sum(used) AS used
            FROM unnest(p_accounts, p_held, p_used) AS u (account, held, used) GROUP BY account) AS m
    LEFT JOIN gas_limits l ON l.chain_id = p_chain_id AND l.name = split_part(m.account, ':', 1)
   ORDER BY m.account
  ON CONFLICT (chain_id, account) DO UPDATE
     SET held = g.held + EXCLUDED.held, used = g.used + EXCLUDED.used, used_on = EXCLUDED.used_on,
         full_at = greatest(g.full_at, statement_timestamp()) + (EXCLUDED.full_at - statement_timestamp());
$$;
