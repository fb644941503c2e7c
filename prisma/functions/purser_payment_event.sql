-- Live events of payments. A reservation lasts milliseconds until it is submitted or voided, so it has no event.
-- No NOTIFY here: transactions that notify commit one after another, which would limit the rate of payments. Processes with
-- open streams poll for new rows a few times a second instead.
CREATE FUNCTION purser_payment_event() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.status <> 'reserved' THEN
    INSERT INTO events (owner_id, type, agent_id, subject_id)
    SELECT a.owner_id, 'payment', a.id, NEW.id FROM agents a WHERE a.id = NEW.agent_id;
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER payments_inserted AFTER INSERT ON payments FOR EACH ROW EXECUTE FUNCTION purser_payment_event();
CREATE TRIGGER payments_changed AFTER UPDATE OF status, delivered ON payments FOR EACH ROW
  WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.delivered IS DISTINCT FROM NEW.delivered)
  EXECUTE FUNCTION purser_payment_event();
