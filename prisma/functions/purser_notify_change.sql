-- Notifies the owner of changes of keys, sessions and rules, from the same audit note in the same transaction.
CREATE FUNCTION purser_notify_change() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  -- The audit contains each of a thousand payees; the notification only says that they changed.
  v_is_large CONSTANT BOOLEAN := octet_length(coalesce(NEW.before::text, '')) + octet_length(coalesce(NEW.after::text, '')) > 8000;
BEGIN
  IF NEW.action = 'session.created' THEN
    PERFORM purser_notify(NEW.owner_id, 'session.created', NULL, coalesce(NEW.after->>'sessionId', NEW.id),
      jsonb_build_object('sessionId', NEW.after->>'sessionId', 'address', NEW.actor, 'ip', NEW.after->>'ip',
        'thirdParty', jsonb_build_object('userAgent', NEW.after->>'userAgent')));
  ELSIF NEW.action = 'agent.created' THEN
    PERFORM purser_notify(NEW.owner_id, 'key.created', NEW.agent_id, coalesce(NEW.after->'key'->>'id', NEW.id),
      jsonb_build_object('keyId', NEW.after->'key'->>'id', 'agentId', NEW.agent_id, 'by', NEW.actor, 'isConnection', FALSE));
  ELSIF NEW.action IN ('key.created', 'key.rotated', 'connection.granted') THEN
    PERFORM purser_notify(NEW.owner_id, 'key.created', NEW.agent_id, coalesce(NEW.after->>'id', NEW.id),
      jsonb_strip_nulls(jsonb_build_object('keyId', NEW.after->>'id', 'agentId', NEW.agent_id, 'by', NEW.actor,
        'isConnection', NEW.action = 'connection.granted', 'expiresAt', NEW.after->>'expiresAt',
        'rotatedFrom', CASE WHEN NEW.action = 'key.rotated' THEN NEW.before->>'id' END,
        'thirdParty', jsonb_build_object('label', NEW.after->>'label'))));
  END IF;
  IF NEW.action IN ('key.revoked', 'key.rotated', 'connection.revoked') THEN
    PERFORM purser_notify(NEW.owner_id, 'key.revoked', NEW.agent_id, coalesce(NEW.before->>'id', NEW.id),
      jsonb_strip_nulls(jsonb_build_object('keyId', NEW.before->>'id', 'agentId', NEW.agent_id, 'by', NEW.actor,
        'isConnection', NEW.action = 'connection.revoked',
        'rotatedTo', CASE WHEN NEW.action = 'key.rotated' THEN NEW.after->>'id' END,
        'endsAt', CASE WHEN NEW.action = 'key.rotated'
                       THEN coalesce(NEW.after->'previous'->>'revokedAt', NEW.after->'previous'->>'expiresAt') END,
        'thirdParty', jsonb_build_object('label', NEW.before->>'label'))));
  ELSIF NEW.action IN ('owner.stopped', 'owner.resumed') THEN
    PERFORM purser_notify(NEW.owner_id, NEW.action, NULL, NEW.id,
      jsonb_build_object('by', NEW.actor, 'agents', NEW.after->'agents', 'auditId', NEW.id));
  ELSIF NEW.action = 'agent.paused_by_rule' THEN
    PERFORM purser_notify(NEW.owner_id, 'agent.paused', NEW.agent_id, NEW.agent_id,
      jsonb_build_object('agentId', NEW.agent_id, 'auditId', NEW.id) || (NEW.after - 'status'));
  ELSIF NEW.action LIKE 'agent.%' OR NEW.action LIKE 'allowlist.%' OR NEW.action IN ('second.named', 'passkeys.signed', 'payout.named', 'members.signed', 'owner.moved', 'owner.received',
      'owner.payee_denied', 'owner.payee_allowed') THEN
    PERFORM purser_notify(NEW.owner_id, 'policy.changed', NEW.agent_id, coalesce(NEW.agent_id, NEW.id),
      jsonb_strip_nulls(jsonb_build_object('agentId', NEW.agent_id, 'change', NEW.action, 'by', NEW.actor, 'auditId', NEW.id,
        'before', CASE WHEN NOT v_is_large THEN NEW.before END, 'after', CASE WHEN NOT v_is_large THEN NEW.after END)));
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER notes_notify AFTER INSERT ON audit_notes FOR EACH ROW
  WHEN (NEW.action LIKE 'key.%' OR NEW.action LIKE 'connection.%' OR NEW.action LIKE 'allowlist.%'
     OR NEW.action IN ('session.created', 'agent.created', 'agent.updated', 'agent.paused', 'agent.resumed', 'agent.archived', 'agent.paused_by_rule',
                       'second.named', 'passkeys.signed', 'payout.named', 'members.signed', 'owner.moved', 'owner.received', 'owner.stopped', 'owner.resumed',
                       'owner.payee_denied', 'owner.payee_allowed'))
  EXECUTE FUNCTION purser_notify_change();
