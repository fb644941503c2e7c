-- Takes the channel once more for a payment whose answer was lost, to show its voucher again. False if another payment has it, or
-- the outcome is known by now.
CREATE FUNCTION purser_voucher_again(p_agent_id TEXT, p_payment_id TEXT, p_seconds INTEGER)
RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
  UPDATE channels c
     SET busy_payment = p_payment_id, busy_until = clock_timestamp() + p_seconds * interval '1 second'
    FROM payments p
   WHERE p.agent_id = p_agent_id AND p.id = p_payment_id AND p.voucher IS NOT NULL AND p.outstanding
     AND c.agent_id = p.agent_id AND c.id = p.channel_id AND c.status = 'open'
     AND (c.busy_until <= clock_timestamp() OR c.busy_payment = p_payment_id);
  RETURN FOUND;
END;
$$;
