-- When `p_need` atomic units will have left the window. Walks the counted payments from whichever
-- end is nearer in value, and stops as soon as it knows.
CREATE FUNCTION purser_available_at(
  p_agent_id TEXT, p_edge TIMESTAMPTZ, p_window_sum NUMERIC, p_need NUMERIC
) RETURNS TIMESTAMPTZ LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_at TIMESTAMPTZ;
  v_amount NUMERIC;
  v_running NUMERIC := 0;
BEGIN
  IF p_need * 2 <= p_window_sum THEN
    FOR v_at, v_amount IN
      SELECT p.created_at, p.amount FROM payments p
       WHERE p.agent_id = p_agent_id AND p.created_at > p_edge AND p.counted
       ORDER BY p.created_at, p.id
    LOOP
      v_running := v_running + v_amount;
      EXIT WHEN v_running >= p_need;
    END LOOP;
  ELSE
    FOR v_at, v_amount IN
      SELECT p.created_at, p.amount FROM payments p
       WHERE p.agent_id = p_agent_id AND p.created_at > p_edge AND p.counted
       ORDER BY p.created_at DESC, p.id DESC
    LOOP
      v_running := v_running + v_amount;
      EXIT WHEN v_running > p_window_sum - p_need;
    END LOOP;
  END IF;
  RETURN purser_leaves_window_at(v_at);
END;
$$;
