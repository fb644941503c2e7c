-- All agents of an owner moved to the recovery wallet. The e-mail address was confirmed for the old wallet: it gets one mail
-- about the move, in the same transaction, and nothing afterwards. The new owner adds an address of its own.
CREATE FUNCTION purser_mail_stop() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  was email_addresses%ROWTYPE;
BEGIN
  DELETE FROM email_addresses e WHERE e.owner_id = NEW.owner_id RETURNING * INTO was;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  DELETE FROM mail_tokens WHERE owner_id = NEW.owner_id;
  DELETE FROM mail_waiting WHERE owner_id = NEW.owner_id;
  DELETE FROM mails WHERE owner_id = NEW.owner_id AND status = 'waiting' AND kind <> 'address';
  INSERT INTO audit_notes (owner_id, actor, action, after, request_id)
  VALUES (NEW.owner_id, NEW.actor, 'email.removed', jsonb_build_object('address', coalesce(was.address, was.pending_address)),
    NEW.request_id);
  IF was.address IS NOT NULL AND was.stopped_at IS NULL THEN
    INSERT INTO mails (id, owner_id, address, kind, content)
    VALUES ('eml_' || left(replace(gen_random_uuid()::text, '-', ''), 26), NEW.owner_id, was.address, 'address',
      jsonb_build_object('owner', NEW.before->>'owner', 'change', 'away'));
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER notes_mail_stop AFTER INSERT ON audit_notes FOR EACH ROW
  WHEN (NEW.action = 'owner.moved') EXECUTE FUNCTION purser_mail_stop();
