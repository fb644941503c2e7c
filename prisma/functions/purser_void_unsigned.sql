-- Nothing was signed: the reservation is released, and its idempotency key with it, since no money moved and the key may
-- succeed later. Only while 'reserved': persisting a signature makes the row 'submitted' in the same statement, and fails if
-- this came first.
CREATE FUNCTION purser_void_unsigned(
  p_agent_id TEXT, p_payment_id TEXT, p_failure_code TEXT, p_failure_detail TEXT
) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM agents WHERE id = p_agent_id FOR UPDATE;
  PERFORM 1 FROM payments WHERE agent_id = p_agent_id AND id = p_payment_id AND status = 'reserved' FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM purser_payment_voided(p_agent_id, p_payment_id, p_failure_code, p_failure_detail);
  DELETE FROM idempotency_keys k
   WHERE k.subject_id IN (p_agent_id, (SELECT a.owner_id FROM agents a WHERE a.id = p_agent_id))
     AND k.payment_id = p_payment_id AND k.status_code IS NULL;
  DELETE FROM withdrawal_orders WHERE agent_id = p_agent_id AND payment_id = p_payment_id;
  -- Its reserved gas is released.
  PERFORM purser_gas_move(p.chain_id, ARRAY[CASE p.kind WHEN 'withdrawal' THEN 'withdrawer:' ELSE 'owner:' END || a.owner_id],
      ARRAY[-p.gas_hold], ARRAY[0])
    FROM payments p JOIN agents a ON a.id = p.agent_id
   WHERE p.agent_id = p_agent_id AND p.id = p_payment_id AND p.gas_hold > 0;
  PERFORM purser_restore_permit(p_agent_id, p_payment_id);
  -- A payment through a channel frees it, and its deposit goes with it.
  UPDATE channels SET busy_payment = NULL, busy_until = '-infinity' WHERE agent_id = p_agent_id AND busy_payment = p_payment_id;
  PERFORM purser_void_unsigned(d.agent_id, d.id, p_failure_code, p_failure_detail)
    FROM payments p JOIN payments d ON d.agent_id = p.agent_id AND d.id = p.policy->'channel'->>'depositId'
   WHERE p.agent_id = p_agent_id AND p.id = p_payment_id AND d.status = 'reserved';
  RETURN true;
END;
$$;
