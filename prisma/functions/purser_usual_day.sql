-- What an agent usually spends in 24 hours: the mean of the 14 days that ended 24 hours ago, or of those since its first payment.
-- Null if these are less than three days, or if it spent nothing in them.
CREATE FUNCTION purser_usual_day(p_agent_id TEXT, p_edge TIMESTAMPTZ) RETURNS NUMERIC LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_from TIMESTAMPTZ;
  v_days NUMERIC;
BEGIN
  SELECT GREATEST(min(p.created_at), p_edge - interval '14 days') INTO v_from FROM (
    SELECT p.created_at FROM payments p
     WHERE p.agent_id = p_agent_id AND p.counted ORDER BY p.created_at LIMIT 1) p;
  v_days := extract(epoch FROM p_edge - v_from) / 86400;
  IF v_days IS NULL OR v_days < 3 THEN
    RETURN NULL;
  END IF;
  RETURN NULLIF(round((SELECT c.amount FROM purser_counted_sum(p_agent_id, '', v_from - interval '1 microsecond', p_edge) c) / v_days), 0);
END;
$$;
