-- Notifies the owner of an approval that was requested, decided or expired. That it was used is part of its payment's
-- notification.
CREATE FUNCTION purser_notify_approval() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  PERFORM purser_notify(NEW.owner_id, 'approval.' || CASE NEW.state WHEN 'open' THEN 'requested' ELSE NEW.state END,
    NEW.agent_id, NEW.id, jsonb_strip_nulls(jsonb_build_object(
      'approvalId', NEW.id, 'agentId', NEW.agent_id, 'kind', NEW.kind, 'network', 'eip155:' || NEW.chain_id,
      'asset', NEW.asset, 'payee', NEW.payee, 'amount', purser_usdc(NEW.amount), 'denialCode', NEW.denial_code,
      'expiresAt', to_char(NEW.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
      'thirdParty', NULLIF(jsonb_strip_nulls(jsonb_build_object('site', NULLIF(NEW.site, ''), 'url', left(NEW.url, 2000),
        'reason', NEW.reason, 'memo', left(NEW.memo, 500))), '{}'))));
  RETURN NULL;
END;
$$;
CREATE TRIGGER approvals_notify_new AFTER INSERT ON approvals FOR EACH ROW EXECUTE FUNCTION purser_notify_approval();
CREATE TRIGGER approvals_notify AFTER UPDATE OF state ON approvals FOR EACH ROW
  WHEN (OLD.state IS DISTINCT FROM NEW.state AND NEW.state IN ('granted', 'declined', 'expired'))
  EXECUTE FUNCTION purser_notify_approval();
