-- As purser_notify_limit does for the daily limit: at 80 % and 100 % of a weekly or monthly limit, or of any limit of a budget,
-- once each time they are crossed, and again only after the sum was below 70 %, or a window later. p_is_full: the requested amount does not fit any
-- more, which counts as 100 % in the last fifth of the limit.
CREATE FUNCTION purser_notify_window_limit(p_window spending_windows, p_is_full BOOLEAN) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_owner_id TEXT;
  v_limit NUMERIC;
  v_share SMALLINT;
  v_budget TEXT;
BEGIN
  SELECT a.owner_id, CASE p_window.hours WHEN 168 THEN a.weekly_limit ELSE a.monthly_limit END INTO v_owner_id, v_limit
    FROM agents a WHERE a.id = p_window.agent_id;
  IF NOT FOUND THEN
    SELECT b.owner_id, b.name, CASE p_window.hours WHEN 24 THEN b.daily_limit WHEN 168 THEN b.weekly_limit ELSE b.monthly_limit END
      INTO v_owner_id, v_budget, v_limit FROM budgets b WHERE b.id = p_window.agent_id AND b.archived_at IS NULL;
  END IF;
  IF coalesce(v_limit, 0) = 0 THEN
    RETURN;
  END IF;
  v_share := CASE WHEN p_window.amount >= v_limit OR (p_is_full AND p_window.amount * 10 >= v_limit * 8) THEN 100
                  WHEN p_window.amount * 10 >= v_limit * 8 THEN 80 ELSE 0 END;
  IF v_share = 0 AND (p_window.told = 0 OR p_window.amount * 10 >= v_limit * 7) THEN
    RETURN;
  END IF;
  -- Checked again on the locked row: a simultaneous refusal must not notify twice.
  UPDATE spending_windows w
     SET told = v_share, told_at = CASE WHEN v_share > 0 THEN clock_timestamp() ELSE w.told_at END
   WHERE w.agent_id = p_window.agent_id AND w.payee = p_window.payee AND w.hours = p_window.hours
     AND (v_share = 0 OR w.told < v_share OR w.told_at < now() - w.hours * interval '1 hour');
  IF FOUND AND v_share > 0 THEN
    PERFORM purser_notify(v_owner_id, CASE WHEN v_budget IS NULL THEN 'agent.limit_reached' ELSE 'budget.limit_reached' END,
      CASE WHEN v_budget IS NULL THEN p_window.agent_id END, p_window.agent_id, jsonb_strip_nulls(jsonb_build_object(
        CASE WHEN v_budget IS NULL THEN 'agentId' ELSE 'budgetId' END, p_window.agent_id, 'name', v_budget, 'percent', v_share,
        'limit', purser_usdc(v_limit), 'spent', purser_usdc(p_window.amount),
        'window', CASE p_window.hours WHEN 24 THEN '24h' WHEN 168 THEN '7d' ELSE '30d' END)));
  END IF;
END;
$$;
