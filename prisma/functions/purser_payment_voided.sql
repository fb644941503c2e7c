-- Voids a payment and returns its budget: only on proof that it cannot settle. The agent's row is locked first, in the same
-- order as in a reservation, so the window's sum and tail cannot move in between.
CREATE FUNCTION purser_payment_voided(
  p_agent_id TEXT, p_payment_id TEXT, p_failure_code TEXT, p_failure_detail TEXT
) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM agents WHERE id = p_agent_id FOR UPDATE;
  PERFORM 1 FROM payments
   WHERE agent_id = p_agent_id AND id = p_payment_id AND outstanding FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  PERFORM purser_count_payment(p_agent_id, p_payment_id, -1);
  UPDATE payments
     SET status = 'voided', failure_code = p_failure_code, failure_detail = p_failure_detail,
         updated_at = clock_timestamp()
   WHERE agent_id = p_agent_id AND id = p_payment_id;
END;
$$;
