-- An agent's settlement exists only on a live reservation: the insert also sets the payment to submitted, in the same
-- statement. A signer whose reservation was released meanwhile is refused here.
CREATE FUNCTION purser_submit_payment() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  UPDATE payments SET status = 'submitted', updated_at = clock_timestamp()
   WHERE agent_id = NEW.agent_id AND id = NEW.id AND status = 'reserved';
  IF NOT FOUND AND EXISTS (
    SELECT 1 FROM payments WHERE agent_id = NEW.agent_id AND id = NEW.id AND status IN ('voided', 'blocked')
  ) THEN
    PERFORM purser_reservation_gone(NEW.id);
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER settlements_accepted AFTER INSERT ON settlements FOR EACH ROW
  WHEN (NEW.agent_id IS NOT NULL) EXECUTE FUNCTION purser_submit_payment();
