-- Sends at most one NOTIFY per transaction: it only means that there is something to read, and one is as good as many.
CREATE FUNCTION purser_emit(p_owner_id TEXT, p_type TEXT, p_agent_id TEXT, p_subject_id TEXT)
RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM events e
              WHERE e.owner_id = p_owner_id AND e.tx = pg_current_xact_id()::text::bigint AND e.type = p_type
                AND e.subject_id = p_subject_id) THEN
    RETURN;
  END IF;
  INSERT INTO events (owner_id, type, agent_id, subject_id) VALUES (p_owner_id, p_type, p_agent_id, p_subject_id);
  PERFORM pg_notify('purser_events', p_owner_id);
END;
$$;
