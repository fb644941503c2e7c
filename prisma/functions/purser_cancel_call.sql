-- A client waits no longer for this call. Under the agent's lock, so that it comes before or after the reservation and
-- never between: a call that has not reserved will not (purser_reserve looks here); what is reserved and not signed is
-- released; what is signed goes on, and its answer waits for an identical call, also where it was told meanwhile.
CREATE FUNCTION purser_cancel_call(p_agent_id TEXT, p_call TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_payment_id TEXT;
BEGIN
  -- As purser_call_told does.
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
