-- Voiding gives the budget back: only ever on proof. The agent row is locked first, in the same
-- order as a reservation, so the sum and the tail cannot move in between.
CREATE FUNCTION purser_payment_voided(
  p_agent_id TEXT, p_payment_id TEXT, p_failure_code TEXT, p_failure_detail TEXT
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_agent agents%ROWTYPE;
  v_payment payments%ROWTYPE;
BEGIN
  SELECT * INTO v_agent FROM agents WHERE id = p_agent_id FOR UPDATE;
  SELECT * INTO v_payment FROM payments
   WHERE agent_id = p_agent_id AND id = p_payment_id AND outstanding FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  UPDATE payments
     SET status = 'voided', failure_code = p_failure_code, failure_detail = p_failure_detail,
         updated_at = clock_timestamp()
   WHERE agent_id = p_agent_id AND id = p_payment_id;
  IF v_payment.counted AND v_payment.created_at > v_agent.window_tail_at THEN
    UPDATE agents SET window_sum = window_sum - v_payment.amount WHERE id = p_agent_id;
  END IF;
END;
$$;
