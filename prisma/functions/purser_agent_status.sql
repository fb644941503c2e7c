-- An agent becomes active only while its owner has not stopped everything, whichever build writes it. What paused it, and since
-- when, is forgotten when it is no longer paused.
CREATE FUNCTION purser_agent_status() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.status = 'active' AND (TG_OP = 'INSERT' OR OLD.status <> 'active') THEN
    PERFORM purser_assert_not_stopped(NEW.owner_id);
    IF TG_OP = 'UPDATE' THEN
      NEW.resumed_at := clock_timestamp();
    END IF;
  END IF;
  IF NEW.status <> 'paused' THEN
    NEW.paused_by := NULL;
    NEW.paused_at := NULL;
    NEW.paused_facts := NULL;
  END IF;
  RETURN NEW;
END;
$$;
CREATE TRIGGER agents_status BEFORE INSERT OR UPDATE OF status ON agents FOR EACH ROW EXECUTE FUNCTION purser_agent_status();
