-- What a payment through a channel would do: use an open channel with these terms, or the new one that is offered in p_asked
-- (`id`, `salt`); sign a ceiling that is the charges so far plus the price; and deposit, if the channel has less than that.
-- Held is what lies in channels beyond the signed ceilings. p_free is what the wallet can still promise.
-- Only reads. The caller holds the lock on the agent's row.
CREATE FUNCTION purser_channel(
  p_agent agents, p_asked JSONB, p_price NUMERIC, p_free NUMERIC, p_payee_limit NUMERIC,
  OUT channel channels, OUT ceiling NUMERIC, OUT growth NUMERIC, OUT needed NUMERIC, OUT deposit NUMERIC,
  OUT balance NUMERIC, OUT held NUMERIC, OUT payee_held NUMERIC, OUT is_distrusted BOOLEAN
) LANGUAGE plpgsql STABLE AS $$
DECLARE
  ask channels%ROWTYPE := jsonb_populate_record(NULL::channels, p_asked);
BEGIN
  -- Also after that channel was closed: another would be no better.
  is_distrusted := EXISTS (SELECT 1 FROM channels c WHERE c.agent_id = p_agent.id AND c.receiver = ask.receiver
                              AND c.reason = 'seller_broke_rules');
  SELECT COALESCE(sum(h.amount), 0), COALESCE(sum(h.amount) FILTER (WHERE h.receiver = ask.receiver), 0)
    INTO held, payee_held
    FROM (SELECT c.receiver, GREATEST(purser_channel_balance(c) - c.ceiling, 0) AS amount FROM channels c
           WHERE c.agent_id = p_agent.id AND c.status <> 'closed') h;
  SELECT * INTO channel FROM channels c
   WHERE c.agent_id = p_agent.id AND c.chain_id = ask.chain_id AND c.asset = ask.asset AND c.receiver = ask.receiver
     AND c.receiver_authorizer = ask.receiver_authorizer AND c.withdraw_delay = ask.withdraw_delay
     AND c.signer = ask.signer AND c.status = 'open';
  IF FOUND THEN
    balance := purser_channel_balance(channel);
  ELSE
    balance := 0;
    channel := ask;
    channel.ceiling := 0;
    channel.charged := 0;
  END IF;
  ceiling := channel.charged + p_price;
  growth := GREATEST(ceiling - channel.ceiling, 0);
  needed := 0;
  deposit := 0;
  IF ceiling > balance THEN
    needed := GREATEST(ceiling - balance, COALESCE((p_asked->>'min_deposit')::numeric, 0));
    -- For many requests, because each deposit costs a transaction. Never more than the owner allows and the wallet has.
    deposit := GREATEST(needed, LEAST(
      p_price * 100, p_agent.channel_held - held, COALESCE(p_payee_limit - payee_held, 'infinity'), p_free));
  END IF;
END;
$$;
