-- For each time-window limit of the agent or the payee: when the first payment leaves its window as of p_at, and when p_amount
-- will fit (null if it is above the whole limit). It reads beside the decision, without the agent's lock, from the statement's
-- snapshot.
CREATE FUNCTION purser_release_times(p_agent_id TEXT, p_payee TEXT, p_site TEXT, p_amount NUMERIC,
  p_at TIMESTAMPTZ)
RETURNS TABLE (rule TEXT, next_release_at TIMESTAMPTZ, available_at TIMESTAMPTZ) LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_agent agents%ROWTYPE;
  v_now TIMESTAMPTZ;
  v_edge TIMESTAMPTZ;
  each RECORD;
  v_window spending_windows%ROWTYPE;
  v_need NUMERIC;
BEGIN
  SELECT * INTO v_agent FROM agents a WHERE a.id = p_agent_id;
  v_now := GREATEST(p_at, v_agent.window_tail_at + interval '24 hours');
  FOR each IN
    -- Of the payee's own limits, the one that applies at this site.
    SELECT l.*, CASE l.measure WHEN 'payments' THEN 1 ELSE p_amount END AS ask FROM purser_limits(v_agent) l
     WHERE l.payee = '' OR (l.payee, l.site) = (
       SELECT e.address, e.site FROM allowlist_entries e
        WHERE e.agent_id = p_agent_id AND e.address = p_payee AND e.site IN ('', p_site) ORDER BY e.site DESC LIMIT 1)
  LOOP
    rule := each.rule;
    available_at := NULL;
    v_edge := v_now - each.hours * interval '1 hour';
    next_release_at := purser_leaves_window_at(
      purser_sum_reached_at(p_agent_id, each.payee, 'payments', v_edge, 1), each.hours);
    IF each.ask <= each.most THEN
      IF each.rule = 'daily_limit' THEN
        v_need := v_agent.window_sum - (SELECT c.amount
          FROM purser_counted_sum(p_agent_id, '', v_agent.window_tail_at, v_edge) c);
      ELSE
        v_window := purser_window(p_agent_id, each.payee, each.hours, v_now);
        v_need := CASE each.measure WHEN 'payments' THEN v_window.payments ELSE v_window.amount END;
      END IF;
      v_need := v_need + each.ask - each.most;
      -- Nothing to wait for: the amount fits, or a payment that used the limit was voided meanwhile.
      available_at := CASE WHEN v_need <= 0 THEN v_now ELSE purser_leaves_window_at(
        purser_sum_reached_at(p_agent_id, each.payee, each.measure, v_edge, v_need), each.hours) END;
    END IF;
    RETURN NEXT;
  END LOOP;
  -- One row for all budgets: the amount has to fit each of them.
  IF cardinality(v_agent.budget_ids) > 0 THEN
    RETURN QUERY
      SELECT 'budget', max(purser_leaves_window_at(purser_sum_reached_at(l.budget_id, '', 'payments',
               l.now_at - l.hours * interval '1 hour', 1), l.hours)),
             CASE WHEN bool_and(p_amount <= l.most)
               THEN max(purser_budget_fits_at(l.budget_id, l.hours, l.now_at, l.used + p_amount - l.most)) END
        FROM purser_budget_limits(v_agent.budget_ids, p_at) l;
  END IF;
END;
$$;
