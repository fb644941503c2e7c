-- Stores a voucher before the seller gets it: from now on its ceiling may be claimed. Fails if the reservation is gone, or
-- another payment has the channel by now: then this signature is given to nobody.
CREATE FUNCTION purser_voucher_signed(p_agent_id TEXT, p_payment_id TEXT, p_voucher BYTEA)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_payment payments%ROWTYPE;
BEGIN
  SELECT * INTO v_payment FROM payments
   WHERE agent_id = p_agent_id AND id = p_payment_id AND status = 'reserved' AND ceiling IS NOT NULL FOR UPDATE;
  UPDATE channels c
     SET voucher = CASE WHEN v_payment.ceiling >= c.ceiling THEN p_voucher ELSE c.voucher END,
         ceiling = GREATEST(c.ceiling, v_payment.ceiling)
   WHERE c.agent_id = p_agent_id AND c.id = v_payment.channel_id AND c.busy_payment = p_payment_id AND c.status = 'open';
  IF NOT FOUND THEN
    PERFORM purser_reservation_gone(p_payment_id);
  END IF;
  UPDATE payments SET status = 'submitted', voucher = p_voucher, updated_at = clock_timestamp()
   WHERE agent_id = p_agent_id AND id = p_payment_id;
END;
$$;
