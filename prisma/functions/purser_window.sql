-- A window as of p_at: the stored window with both ends moved on, or one counted anew where no stored window overlaps. It only
-- reads; purser_reserve, which holds the agent's row lock, stores the result.
CREATE FUNCTION purser_window(p_agent_id TEXT, p_payee TEXT, p_hours INTEGER, p_at TIMESTAMPTZ)
RETURNS spending_windows LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_window spending_windows%ROWTYPE;
  v_edge TIMESTAMPTZ := p_at - p_hours * interval '1 hour';
  v_gone RECORD;
  v_come RECORD;
BEGIN
  SELECT * INTO v_window FROM spending_windows w
   WHERE w.agent_id = p_agent_id AND w.payee = p_payee AND w.hours = p_hours;
  IF NOT FOUND OR v_window.to_at <= v_edge THEN
    SELECT * INTO v_come FROM purser_counted_sum(p_agent_id, p_payee, v_edge, p_at);
    RETURN ROW(p_agent_id, p_payee, p_hours, v_edge, p_at, v_come.amount, v_come.payments,
      0, '-infinity')::spending_windows;
  END IF;
  SELECT * INTO v_gone FROM purser_counted_sum(p_agent_id, p_payee, v_window.after_at, v_edge);
  SELECT * INTO v_come FROM purser_counted_sum(p_agent_id, p_payee, v_window.to_at, p_at);
  v_window.after_at := GREATEST(v_window.after_at, v_edge);
  v_window.to_at := GREATEST(v_window.to_at, p_at);
  v_window.amount := v_window.amount - v_gone.amount + v_come.amount;
  v_window.payments := v_window.payments - v_gone.payments + v_come.payments;
  RETURN v_window;
END;
$$;
