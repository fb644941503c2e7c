-- No owner changes anything while it moves, and after that: what changes something writes a note in the same transaction. What this
-- service does by itself is noted as long as the chain may still be copied. After that the chain ends here.
CREATE FUNCTION purser_note_while_moved() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  v_owner RECORD;
BEGIN
  IF NEW.action LIKE '%.refused' OR NEW.action IN ('session.ended', 'session.revoked', 'push.removed', 'withdrawal.settled',
       'withdrawal.voided', 'payment.corrected', 'webhook.disabled', 'email.stopped') THEN
    SELECT o.moved_to, o.moved_at INTO v_owner FROM owners o WHERE o.id = NEW.owner_id FOR KEY SHARE;
    RETURN CASE WHEN v_owner.moved_at IS NULL THEN NEW END;
  END IF;
  PERFORM purser_assert_not_moved(NEW.owner_id);
  RETURN NEW;
END;
$$;
CREATE TRIGGER audit_while_moved BEFORE INSERT ON audit_notes FOR EACH ROW EXECUTE FUNCTION purser_note_while_moved();
