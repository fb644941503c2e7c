-- When an amount will fit a budget's window that needs p_need less: by then so much has left the window.
CREATE FUNCTION purser_budget_fits_at(p_budget_id TEXT, p_hours INTEGER, p_now TIMESTAMPTZ, p_need NUMERIC)
RETURNS TIMESTAMPTZ LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN p_need <= 0 THEN p_now ELSE purser_leaves_window_at(
    purser_sum_reached_at(p_budget_id, '', 'amount', p_now - p_hours * interval '1 hour', p_need), p_hours) END;
$$;
