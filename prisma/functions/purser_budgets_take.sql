-- The windows of an agent's budgets at this moment, and the facts of the one with the least left: if any budget refuses, this one
-- does. The caller holds the lock on the agent's row. With p_locks the budgets' rows are locked, in the order of their ids, until
-- the transaction ends.
CREATE FUNCTION purser_budgets_take(
  p_budget_ids TEXT[], p_locks BOOLEAN, OUT windows spending_windows[], OUT most NUMERIC, OUT used NUMERIC, OUT facts JSONB
) LANGUAGE plpgsql AS $$
DECLARE
  one RECORD;
BEGIN
  IF p_locks THEN
    PERFORM 1 FROM budgets b WHERE b.id = ANY (p_budget_ids) ORDER BY b.id FOR UPDATE;
  END IF;
  windows := '{}';
  FOR one IN SELECT * FROM purser_budget_limits(p_budget_ids, clock_timestamp()) LOOP
    windows := windows || one.moved;
    IF most IS NULL OR one.most - one.used < most - used THEN
      most := one.most;
      used := one.used;
      facts := jsonb_build_object('budgetId', one.budget_id, 'budgetName', one.name, 'budgetHours', one.hours,
        'budgetLimit', one.most::text, 'budgetUsed', one.used::text);
    END IF;
  END LOOP;
END;
$$;
