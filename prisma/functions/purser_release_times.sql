-- When the first payment leaves the window as it is at p_at, and when p_amount will fit (null if it is above
-- the whole limit). Read beside the decision, without the agent's lock: one snapshot, that of the statement.
CREATE FUNCTION purser_release_times(p_agent_id TEXT, p_amount NUMERIC, p_at TIMESTAMPTZ)
RETURNS TABLE (next_release_at TIMESTAMPTZ, available_at TIMESTAMPTZ) LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_agent agents%ROWTYPE;
  v_now TIMESTAMPTZ;
  v_edge TIMESTAMPTZ;
  v_need NUMERIC;
BEGIN
  SELECT * INTO v_agent FROM agents a WHERE a.id = p_agent_id;
  v_now := GREATEST(p_at, v_agent.window_tail_at + interval '24 hours');
  v_edge := v_now - interval '24 hours';
  SELECT purser_leaves_window_at(p.created_at) INTO next_release_at FROM payments p
   WHERE p.agent_id = p_agent_id AND p.created_at > v_edge AND p.counted ORDER BY p.created_at, p.id LIMIT 1;
  IF p_amount <= v_agent.daily_limit THEN
    v_need := p_amount - v_agent.daily_limit + v_agent.window_sum
            - purser_counted_sum(p_agent_id, v_agent.window_tail_at, v_edge);
    -- Nothing to wait for: what was in the way has been voided meanwhile.
    available_at := CASE WHEN v_need <= 0 THEN v_now
      ELSE purser_leaves_window_at(purser_sum_reached_at(p_agent_id, v_edge, v_need)) END;
  END IF;
  RETURN NEXT;
END;
$$;
