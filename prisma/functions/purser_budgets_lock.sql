-- Locks several agents and the budgets of their payments, because one transaction writes outcomes of all of them: all agents
-- before all budgets, each in the order of their ids, as a reservation does.
CREATE FUNCTION purser_budgets_lock(p_agent_ids TEXT[], p_payment_ids TEXT[]) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_budget_ids TEXT[];
BEGIN
  SELECT array_agg(b.budget_id) INTO v_budget_ids FROM unnest(p_agent_ids, p_payment_ids) AS p (agent_id, id)
    JOIN budget_payments b ON b.agent_id = p.agent_id AND b.payment_id = p.id;
  IF v_budget_ids IS NOT NULL THEN
    PERFORM 1 FROM agents a WHERE a.id = ANY (p_agent_ids) ORDER BY a.id FOR UPDATE;
    PERFORM 1 FROM budgets b WHERE b.id = ANY (v_budget_ids) ORDER BY b.id FOR UPDATE;
  END IF;
END;
$$;
