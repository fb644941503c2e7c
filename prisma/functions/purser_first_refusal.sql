-- The rules in their fixed order: the code of the first that refuses, or null. The same order and comparisons as
-- server/plugins/guardrails/rules.ts; a property test compares the two. A limit that is not set is null and refuses
-- nothing. A payment through a channel has a deposit, 0 if the channel has room; its price may be above what is requested, and
-- the wallet pays the deposit.
CREATE FUNCTION purser_first_refusal(
  p_status TEXT, p_expired BOOLEAN, p_refusal TEXT, p_requested NUMERIC, p_max_amount NUMERIC,
  p_allowed BOOLEAN, p_expected_payee TEXT, p_bound BOOLEAN, p_payee_expired BOOLEAN, p_per_payment NUMERIC, p_payee_per_payment NUMERIC,
  p_per_hour NUMERIC, p_last_hour NUMERIC, p_payee_limit NUMERIC, p_payee_sum NUMERIC,
  p_limit NUMERIC, p_window_sum NUMERIC, p_weekly NUMERIC, p_week_sum NUMERIC,
  p_monthly NUMERIC, p_month_sum NUMERIC, p_balance NUMERIC, p_outstanding NUMERIC,
  p_price NUMERIC DEFAULT NULL, p_channel_deposit NUMERIC DEFAULT NULL, p_channel_held NUMERIC DEFAULT NULL,
  p_channel_limit NUMERIC DEFAULT NULL, p_channel_delay NUMERIC DEFAULT NULL, p_channel_longest_delay NUMERIC DEFAULT NULL,
  p_payee_channel_held NUMERIC DEFAULT NULL, p_payee_channel_limit NUMERIC DEFAULT NULL,
  p_paused_by TEXT DEFAULT NULL, p_closed BOOLEAN DEFAULT NULL, p_denied BOOLEAN DEFAULT NULL,
  p_budget_limit NUMERIC DEFAULT NULL, p_budget_used NUMERIC DEFAULT NULL,
  p_task_state TEXT DEFAULT NULL, p_task_ceiling NUMERIC DEFAULT NULL, p_task_used NUMERIC DEFAULT NULL
) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN p_paused_by <> 'stop' THEN 'paused_by_rule'
    WHEN p_status <> 'active' THEN 'agent_paused'
    WHEN p_expired THEN 'agent_expired'
    WHEN p_closed THEN 'outside_pay_times'
    WHEN p_denied THEN 'payee_denied'
    WHEN p_refusal IS NOT NULL THEN p_refusal
    WHEN COALESCE(p_price, p_requested) > p_max_amount THEN 'price_exceeds_max'
    WHEN NOT p_allowed AND p_expected_payee IS NOT NULL THEN 'site_payee_changed'
    WHEN NOT p_allowed AND p_bound THEN 'payee_bound_to_site'
    WHEN NOT p_allowed THEN 'recipient_not_allowed'
    WHEN p_payee_expired THEN 'payee_expired'
    WHEN p_channel_deposit IS NOT NULL
     AND (p_channel_limit = 0 OR p_payee_channel_limit = 0 OR p_channel_delay > p_channel_longest_delay) THEN 'channel_not_allowed'
    WHEN p_channel_deposit > 0 AND p_channel_held + p_channel_deposit > p_channel_limit THEN 'channel_limit_exceeded'
    WHEN p_channel_deposit > 0 AND p_payee_channel_held + p_channel_deposit > p_payee_channel_limit
      THEN 'payee_channel_limit_exceeded'
    WHEN COALESCE(p_price, p_requested) > p_per_payment THEN 'per_payment_limit_exceeded'
    WHEN COALESCE(p_price, p_requested) > p_payee_per_payment THEN 'payee_per_payment_limit_exceeded'
    WHEN p_last_hour + 1 > p_per_hour THEN 'payment_rate_exceeded'
    WHEN p_payee_sum + p_requested > p_payee_limit THEN 'payee_limit_exceeded'
    WHEN p_window_sum + p_requested > p_limit THEN 'daily_limit_exceeded'
    WHEN p_week_sum + p_requested > p_weekly THEN 'weekly_limit_exceeded'
    WHEN p_month_sum + p_requested > p_monthly THEN 'monthly_limit_exceeded'
    WHEN p_budget_used + p_requested > p_budget_limit THEN 'budget_exceeded'
    WHEN p_task_state = 'missing' THEN 'task_not_found'
    WHEN p_task_state <> 'open' THEN 'task_ended'
    WHEN p_task_used + p_requested > p_task_ceiling THEN 'task_ceiling_exceeded'
    WHEN COALESCE(p_channel_deposit, p_requested) > p_balance - p_outstanding THEN 'insufficient_funds'
  END;
$$;
