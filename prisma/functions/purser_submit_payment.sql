-- An agent's settlement exists only on a live reservation: the insert also sets the payment to submitted, in the same
-- statement. A signer whose reservation was released meanwhile is refused here; so is one whose reservation was lost with the
-- database's memory, since purser_reserve commits without waiting for the disk. updated_at stays at the reservation, a moment
-- before: then only the status differs, and a few bytes of the log hold the change.
-- Many payments in one statement: Postgres reads the constraints of the table anew for each statement, which costs more than the
-- update. Rows are found by their key: the settings and the form of the comparison keep the planner from starting elsewhere.
CREATE FUNCTION purser_submit_payment() RETURNS TRIGGER LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  v_gone TEXT;
BEGIN
  UPDATE payments p SET status = 'submitted'
    FROM fresh f
   WHERE p.agent_id = f.agent_id AND p.id = f.id AND p.status IS NOT DISTINCT FROM 'reserved';
  -- An allowance, and the end of a channel, have no payment; one that was found on the chain gets its payment next
  -- (purser_ledger_found).
  SELECT f.id INTO v_gone
    FROM fresh f LEFT JOIN payments p ON p.agent_id = f.agent_id AND p.id = f.id
   WHERE f.agent_id IS NOT NULL AND f.status <> 'settled' AND coalesce(p.status IN ('voided', 'blocked'), f.kind IN ('spend', 'x402')) LIMIT 1;
  IF FOUND THEN
    PERFORM purser_reservation_gone(v_gone);
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER settlements_accepted AFTER INSERT ON settlements REFERENCING NEW TABLE AS fresh
  FOR EACH STATEMENT EXECUTE FUNCTION purser_submit_payment();
