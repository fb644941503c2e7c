-- Puts a counted payment into every window and sum its time lies in (p_sign 1), or takes it out (-1). Called
-- while the payment is counted: before the change of status that ends that, after the one that makes it so. The
-- caller holds the agent's row, locked before the payment's, so that no window and no sum can move in between.
CREATE FUNCTION purser_count_payment(p_agent_id TEXT, p_payment_id TEXT, p_sign INTEGER)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_at TIMESTAMPTZ;
  v_payee TEXT;
  v_change NUMERIC;
BEGIN
  SELECT p.created_at, p.counterparty, p_sign * p.amount INTO v_at, v_payee, v_change FROM payments p
   WHERE p.agent_id = p_agent_id AND p.id = p_payment_id AND p.counted;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  UPDATE agents SET window_sum = window_sum + v_change WHERE id = p_agent_id AND window_tail_at < v_at;
  -- What is newer than a window will be found when the window comes to it.
  UPDATE spending_windows w SET amount = w.amount + v_change, payments = w.payments + p_sign
   WHERE w.agent_id = p_agent_id AND w.payee IN ('', v_payee) AND w.after_at < v_at AND w.to_at >= v_at;
  -- The payee may have no row yet in a stretch where all it got had been taken out, or that is older than the payment.
  IF p_sign > 0 THEN
    INSERT INTO payment_sums (agent_id, payee, level, after_at, to_at, amount, payments)
    SELECT p_agent_id, v_payee, holding.level, holding.after_at, holding.to_at, 0, 0
      FROM (VALUES (1), (2)) AS each (level), LATERAL (
             SELECT c.level, c.after_at, c.to_at FROM payment_sums c
              WHERE c.agent_id = p_agent_id AND c.payee = '' AND c.level = each.level AND c.after_at < v_at
              ORDER BY c.after_at DESC LIMIT 1) AS holding
     WHERE holding.to_at >= v_at
    ON CONFLICT DO NOTHING;
  END IF;
  UPDATE payment_sums s SET amount = s.amount + v_change, payments = s.payments + p_sign
    FROM (VALUES (1, ''), (2, ''), (1, v_payee), (2, v_payee)) AS each (level, payee), LATERAL (
           SELECT c.after_at FROM payment_sums c
            WHERE c.agent_id = p_agent_id AND c.payee = each.payee AND c.level = each.level AND c.after_at < v_at
            ORDER BY c.after_at DESC LIMIT 1) AS holding
   WHERE s.agent_id = p_agent_id AND s.payee = each.payee AND s.level = each.level
     AND s.after_at = holding.after_at AND s.to_at >= v_at;
END;
$$;
