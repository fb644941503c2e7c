-- A client canceled this call. It runs under the agent's lock, so before or after a reservation: a call that has not reserved
-- never will (purser_reserve checks this table); a reservation that is not signed is released; a signed payment continues, and
-- its response is kept for an identical call, even if it was already sent.
CREATE FUNCTION purser_cancel_call(p_agent_id TEXT, p_call TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_payment_id TEXT;
BEGIN
  -- The same lock as in purser_call_told.
  PERFORM pg_advisory_xact_lock(hashtextextended(p_agent_id || ' ' || p_call, 0));
  PERFORM 1 FROM agents WHERE id = p_agent_id FOR UPDATE;
  INSERT INTO canceled_calls (agent_id, call) VALUES (p_agent_id, p_call) ON CONFLICT DO NOTHING;
  SELECT payment_id INTO v_payment_id FROM idempotency_keys
   WHERE subject_id = p_agent_id AND call = p_call AND payment_id IS NOT NULL;
  IF FOUND AND purser_void_unsigned(p_agent_id, v_payment_id, 'call_canceled',
                                    'The caller canceled it before it was signed.') THEN
    RETURN;
  END IF;
  UPDATE idempotency_keys SET told_at = NULL
   WHERE subject_id = p_agent_id AND told_call = p_call AND told_at IS NOT NULL;
END;
$$;
