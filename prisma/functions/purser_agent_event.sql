

CREATE FUNCTION purser_agent_event() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  v_agent_id TEXT;
BEGIN
  IF TG_TABLE_NAME = 'agents' THEN
    v_agent_id := NEW.id;
  ELSIF TG_OP = 'DELETE' THEN
    v_agent_id := OLD.agent_id;
  ELSE
    v_agent_id := NEW.agent_id;
  END IF;
  PERFORM purser_emit(a.owner_id, 'agent', a.id, a.id) FROM agents a WHERE a.id = v_agent_id;
  RETURN NULL;
END;
$$;
CREATE TRIGGER agents_inserted AFTER INSERT ON agents FOR EACH ROW EXECUTE FUNCTION purser_agent_event();
-- Every change of an agent's rules sets updated_at; a payment does not.
CREATE TRIGGER agents_changed AFTER UPDATE OF updated_at ON agents FOR EACH ROW EXECUTE FUNCTION purser_agent_event();
CREATE TRIGGER api_keys_changed AFTER INSERT OR UPDATE OF revoked_at, expires_at, label, rotated_to_id ON api_keys
  FOR EACH ROW EXECUTE FUNCTION purser_agent_event();
