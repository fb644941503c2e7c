-- What an owner or its agents change without an entry in the audit is refused while the owner moves, whichever build writes it: a
-- change that is not copied would be lost. The argument names the column with the owner or the agent.
CREATE FUNCTION purser_while_moved() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  v_id TEXT := to_jsonb(COALESCE(NEW, OLD))->>TG_ARGV[0];
BEGIN
  IF TG_ARGV[0] = 'agent_id' THEN
    SELECT a.owner_id INTO v_id FROM agents a WHERE a.id = v_id;
  END IF;
  PERFORM purser_assert_not_moved(v_id);
  RETURN COALESCE(NEW, OLD);
END;
$$;
CREATE TRIGGER tasks_while_moved BEFORE INSERT OR UPDATE OF closed_at ON tasks
  FOR EACH ROW EXECUTE FUNCTION purser_while_moved('agent_id');
CREATE TRIGGER approvals_while_moved BEFORE INSERT ON approvals
  FOR EACH ROW EXECUTE FUNCTION purser_while_moved('owner_id');
CREATE TRIGGER orders_while_moved BEFORE INSERT OR UPDATE OF used_at ON owner_orders
  FOR EACH ROW EXECUTE FUNCTION purser_while_moved('owner_id');
CREATE TRIGGER waiting_while_moved BEFORE INSERT OR UPDATE OF signature ON waiting_orders
  FOR EACH ROW EXECUTE FUNCTION purser_while_moved('team_id');
CREATE TRIGGER filters_while_moved BEFORE INSERT OR UPDATE OR DELETE ON saved_filters
  FOR EACH ROW EXECUTE FUNCTION purser_while_moved('owner_id');
CREATE TRIGGER refunds_while_moved BEFORE INSERT ON refunds
  FOR EACH ROW EXECUTE FUNCTION purser_while_moved('owner_id');
CREATE TRIGGER sessions_while_moved BEFORE INSERT ON sessions
  FOR EACH ROW EXECUTE FUNCTION purser_while_moved('owner_id');
CREATE TRIGGER listings_while_moved BEFORE INSERT OR UPDATE OF url ON listings
  FOR EACH ROW WHEN (NEW.owner_id IS NOT NULL) EXECUTE FUNCTION purser_while_moved('owner_id');
