-- Sets how much a payment counts when a maximum was signed (scheme `upto`): the maximum while it may still be charged, then the
-- amount charged. Windows and sums follow. The agent's row is locked first, as in a reservation.
CREATE FUNCTION purser_payment_amount(p_agent_id TEXT, p_payment_id TEXT, p_amount NUMERIC)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  was payments%ROWTYPE;
BEGIN
  PERFORM 1 FROM agents WHERE id = p_agent_id FOR UPDATE;
  SELECT * INTO was FROM payments p WHERE p.agent_id = p_agent_id AND p.id = p_payment_id FOR UPDATE;
  IF NOT FOUND OR was.maximum IS NULL OR was.amount = p_amount THEN
    RETURN;
  END IF;
  UPDATE payments SET amount = p_amount WHERE agent_id = p_agent_id AND id = p_payment_id;
  PERFORM purser_budget_change(p_agent_id, p_payment_id, p_amount, was.counted);
  IF was.counted THEN
    UPDATE tasks k SET used = k.used + p_amount - was.amount WHERE k.agent_id = p_agent_id AND k.id = was.task_id;
    PERFORM purser_count_change(p_agent_id, was.created_at, was.counterparty, p_amount - was.amount, 0);
  END IF;
END;
$$;
