

CREATE FUNCTION purser_session_event() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  PERFORM purser_emit(OLD.owner_id, 'session', NULL, OLD.id);
  -- A member's stream for a team reads the team's events.
  IF OLD.team_id IS NOT NULL THEN
    PERFORM purser_emit(OLD.team_id, 'session', NULL, OLD.id);
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER sessions_revoked AFTER UPDATE OF revoked_at ON sessions FOR EACH ROW
  WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL) EXECUTE FUNCTION purser_session_event();
CREATE TRIGGER sessions_deleted AFTER DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION purser_session_event();
