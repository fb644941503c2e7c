-- Puts a counted payment into every window and sum its time lies in (p_sign 1), or takes it out (-1). Called
-- while the payment is counted: before the change of status that ends that, after the one that makes it so. The
-- caller holds the agent's row, locked before the payment's, so that no window and no sum can move in between.
CREATE FUNCTION purser_count_payment(p_agent_id TEXT, p_payment_id TEXT, p_sign INTEGER)
RETURNS VOID LANGUAGE sql AS $$
  SELECT purser_count_change(p_agent_id, p.created_at, p.counterparty, p_sign * p.amount, p_sign) FROM payments p
   WHERE p.agent_id = p_agent_id AND p.id = p_payment_id AND p.counted;
$$;
