-- An agent's settlement exists only on a live reservation: the insert also sets the payment to submitted, in the same
-- statement. A signer whose reservation was released meanwhile is refused here; so is one whose reservation was lost with the
-- database's memory, since purser_reserve commits without waiting for the disk. updated_at stays at the reservation, a moment
-- before: then only the status differs, and a few bytes of the log hold the change.
CREATE FUNCTION purser_submit_payment() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  UPDATE payments SET status = 'submitted'
   WHERE agent_id = NEW.agent_id AND id = NEW.id AND status = 'reserved';
  -- An allowance, and the end of a channel, have no payment.
  IF NOT FOUND AND coalesce((SELECT p.status IN ('voided', 'blocked') FROM payments p WHERE p.agent_id = NEW.agent_id AND p.id = NEW.id),
                            NEW.kind IN ('spend', 'x402')) THEN
    PERFORM purser_reservation_gone(NEW.id);
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER settlements_accepted AFTER INSERT ON settlements FOR EACH ROW
  WHEN (NEW.agent_id IS NOT NULL) EXECUTE FUNCTION purser_submit_payment();
