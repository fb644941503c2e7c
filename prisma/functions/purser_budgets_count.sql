-- Counts a reserved payment in its budgets. The caller holds the budgets' locks, and stores their windows with the amount.
CREATE FUNCTION purser_budgets_count(p_agent agents, p_payment_id TEXT, p_amount NUMERIC, p_windows spending_windows[])
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_full TEXT[];
BEGIN
  INSERT INTO budget_payments (agent_id, payment_id, budget_id, at, payer, amount, counted)
  SELECT DISTINCT (p_agent).id, p_payment_id, w.agent_id, w.to_at, (p_agent).wallet_address, p_amount, TRUE
    FROM unnest(p_windows) AS w;
  WITH more AS (
    UPDATE budgets b SET unsummed = b.unsummed + 1 WHERE b.id = ANY ((p_agent).budget_ids) RETURNING b.id, b.unsummed)
  SELECT array_agg(m.id) INTO v_full FROM more m WHERE m.unsummed >= purser_sum_size();
  PERFORM purser_write_sums(full_one.id) FROM unnest(v_full) AS full_one (id);
END;
$$;
