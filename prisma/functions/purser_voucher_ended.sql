-- Records what became of a payment through a channel, and frees the channel.
-- p_charged: what the receiver charged. It is the receiver's word, within the signed ceiling; it also means that it did not
-- charge earlier payments whose outcome was unknown, because its total counts them. Null: not known, so the payment stays
-- unknown until a later answer of the receiver or the chain tells.
-- The amounts stay: each is the growth of the ceiling, which the receiver may claim.
-- p_reason: the channel is used no more, because of it.
-- p_is_refused: not charged by the receiver's word, which is not a proof.
-- p_upstream_status, p_delivered: what the target did. `delivered` means that the request has ended.
CREATE FUNCTION purser_voucher_ended(
  p_agent_id TEXT, p_payment_id TEXT, p_charged NUMERIC, p_reason TEXT,
  p_upstream_status INTEGER DEFAULT NULL, p_delivered BOOLEAN DEFAULT NULL, p_is_refused BOOLEAN DEFAULT FALSE
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_channel channels%ROWTYPE;
BEGIN
  SELECT c.* INTO v_channel FROM channels c JOIN payments p ON p.agent_id = c.agent_id AND p.channel_id = c.id
   WHERE p.agent_id = p_agent_id AND p.id = p_payment_id FOR UPDATE OF c;
  UPDATE payments p
     SET status = CASE WHEN p_charged IS NULL THEN 'unknown' ELSE 'settled' END, charged = p_charged,
         settled_at = CASE WHEN p_charged IS NOT NULL THEN clock_timestamp() END,
         final_at = CASE WHEN p_charged IS NOT NULL THEN clock_timestamp() END,
         upstream_status = p_upstream_status, delivered = p_delivered, updated_at = clock_timestamp(),
         failure_code = CASE WHEN p_is_refused THEN 'seller_refused' END
   WHERE p.agent_id = p_agent_id AND p.id = p_payment_id AND p.status IN ('submitted', 'unknown') AND p.voucher IS NOT NULL;
  IF NOT FOUND THEN
    -- A later answer of the receiver, or the chain, decided it meanwhile.
    UPDATE payments p
       SET upstream_status = p_upstream_status, delivered = p_delivered, updated_at = clock_timestamp()
     WHERE p.agent_id = p_agent_id AND p.id = p_payment_id AND p_delivered IS NOT NULL;
    -- Or showed only that it was one of several. This is its own report.
    UPDATE payments p SET charged = p_charged, failure_code = NULL, failure_detail = NULL
     WHERE p.agent_id = p_agent_id AND p.id = p_payment_id AND p.failure_code = 'charge_not_known' AND p_charged IS NOT NULL;
  ELSIF p_charged IS NOT NULL THEN
    PERFORM purser_vouchers_decided(v_channel, 0);
    -- Never above the ceiling, whatever the receiver reports of two requests that showed the same one.
    UPDATE channels c SET charged = LEAST(c.charged + p_charged, c.ceiling)
     WHERE c.agent_id = p_agent_id AND c.id = v_channel.id;
  END IF;
  UPDATE channels c
     SET busy_payment = NULL, busy_until = '-infinity', used_at = clock_timestamp(),
         status = CASE WHEN p_reason IS NOT NULL AND c.status = 'open' THEN 'closing' ELSE c.status END,
         reason = CASE WHEN c.status = 'open' THEN p_reason ELSE c.reason END
   WHERE c.agent_id = p_agent_id AND c.id = v_channel.id AND (c.busy_payment = p_payment_id OR p_reason IS NOT NULL);
END;
$$;
