-- Applies a corrected settlement to the agent's payment: its status follows, and the window counts it again, or no longer. The
-- agent's row is locked first, as in a reservation. The audit names the chain as the actor, not an address.
CREATE FUNCTION purser_payment_corrected(
  p_agent_id TEXT, p_payment_id TEXT, p_kind TEXT, p_settlement settlements
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_agent agents%ROWTYPE;
  was payments%ROWTYPE;
  now_is payments%ROWTYPE;
BEGIN
  SELECT * INTO v_agent FROM agents WHERE id = p_agent_id FOR UPDATE;
  SELECT * INTO was FROM payments WHERE agent_id = p_agent_id AND id = p_payment_id FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  -- When open again, any amount up to the maximum may be charged.
  IF was.maximum IS NOT NULL THEN
    PERFORM purser_payment_amount(p_agent_id, p_payment_id,
      CASE WHEN p_settlement.status = 'settled' THEN p_settlement.value ELSE was.maximum END);
  END IF;
  UPDATE payments
     SET status = CASE WHEN p_settlement.status = 'settled' THEN 'settled' ELSE 'submitted' END,
         tx_hash = p_settlement.tx_hash, block_number = p_settlement.block_number,
         settled_at = p_settlement.settled_at, final_at = p_settlement.final_at,
         failure_code = NULL, failure_detail = NULL, updated_at = clock_timestamp()
   WHERE agent_id = p_agent_id AND id = p_payment_id
  RETURNING * INTO now_is;
  IF now_is.counted AND NOT was.counted THEN
    PERFORM purser_count_payment(p_agent_id, p_payment_id, 1);
  END IF;
  -- A stored response that reports a failure is no longer true: the same key gets the new outcome.
  UPDATE idempotency_keys k SET status_code = NULL, response = NULL, updated_at = now()
   WHERE k.subject_id IN (p_agent_id, v_agent.owner_id) AND k.payment_id = p_payment_id AND k.status_code >= 400;
  INSERT INTO audit_notes (owner_id, agent_id, actor, action, before, after)
  VALUES (v_agent.owner_id, p_agent_id, '0x0000000000000000000000000000000000000000', 'payment.corrected',
    jsonb_build_object('paymentId', p_payment_id, 'status', was.status, 'txHash', was.tx_hash),
    jsonb_build_object('paymentId', p_payment_id, 'status', now_is.status, 'txHash', now_is.tx_hash, 'kind', p_kind));
END;
$$;
