-- The highest price that an agent paid at a site in the 30 days before that time, in its last 100 payments there. Null if these are
-- less than three. A price that paused the agent is one of them once the owner has resumed it.
-- p_is_maximum: the seller may charge less than it asks. Then what it asked before is compared, otherwise what it charged.
CREATE FUNCTION purser_price_before(
  p_agent_id TEXT, p_site TEXT, p_at TIMESTAMPTZ, p_resumed_at TIMESTAMPTZ, p_is_maximum BOOLEAN
) RETURNS NUMERIC LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN count(o.price) FILTER (WHERE o.is_paid) >= 3 THEN max(o.price) END FROM (
    SELECT p.status <> 'blocked' AS is_paid,
           NULLIF(CASE WHEN p.status = 'blocked' THEN (p.policy->>'jumpPrice')::numeric
                       WHEN p_is_maximum THEN COALESCE(p.maximum, (p.policy->>'price')::numeric, p.amount)
                       WHEN p.channel_id IS NOT NULL THEN p.charged
                       -- Before an open payment with a maximum is settled, nobody knows what is charged.
                       WHEN p.maximum IS NULL OR p.status = 'settled' THEN p.amount END, 0) AS price
      FROM payments p
     WHERE p.agent_id = p_agent_id AND p.site = p_site AND p.created_at > p_at - interval '30 days'
       AND p.status <> 'voided' AND p.failure_code IS NULL AND (p.status <> 'blocked' OR p.created_at < p_resumed_at)
     ORDER BY p.created_at DESC LIMIT 100) o;
$$;
