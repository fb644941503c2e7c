-- The receiver's total differs from ours, and it has proven its own with a voucher of this wallet, or the chain did: so it
-- charged a payment whose outcome was unknown, or this database lacks payments (purser_vouchers_decided).
-- p_payment_id, which the receiver refused because of it, was not charged, and its key may be used again. Except if an earlier
-- request showed its voucher (p_was_shown): then the higher total may count that request, and it is not paid a second time.
CREATE FUNCTION purser_channel_corrected(
  p_agent_id TEXT, p_payment_id TEXT, p_total NUMERIC, p_ceiling NUMERIC, p_voucher BYTEA, p_was_shown BOOLEAN
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_channel channels%ROWTYPE;
  v_may_be_charged BOOLEAN;
BEGIN
  SELECT c.* INTO v_channel FROM channels c JOIN payments p ON p.agent_id = c.agent_id AND p.channel_id = c.id
   WHERE p.agent_id = p_agent_id AND p.id = p_payment_id FOR UPDATE OF c;
  v_may_be_charged := p_was_shown AND p_total > v_channel.charged;
  UPDATE payments p
     SET status = 'settled', charged = 0, settled_at = clock_timestamp(), final_at = clock_timestamp(),
         failure_code = 'not_charged', delivered = FALSE, updated_at = clock_timestamp()
   WHERE NOT v_may_be_charged AND p.agent_id = p_agent_id AND p.id = p_payment_id AND p.outstanding;
  UPDATE channels c
     SET charged = p_total, busy_payment = NULLIF(c.busy_payment, p_payment_id),
         busy_until = CASE WHEN c.busy_payment <> p_payment_id THEN c.busy_until ELSE '-infinity' END,
         voucher = CASE WHEN p_ceiling > c.ceiling THEN p_voucher ELSE c.voucher END,
         ceiling = GREATEST(c.ceiling, p_ceiling)
   WHERE c.agent_id = p_agent_id AND c.id = v_channel.id;
  PERFORM purser_vouchers_decided(v_channel, p_total - v_channel.charged);
  DELETE FROM idempotency_keys k
   WHERE NOT v_may_be_charged AND k.subject_id = p_agent_id AND k.payment_id = p_payment_id AND k.status_code IS NULL;
END;
$$;
