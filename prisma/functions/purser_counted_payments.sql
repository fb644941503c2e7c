-- What counts in (p_after, p_to] in the windows of an agent (party: who was paid), or of a budget (party: who paid). Read like a
-- view: the planner puts it into the statement that asks.
CREATE FUNCTION purser_counted_payments(p_subject_id TEXT, p_after TIMESTAMPTZ, p_to TIMESTAMPTZ)
RETURNS TABLE (created_at TIMESTAMPTZ, id TEXT, amount NUMERIC, party TEXT) LANGUAGE sql STABLE AS $$
  SELECT p.created_at, p.id, p.amount, p.counterparty FROM payments p
   WHERE p.agent_id = p_subject_id AND p.created_at > p_after AND p.created_at <= p_to AND p.counted
  UNION ALL
  SELECT b.at, b.payment_id, b.amount, b.payer FROM budget_payments b
   WHERE b.budget_id = p_subject_id AND b.at > p_after AND b.at <= p_to AND b.counted;
$$;
