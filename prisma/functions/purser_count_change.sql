-- Adds an amount and a number of payments to every window and sum that contains that time. The caller holds the lock on the
-- agent's row, or on the budget's if p_agent_id is a budget's id.
CREATE FUNCTION purser_count_change(p_agent_id TEXT, p_at TIMESTAMPTZ, p_payee TEXT, p_amount NUMERIC, p_payments INTEGER)
RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  UPDATE agents SET window_sum = window_sum + p_amount WHERE id = p_agent_id AND window_tail_at < p_at;
  -- A payment newer than a window is counted when the window reaches it.
  UPDATE spending_windows w SET amount = w.amount + p_amount, payments = w.payments + p_payments
   WHERE w.agent_id = p_agent_id AND w.payee IN ('', p_payee) AND w.after_at < p_at AND w.to_at >= p_at;
  -- The payee may have no row in this period: all of its payments were removed, or the period was summed before this payment.
  IF p_payments > 0 THEN
    INSERT INTO payment_sums (agent_id, payee, level, after_at, to_at, amount, payments)
    SELECT p_agent_id, p_payee, holding.level, holding.after_at, holding.to_at, 0, 0
      FROM (VALUES (1), (2)) AS each (level), LATERAL (
             SELECT c.level, c.after_at, c.to_at FROM payment_sums c
              WHERE c.agent_id = p_agent_id AND c.payee = '' AND c.level = each.level AND c.after_at < p_at
              ORDER BY c.after_at DESC LIMIT 1) AS holding
     WHERE holding.to_at >= p_at
    ON CONFLICT DO NOTHING;
  END IF;
  UPDATE payment_sums s SET amount = s.amount + p_amount, payments = s.payments + p_payments
    FROM (VALUES (1, ''), (2, ''), (1, p_payee), (2, p_payee)) AS each (level, payee), LATERAL (
           SELECT c.after_at FROM payment_sums c
            WHERE c.agent_id = p_agent_id AND c.payee = each.payee AND c.level = each.level AND c.after_at < p_at
            ORDER BY c.after_at DESC LIMIT 1) AS holding
   WHERE s.agent_id = p_agent_id AND s.payee = each.payee AND s.level = each.level
     AND s.after_at = holding.after_at AND s.to_at >= p_at;
END;
$$;
