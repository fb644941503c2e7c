CREATE FUNCTION purser_emit(p_owner_id TEXT, p_type TEXT, p_agent_id TEXT, p_subject_id TEXT)
RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (owner_id, type, agent_id, subject_id) VALUES (p_owner_id, p_type, p_agent_id, p_subject_id);
  PERFORM pg_notify('purser_events', p_owner_id);
END;
$$;
