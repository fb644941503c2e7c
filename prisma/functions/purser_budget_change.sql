-- A payment counts with another amount in its budgets, or no longer, or again. The caller holds the lock on the agent's row.
CREATE FUNCTION purser_budget_change(p_agent_id TEXT, p_payment_id TEXT, p_amount NUMERIC, p_counted BOOLEAN)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  was budget_payments%ROWTYPE;
BEGIN
  FOR was IN
    SELECT * FROM budget_payments b WHERE b.agent_id = p_agent_id AND b.payment_id = p_payment_id ORDER BY b.budget_id
  LOOP
    PERFORM 1 FROM budgets b WHERE b.id = was.budget_id FOR UPDATE;
    UPDATE budget_payments b SET amount = p_amount, counted = p_counted
     WHERE b.agent_id = p_agent_id AND b.payment_id = p_payment_id AND b.budget_id = was.budget_id;
    PERFORM purser_count_change(was.budget_id, was.at, was.payer,
      CASE WHEN p_counted THEN p_amount ELSE 0 END - CASE WHEN was.counted THEN was.amount ELSE 0 END,
      p_counted::int - was.counted::int);
  END LOOP;
END;
$$;
