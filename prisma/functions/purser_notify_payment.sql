-- Notifies the owner of an agent's payments: refused, settled, paid but not delivered, and received. Reservations and other
-- states in between have no notification, and only a paid request can be undelivered. A payment that was reported as settled or
-- received, and was removed by a reorganisation for good, is reported as `payment.failed`. A deposit into a payment channel is not
-- spent: the first one opens the channel. A payment through a channel that the seller did not charge was not paid; one of several of
-- which some were charged is reported as not delivered only.
CREATE FUNCTION purser_notify_payment() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  v_owner_id TEXT;
  v_limit NUMERIC;
  v_sum NUMERIC;
  v_type TEXT;
  v_data JSONB;
  v_is_corrected BOOLEAN;
BEGIN
  IF NEW.status = 'settled' AND NEW.charged = 0 THEN
    RETURN NULL;
  END IF;
  SELECT a.owner_id INTO v_owner_id FROM agents a WHERE a.id = NEW.agent_id;
  IF NEW.status = 'settled' AND NEW.kind = 'deposit' THEN
    UPDATE channels c SET low_at = floor(purser_channel_balance(c) - NEW.amount / 5)
     WHERE c.agent_id = NEW.agent_id AND c.id = NEW.channel_id AND c.status = 'open';
    PERFORM purser_notify(v_owner_id, 'channel.opened', NEW.agent_id, NEW.channel_id, jsonb_strip_nulls(jsonb_build_object(
        'channelId', NEW.channel_id, 'agentId', NEW.agent_id, 'network', 'eip155:' || NEW.chain_id, 'asset', NEW.asset,
        'payee', NEW.counterparty, 'amount', purser_usdc(NEW.amount), 'paymentId', NEW.id, 'txHash', NEW.tx_hash,
        'thirdParty', CASE WHEN NEW.url IS NOT NULL THEN jsonb_build_object('url', left(NEW.url, 2000)) END)))
     WHERE NOT EXISTS (
       SELECT 1 FROM payments p
        WHERE p.agent_id = NEW.agent_id AND p.channel_id = NEW.channel_id AND p.kind = 'deposit' AND p.status = 'settled'
          AND p.id <> NEW.id);
    RETURN NULL;
  END IF;
  IF NEW.denial_code IN ('channel_limit_exceeded', 'payee_channel_limit_exceeded') THEN
    PERFORM purser_notify_channel_low(c, jsonb_strip_nulls(jsonb_build_object(
        'channelHeld', CASE WHEN f.held + f.deposit > f.most THEN purser_usdc(f.held + f.deposit) END,
        'payeeChannelHeld', CASE WHEN f.payee_held + f.deposit > f.payee_most THEN purser_usdc(f.payee_held + f.deposit) END)))
      FROM channels c, LATERAL (
        SELECT (NEW.policy->>'channelDeposit')::numeric AS deposit,
               (NEW.policy->>'channelHeld')::numeric AS held, (NEW.policy->>'channelLimit')::numeric AS most,
               (NEW.policy->>'payeeChannelHeld')::numeric AS payee_held,
               (NEW.policy->>'payeeChannelLimit')::numeric AS payee_most) AS f
     WHERE c.agent_id = NEW.agent_id AND c.chain_id = NEW.chain_id AND c.asset = NEW.asset AND c.receiver = NEW.counterparty
       AND c.status = 'open';
  END IF;
  -- A refusal in the last fifth of the daily limit also counts as reaching it.
  IF NEW.denial_code = 'daily_limit_exceeded' THEN
    UPDATE agents a SET limit_told = 100, limit_told_at = clock_timestamp()
     WHERE a.id = NEW.agent_id AND a.window_sum * 10 >= a.daily_limit * 8 AND a.daily_limit > 0
       AND (a.limit_told < 100 OR a.limit_told_at < now() - interval '24 hours')
    RETURNING a.daily_limit, a.window_sum INTO v_limit, v_sum;
    IF FOUND THEN
      PERFORM purser_notify(v_owner_id, 'agent.limit_reached', NEW.agent_id, NEW.agent_id, jsonb_build_object(
        'agentId', NEW.agent_id, 'percent', 100, 'limit', purser_usdc(v_limit), 'spent', purser_usdc(v_sum),
        'window', '24h'));
    END IF;
  ELSIF NEW.denial_code IN ('weekly_limit_exceeded', 'monthly_limit_exceeded') THEN
    PERFORM purser_notify_window_limit(w, TRUE) FROM spending_windows w
      WHERE w.agent_id = NEW.agent_id AND w.payee = ''
        AND w.hours = CASE NEW.denial_code WHEN 'weekly_limit_exceeded' THEN 168 ELSE 720 END;
  ELSIF NEW.denial_code = 'budget_exceeded' THEN
    PERFORM purser_notify_window_limit(w, TRUE) FROM spending_windows w
      WHERE w.agent_id = NEW.policy->>'budgetId' AND w.payee = '' AND w.hours = (NEW.policy->>'budgetHours')::integer;
  END IF;
  v_is_corrected := NEW.status = 'voided' OR EXISTS (
    SELECT 1 FROM settlements s WHERE s.chain_id = NEW.chain_id AND s.id = NEW.id AND s.corrected_at IS NOT NULL);
  IF NEW.status = 'voided' AND NEW.kind <> 'incoming'
     AND NOT EXISTS (SELECT 1 FROM settlements s
                      WHERE s.chain_id = NEW.chain_id AND s.id = NEW.id AND purser_was_settled(s)) THEN
    RETURN NULL;
  END IF;
  v_data := jsonb_strip_nulls(jsonb_build_object(
    'paymentId', NEW.id, 'agentId', NEW.agent_id, 'kind', NEW.kind, 'status', NEW.status,
    'network', 'eip155:' || NEW.chain_id, 'asset', NEW.asset, 'amount', purser_usdc(NEW.amount),
    CASE WHEN NEW.kind = 'incoming' THEN 'from' ELSE 'payee' END, NEW.counterparty,
    'txHash', NEW.tx_hash, 'channelId', NEW.channel_id, 'charged', purser_usdc(NEW.charged), 'denialCode', NEW.denial_code, 'listingId', NEW.listing_id,
    'upstreamStatus', NEW.upstream_status, 'failureCode', NEW.failure_code,
    'corrected', CASE WHEN v_is_corrected THEN TRUE END,
    'thirdParty', NULLIF(jsonb_strip_nulls(jsonb_build_object(
      'url', left(NEW.url, 2000), 'memo', left(NEW.memo, 500))), '{}')));
  IF (TG_OP = 'INSERT' OR OLD.status <> NEW.status OR OLD.charged IS DISTINCT FROM NEW.charged)
     AND NEW.failure_code IS DISTINCT FROM 'charge_not_known' THEN
    v_type := CASE WHEN NEW.status = 'blocked' THEN 'payment.blocked' WHEN NEW.status = 'voided' THEN 'payment.failed'
                   WHEN NEW.kind = 'incoming' THEN 'agent.funded'
                   WHEN NEW.kind = 'withdrawal' THEN 'withdrawal.settled' ELSE 'payment.settled' END;
    PERFORM purser_notify(v_owner_id, v_type, NEW.agent_id, NEW.id, v_data);
  END IF;
  IF NEW.delivered IS FALSE AND NEW.status = 'settled' THEN
    PERFORM purser_notify(v_owner_id, 'payment.undelivered', NEW.agent_id, NEW.id, v_data);
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER payments_notify_new AFTER INSERT ON payments FOR EACH ROW
  WHEN (NEW.status IN ('blocked', 'settled')) EXECUTE FUNCTION purser_notify_payment();
CREATE TRIGGER payments_notify AFTER UPDATE OF status, delivered, charged ON payments FOR EACH ROW
  WHEN (NEW.status = 'settled'
        AND (OLD.status <> 'settled' OR OLD.charged IS DISTINCT FROM NEW.charged
             OR (NEW.delivered IS FALSE AND OLD.delivered IS DISTINCT FROM FALSE)))
  EXECUTE FUNCTION purser_notify_payment();
CREATE TRIGGER payments_notify_reverted AFTER UPDATE OF status ON payments FOR EACH ROW
  WHEN (NEW.status = 'voided' AND (OLD.status = 'settled' OR (OLD.status <> 'voided' AND NEW.kind <> 'incoming')))
  EXECUTE FUNCTION purser_notify_payment();
