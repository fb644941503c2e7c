-- The time of a decision about a budget: never before its stored windows, even if the clock jumps, and later than every payment.
CREATE FUNCTION purser_budget_now(p_budget_id TEXT, p_at TIMESTAMPTZ) RETURNS TIMESTAMPTZ LANGUAGE sql STABLE AS $$
  SELECT GREATEST(p_at, max(w.to_at) + interval '1 microsecond') FROM spending_windows w
   WHERE w.agent_id = p_budget_id AND w.payee = '';
$$;
