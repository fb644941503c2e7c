-- Notifies the owner that little is left in a channel beyond what is signed: once for each deposit when it is less than a fifth of
-- it, and once when a limit of the owner's prevents the next deposit (p_needs: what would have to be signed). Most agents bring
-- that deposit by themselves.
CREATE FUNCTION purser_notify_channel_low(p_channel channels, p_needs JSONB) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_owner_id TEXT;
  v_deposit payments%ROWTYPE;
  v_balance CONSTANT NUMERIC := purser_channel_balance(p_channel);
  v_left CONSTANT NUMERIC := GREATEST(v_balance - p_channel.ceiling, 0);
BEGIN
  SELECT * INTO v_deposit FROM payments p
   WHERE p.agent_id = p_channel.agent_id AND p.channel_id = p_channel.id AND p.kind = 'deposit'
     AND p.status IN ('reserved', 'submitted', 'unknown', 'settled')
   ORDER BY p.created_at DESC LIMIT 1;
  SELECT a.owner_id INTO v_owner_id FROM agents a WHERE a.id = p_channel.agent_id;
  IF p_needs IS NULL THEN
    -- Not if the next deposit is under way already.
    IF v_left * 5 >= v_deposit.amount THEN
      RETURN;
    END IF;
    UPDATE channels c SET low_at = NULL WHERE c.agent_id = p_channel.agent_id AND c.id = p_channel.id;
  ELSIF EXISTS (SELECT 1 FROM notifications n
                 WHERE n.owner_id = v_owner_id AND n.type = 'channel.low' AND n.agent_id = p_channel.agent_id
                   AND n.subject_id = p_channel.id AND n.created_at >= v_deposit.created_at AND n.data ? 'needs') THEN
    RETURN;
  END IF;
  PERFORM purser_notify(v_owner_id, 'channel.low', p_channel.agent_id, p_channel.id, jsonb_strip_nulls(jsonb_build_object(
    'channelId', p_channel.id, 'agentId', p_channel.agent_id, 'network', 'eip155:' || p_channel.chain_id,
    'asset', p_channel.asset, 'payee', p_channel.receiver, 'left', purser_usdc(v_left), 'balance', purser_usdc(v_balance),
    'deposit', purser_usdc(v_deposit.amount), 'needs', p_needs,
    'thirdParty', CASE WHEN p_channel.url IS NOT NULL THEN jsonb_build_object('url', left(p_channel.url, 2000)) END)));
END;
$$;
