

CREATE FUNCTION purser_approval_event() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  PERFORM purser_emit(NEW.owner_id, 'approval.' || CASE NEW.state WHEN 'open' THEN 'requested' ELSE NEW.state END,
    NEW.agent_id, NEW.id);
  RETURN NULL;
END;
$$;
CREATE TRIGGER approvals_asked AFTER INSERT ON approvals FOR EACH ROW EXECUTE FUNCTION purser_approval_event();
CREATE TRIGGER approvals_decided AFTER UPDATE OF state ON approvals FOR EACH ROW
  WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION purser_approval_event();
