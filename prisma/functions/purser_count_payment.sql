-- Adds a counted payment to its task and to every window and sum that contains its time (p_sign 1), or removes it (-1). Called while the
-- payment is counted: before the status change that ends this, or after the one that begins it. The caller has locked the
-- agent's row before the payment's, so no window and no sum can move in between.
CREATE FUNCTION purser_count_payment(p_agent_id TEXT, p_payment_id TEXT, p_sign INTEGER)
RETURNS VOID LANGUAGE sql AS $$
  SELECT purser_budget_change(p_agent_id, p_payment_id, p.amount, p_sign > 0) FROM payments p
   WHERE p.agent_id = p_agent_id AND p.id = p_payment_id AND p.counted;
  UPDATE tasks k SET used = k.used + p_sign * p.amount, payments = k.payments + p_sign FROM payments p
   WHERE p.agent_id = p_agent_id AND p.id = p_payment_id AND p.counted AND k.agent_id = p.agent_id AND k.id = p.task_id;
  SELECT purser_count_change(p_agent_id, p.created_at, p.counterparty, p_sign * p.amount, p_sign) FROM payments p
   WHERE p.agent_id = p_agent_id AND p.id = p_payment_id AND p.counted;
$$;
