-- Ends a stop: exactly the agents that it paused are active again. Returns how many.
CREATE FUNCTION purser_resume(p_owner_id TEXT) RETURNS INTEGER LANGUAGE plpgsql AS $$
DECLARE
  v_agents INTEGER;
BEGIN
  UPDATE owners o SET stopped_at = NULL, stopped_by = NULL WHERE o.id = p_owner_id;
  PERFORM 1 FROM agents a WHERE a.owner_id = p_owner_id AND a.paused_by = 'stop' ORDER BY a.id FOR UPDATE;
  UPDATE agents a SET status = 'active', updated_at = clock_timestamp() WHERE a.owner_id = p_owner_id AND a.paused_by = 'stop';
  GET DIAGNOSTICS v_agents = ROW_COUNT;
  PERFORM purser_emit(p_owner_id, 'owner', NULL, p_owner_id);
  RETURN v_agents;
END;
$$;
