-- The time-window limits of an agent and of its payees: the rule, whose window it is, its hours, what is measured (amount or
-- number), and the limit. A payee's limit counts everything that goes to its address, whatever the site.
CREATE FUNCTION purser_limits(p_agent agents)
RETURNS TABLE (rule TEXT, payee TEXT, site TEXT, hours INTEGER, measure TEXT, most NUMERIC) LANGUAGE sql STABLE AS $$
  SELECT of_agent.* FROM (VALUES
    ('payments_per_hour', '', '', 1, 'payments', (p_agent).payments_per_hour::numeric),
    ('daily_limit', '', '', 24, 'amount', (p_agent).daily_limit),
    ('weekly_limit', '', '', 168, 'amount', (p_agent).weekly_limit),
    ('monthly_limit', '', '', 720, 'amount', (p_agent).monthly_limit)) AS of_agent (rule, payee, site, hours, measure, most)
   WHERE of_agent.most IS NOT NULL
  UNION ALL
  SELECT 'payee_limit', l.address, l.site, 24, 'amount', l.daily_limit FROM allowlist_entries l
   WHERE l.agent_id = (p_agent).id AND l.daily_limit IS NOT NULL;
$$;
