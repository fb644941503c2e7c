-- How many payments and paid fetches of an agent failed or were refused in the hour before that time, and since it was resumed.
-- Repeats of a refusal, which share a row in each clock hour, count until an hour after the last of them.
CREATE FUNCTION purser_failures(p_agent_id TEXT, p_at TIMESTAMPTZ, p_resumed_at TIMESTAMPTZ) RETURNS BIGINT LANGUAGE sql STABLE AS $$
  SELECT COALESCE(sum(1 + p.repeats), 0)::bigint FROM payments p
   WHERE p.agent_id = p_agent_id AND p.kind IN ('spend', 'x402')
     AND p.created_at > GREATEST(p_at - interval '2 hours', p_resumed_at) AND p.updated_at > p_at - interval '1 hour'
     AND (p.status = 'voided' OR p.delivered IS FALSE
          OR p.status = 'blocked' AND p.denial_code NOT IN ('agent_paused', 'paused_by_rule'));
$$;
