-- How much of a budget's window other wallets used.
CREATE FUNCTION purser_budget_others(p_facts JSONB, p_windows spending_windows[], p_wallet TEXT) RETURNS JSONB LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object('budgetOthers', (w.amount - own.amount)::text) FROM unnest(p_windows) AS w
   CROSS JOIN LATERAL purser_counted_sum(w.agent_id, p_wallet, w.after_at, w.to_at) own
   WHERE w.agent_id = p_facts->>'budgetId' AND w.hours = (p_facts->>'budgetHours')::integer;
$$;
