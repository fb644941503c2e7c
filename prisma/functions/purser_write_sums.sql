-- Sums up the payments that are newer than the last sum, as long as they fill one: for all payees (''), and for each payee.
-- Under the lock of the agent's or the budget's row. A later payment is always newer than every sum, since purser_reserve never gives two payments one
-- time.
CREATE FUNCTION purser_write_sums(p_agent_id TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_size CONSTANT INTEGER := purser_sum_size();
  v_after TIMESTAMPTZ;
  v_to TIMESTAMPTZ;
  v_count INTEGER;
  v_above TIMESTAMPTZ;
BEGIN
  SELECT a.summed_to_at INTO v_after FROM agents a WHERE a.id = p_agent_id FOR UPDATE;
  IF NOT FOUND THEN
    SELECT b.summed_to_at INTO v_after FROM budgets b WHERE b.id = p_agent_id FOR UPDATE;
  END IF;
  LOOP
    SELECT max(next.created_at), count(*) INTO v_to, v_count
      FROM (SELECT p.created_at FROM purser_counted_payments(p_agent_id, v_after, 'infinity') p
             ORDER BY p.created_at, p.id LIMIT v_size) next;
    EXIT WHEN v_count < v_size;
    INSERT INTO payment_sums (agent_id, payee, level, after_at, to_at, amount, payments)
    SELECT p_agent_id, COALESCE(p.party, ''), 1, v_after, v_to, sum(p.amount), count(*)
      FROM purser_counted_payments(p_agent_id, v_after, v_to) p
     GROUP BY GROUPING SETS ((), (p.party));
    v_after := v_to;
    -- Where the sums of level 2 end, or those of level 1 begin.
    SELECT COALESCE(max(s.to_at) FILTER (WHERE s.level = 2), min(s.after_at)) INTO v_above FROM (
      (SELECT level, after_at, to_at FROM payment_sums
        WHERE agent_id = p_agent_id AND payee = '' AND level = 2 ORDER BY after_at DESC LIMIT 1)
      UNION ALL
      (SELECT level, after_at, to_at FROM payment_sums
        WHERE agent_id = p_agent_id AND payee = '' AND level = 1 ORDER BY after_at LIMIT 1)) s;
    IF (SELECT count(*) FROM payment_sums s
         WHERE s.agent_id = p_agent_id AND s.payee = '' AND s.level = 1 AND s.after_at >= v_above) >= v_size THEN
      INSERT INTO payment_sums (agent_id, payee, level, after_at, to_at, amount, payments)
      SELECT p_agent_id, s.payee, 2, v_above, v_to, sum(s.amount), sum(s.payments) FROM payment_sums s
       WHERE s.agent_id = p_agent_id AND s.level = 1 AND s.after_at >= v_above GROUP BY s.payee;
    END IF;
  END LOOP;
  UPDATE agents SET summed_to_at = v_after, unsummed = v_count WHERE id = p_agent_id;
  UPDATE budgets SET summed_to_at = v_after, unsummed = v_count WHERE id = p_agent_id;
END;
$$;
