-- Notifies the owner of a channel that is being closed because the seller broke its rules, and of one that is closed. That a
-- channel was opened is part of its first deposit (purser_notify_payment). The app reads its channels again after each change.
CREATE FUNCTION purser_notify_channel() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  v_owner_id TEXT;
BEGIN
  SELECT a.owner_id INTO v_owner_id FROM agents a WHERE a.id = NEW.agent_id;
  PERFORM purser_emit(v_owner_id, 'agent', NEW.agent_id, NEW.agent_id);
  IF OLD.status <> NEW.status AND (NEW.status = 'closed' OR NEW.reason = 'seller_broke_rules') THEN
    PERFORM purser_notify(v_owner_id, CASE NEW.status WHEN 'closed' THEN 'channel.closed' ELSE 'channel.refused' END,
      NEW.agent_id, NEW.id, jsonb_strip_nulls(jsonb_build_object(
        'channelId', NEW.id, 'agentId', NEW.agent_id, 'network', 'eip155:' || NEW.chain_id, 'asset', NEW.asset,
        'payee', NEW.receiver, 'reason', NEW.reason, 'charged', purser_usdc(NEW.charged),
        'returned', CASE NEW.status WHEN 'closed' THEN purser_usdc(NEW.returned) END,
        'thirdParty', CASE WHEN NEW.url IS NOT NULL THEN jsonb_build_object('url', left(NEW.url, 2000)) END)));
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER channels_notify AFTER UPDATE OF status, returned, returns_at ON channels FOR EACH ROW
  WHEN (OLD.status <> NEW.status OR OLD.returned <> NEW.returned OR OLD.returns_at IS DISTINCT FROM NEW.returns_at)
  EXECUTE FUNCTION purser_notify_channel();
