-- One event for each statement that changes an allowlist, however many entries it changes.
CREATE FUNCTION purser_allowlist_event() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  PERFORM purser_emit(a.owner_id, 'agent', a.id, a.id)
     FROM agents a WHERE a.id IN (SELECT c.agent_id FROM changed c);
  RETURN NULL;
END;
$$;
CREATE TRIGGER allowlist_inserted AFTER INSERT ON allowlist_entries REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION purser_allowlist_event();
CREATE TRIGGER allowlist_updated AFTER UPDATE ON allowlist_entries REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION purser_allowlist_event();
CREATE TRIGGER allowlist_deleted AFTER DELETE ON allowlist_entries REFERENCING OLD TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION purser_allowlist_event();
