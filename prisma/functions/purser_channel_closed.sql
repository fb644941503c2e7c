-- The chain shows that nothing is left to come back from a channel. What the receiver has claimed is what it was paid: a payment
-- whose outcome was unknown was charged as far as the claims exceed the charges that we know. Also the payment of a process that
-- died while it had the channel.
CREATE FUNCTION purser_channel_closed(p_agent_id TEXT, p_channel_id TEXT, p_claimed NUMERIC, p_returned NUMERIC)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_channel channels%ROWTYPE;
BEGIN
  SELECT * INTO v_channel FROM channels c
   WHERE c.agent_id = p_agent_id AND c.id = p_channel_id AND c.status = 'closing' FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  UPDATE channels
     SET status = 'closed', closed_at = clock_timestamp(), returned = p_returned, busy_payment = NULL,
         charged = GREATEST(charged, LEAST(p_claimed, ceiling))
   WHERE agent_id = p_agent_id AND id = p_channel_id;
  PERFORM purser_vouchers_decided(v_channel, p_claimed - v_channel.charged);
END;
$$;
