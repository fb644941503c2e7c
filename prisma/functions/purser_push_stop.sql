-- A session that somebody ended takes the devices with it that it switched on: a thief's phone must not read on. All devices of
-- an owner go when the agents move to the recovery wallet.
CREATE FUNCTION purser_push_stop() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  WITH gone AS (
    DELETE FROM push_devices d
     WHERE d.owner_id = NEW.owner_id AND (TG_TABLE_NAME = 'audit_notes' OR d.session_id = to_jsonb(NEW) ->> 'id')
    RETURNING d.id, d.owner_id, d.label)
  INSERT INTO audit_notes (owner_id, actor, action, before)
  SELECT g.owner_id, '0x0000000000000000000000000000000000000000', 'push.removed', jsonb_build_object('deviceId', g.id, 'label', g.label)
    FROM gone g;
  RETURN NULL;
END;
$$;
CREATE TRIGGER sessions_push_stop AFTER UPDATE OF revoked_at ON sessions FOR EACH ROW
  WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL) EXECUTE FUNCTION purser_push_stop();
CREATE TRIGGER notes_push_stop AFTER INSERT ON audit_notes FOR EACH ROW
  WHEN (NEW.action = 'owner.moved') EXECUTE FUNCTION purser_push_stop();
