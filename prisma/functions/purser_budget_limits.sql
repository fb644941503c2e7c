-- The limits of budgets, and each window as of p_at. It only reads.
CREATE FUNCTION purser_budget_limits(p_budget_ids TEXT[], p_at TIMESTAMPTZ)
RETURNS TABLE (budget_id TEXT, name TEXT, hours INTEGER, most NUMERIC, used NUMERIC, now_at TIMESTAMPTZ, moved spending_windows)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  FOR budget_id, name, hours, most, now_at IN
    SELECT b.id, b.name, l.hours, l.most, purser_budget_now(b.id, p_at) FROM budgets b
     CROSS JOIN LATERAL (VALUES (24, b.daily_limit), (168, b.weekly_limit), (720, b.monthly_limit)) AS l (hours, most)
     WHERE b.id = ANY (p_budget_ids) AND l.most IS NOT NULL
     ORDER BY b.id, l.hours
  LOOP
    moved := purser_window(budget_id, '', hours, now_at);
    used := moved.amount;
    RETURN NEXT;
  END LOOP;
END;
$$;
