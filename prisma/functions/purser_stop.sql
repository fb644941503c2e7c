-- Stops everything of an owner: pauses every active agent, under the locks of their rows. So a payment is either reserved before
-- this, or refused after it. The owner's row comes first: what makes an agent active shares it. False if it was stopped before;
-- agents that are active nevertheless are paused all the same.
CREATE FUNCTION purser_stop(p_owner_id TEXT, p_by TEXT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
  v_is_new BOOLEAN;
BEGIN
  UPDATE owners o SET stopped_at = clock_timestamp(), stopped_by = p_by WHERE o.id = p_owner_id AND o.stopped_at IS NULL;
  v_is_new := FOUND;
  PERFORM 1 FROM agents a WHERE a.owner_id = p_owner_id AND a.status = 'active' ORDER BY a.id FOR UPDATE;
  UPDATE agents a SET status = 'paused', paused_by = 'stop', paused_at = clock_timestamp(), updated_at = clock_timestamp()
   WHERE a.owner_id = p_owner_id AND a.status = 'active';
  PERFORM purser_emit(p_owner_id, 'owner', NULL, p_owner_id);
  RETURN v_is_new;
END;
$$;
