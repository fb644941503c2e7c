-- Puts a counted payment into every sum its time lies in (p_sign 1), or takes it out (-1). Called while the
-- payment is counted: before the change of status that ends that, after the one that makes it so. The caller
-- holds the agent's row, locked before the payment's, so that the sums and the tail cannot move in between.
CREATE FUNCTION purser_count_payment(p_agent_id TEXT, p_payment_id TEXT, p_sign INTEGER)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_at TIMESTAMPTZ;
  v_change NUMERIC;
BEGIN
  SELECT p.created_at, p_sign * p.amount INTO v_at, v_change FROM payments p
   WHERE p.agent_id = p_agent_id AND p.id = p_payment_id AND p.counted;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  UPDATE agents SET window_sum = window_sum + v_change WHERE id = p_agent_id AND window_tail_at < v_at;
  UPDATE payment_sums s SET amount = s.amount + v_change
    FROM (VALUES (1), (2)) AS each (level), LATERAL (
           SELECT c.after_at FROM payment_sums c
            WHERE c.agent_id = p_agent_id AND c.level = each.level AND c.after_at < v_at
            ORDER BY c.after_at DESC LIMIT 1) AS holding
   WHERE s.agent_id = p_agent_id AND s.level = each.level AND s.after_at = holding.after_at AND s.to_at >= v_at;
END;
$$;
